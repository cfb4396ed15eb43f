"""One generation as the supervisor sees it: its places, who is in them, how far it has come (pure).

    preparing ─(prepared)─► testing ─(all up, all tested)─► opening ─(all fronts poll)─► serving
        │                      │                                                            │
        └─(refused, a death, time)─► leaving ◄──(drained, or the drain's time is over)── draining

The first generation has no predecessor to fall back to: it lets clients in from its first moment
and serves when its first engine does. `opening` is the commit: from then on a death is followed by
a successor, before it by the end of the reload.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from server.orders import Plan, Reading

PREPARING, TESTING, OPENING, SERVING = "preparing", "testing", "opening", "serving"
DRAINING, LEAVING = "draining", "leaving"
FIRST_BACK_OFF_S, LONGEST_BACK_OFF_S = 0.1, 5.0

Place = tuple[str, int]


@dataclass(slots=True)
class Seat:
    """A place: its process's incarnation (0: none), and when it may be filled again."""

    incarnation: int = 0
    back_off_s: float = 0.0
    start_at: float = 0.0
    killed_why: str = ""
    last_alive_until: float = 0.0
    shift_s: float = 0.0
    has_worked: bool = False

    def vacate(self, has_worked: bool, now: float) -> None:
        """Its process is gone; one that never worked lets its successor wait."""
        self.back_off_s = 0.0 if has_worked or self.has_worked else min(
            max(2 * self.back_off_s, FIRST_BACK_OFF_S), LONGEST_BACK_OFF_S)
        self.incarnation, self.killed_why, self.has_worked = 0, "", False
        self.start_at = now + self.back_off_s


class Generation:
    """The seats of one generation. `until` is when its present state has lasted for too long;
    `tickets` are the requests that it answers (none for the first)."""

    def __init__(self, number: int, plan: Plan, tickets: tuple[int, ...], model: str) -> None:
        self.number = number
        self.plan = plan
        self.tickets = tickets
        self.model = model
        self.state = PREPARING
        self.until = math.inf
        self.has_farewell = False       # of a drain whose time is over
        self.seats: dict[Place, Seat] = {}
        self.has_forkserver = False
        self.has_served = False
        # Fronts, by index: those that passed the rehearsal, that let clients in, that hold nothing.
        self.tested: set[int] = set()
        self.opened: set[int] = set()
        self.drained: set[int] = set()

    @property
    def is_committed(self) -> bool:
        return self.state in (OPENING, SERVING, DRAINING)

    @property
    def is_empty(self) -> bool:
        return not any(seat.incarnation for seat in self.seats.values())

    @property
    def may_open(self) -> bool:
        """Whether everything stands that clients will need."""
        return self.state == TESTING and self.has_served and len(self.tested) >= self.plan.fronts

    @property
    def is_open(self) -> bool:
        """Whether each of its fronts lets clients in."""
        return self.state == OPENING and len(self.opened) >= self.plan.fronts

    @property
    def is_drained(self) -> bool:
        return len(self.drained) >= self.plan.fronts

    def place(self, role: str, indices: int, now: float) -> None:
        """Places for that many processes of a role, unless they are there."""
        for index in range(indices):
            self.seats.setdefault((role, index), Seat(start_at=now))

    def due(self, now: float) -> list[tuple[Place, Seat]]:
        """Empty places that should have a process now."""
        if self.state == LEAVING:
            return []
        return [(place, seat) for place, seat in self.seats.items()
                if not seat.incarnation and seat.start_at <= now
                and (place[0] != "engine" or self.has_forkserver)
                and (place[0] != "front" or self.state != DRAINING)]

    def next_start(self, now: float) -> float:
        """When the next empty place may be filled, if that is to come."""
        return min((seat.start_at for seat in self.seats.values()
                    if not seat.incarnation and seat.start_at > now), default=math.inf)

    def gone(self, place: Place) -> None:
        """Whoever is in a place is there no more."""
        role, index = place
        if role == "forkserver":
            self.has_forkserver = False
        elif role == "front":
            self.opened.discard(index)
            if self.state == DRAINING:
                # Its connections are gone with it, and nobody may come in any more.
                self.drained.add(index)

    def drain(self, until: float) -> None:
        """From now on no front is started, and a dead one holds nothing."""
        self.state, self.until = DRAINING, until
        self.drained.update(index for (role, index), seat in self.seats.items()
                            if role == "front" and not seat.incarnation)

    def overdue(self, readings: Mapping[int, Reading], late_s: float,
                now: float) -> list[tuple[Place, Seat, str]]:
        """Who broke its lease, and how; each is named once. `late_s` moves all leases."""
        found = []
        for place, seat in self.seats.items():
            reading = readings.get(seat.incarnation)
            if reading is None or not seat.incarnation or seat.killed_why:
                continue
            if reading.alive_until != seat.last_alive_until:
                seat.last_alive_until, seat.shift_s = reading.alive_until, 0.0
            seat.shift_s += late_s
            if now > reading.alive_until + seat.shift_s:
                seat.killed_why = "gave no sign of life in time"
            elif reading.cpu_until and reading.cpu_used > reading.cpu_until:
                seat.killed_why = "used more CPU time than its work costs"
            else:
                continue
            found.append((place, seat, seat.killed_why))
        return found

    def has_engine(self, readings: Mapping[int, Reading]) -> bool:
        """Whether any engine is up."""
        return any(seat.incarnation in readings and readings[seat.incarnation].is_up
                   for (role, _), seat in self.seats.items() if role == "engine")

    def all_up(self, readings: Mapping[int, Reading]) -> bool:
        """Whether a process is up in every place."""
        return all(seat.incarnation in readings and readings[seat.incarnation].is_up
                   for seat in self.seats.values())
