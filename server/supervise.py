"""Who lives, who is started again, who is killed, when the server is ready and when it ends (pure).

Each place (role, index) should have a process. Events come in as method calls with `now` in
monotonic seconds; `take_actions` gives what the master must do.

Start: fronts, dispatcher, preparer → (prepared) forkserver → (forkserver ready) engines → (first
engine serves) ready. Until the first ready a death ends the server with exit code 3. After it:

- a process that has worked is replaced at once; one that died before it had worked waits 0.1 s,
  doubling to 5 s, so that a part that cannot start does not spin; one that never came to be (a
  failed fork, a forkserver that died with the order unread) is no death: it is tried again so;
- a death is a fault unless a signal KILL or TERM from outside caused it, or the process ended with
  status 0; the master's own kill of one that broke its lease is a fault;
- leases: each process says until when it is alive, and how much CPU time it may have used by then.
  Who is past it is killed. When this machine itself was late (stopped, frozen), everyone's lease
  moves by as much, because they may have been stopped with it;
- stop: lame duck → draining → exit, or at once before the first ready and on a second signal.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

FIRST_BACK_OFF_S, LONGEST_BACK_OFF_S = 0.1, 5.0
# A turn that comes this much later than it was due means that the machine itself stood still.
LATE_S = 1.0
TICK_S = 0.1
# A front may still send its 503s after the drain's end.
FAREWELL_S = 0.3

Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Plan:
    """What there should be, and the operator's times in seconds."""

    fronts: int
    engines: int
    give_up_s: float = 120.0
    lame_duck_s: float = 2.0
    drain_s: float = 25.0


@dataclass(frozen=True, slots=True)
class Reading:
    """A page's header: alive until (monotonic s), CPU seconds promised and used (0: no bound),
    whether it is up and whether it has worked."""

    alive_until: float
    cpu_until: float
    cpu_used: float
    is_up: bool
    has_worked: bool


@dataclass(frozen=True, slots=True)
class Spawn:
    role: str
    index: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class Kill:
    role: str
    index: int
    incarnation: int
    why: str


@dataclass(frozen=True, slots=True)
class ReportDeath:
    """To be told to the dispatcher (an engine's) or to every front (the dispatcher's)."""

    role: str
    index: int
    incarnation: int
    is_fault: bool


@dataclass(frozen=True, slots=True)
class EnterPhase:
    """To be told to every front: "serving", "lame_duck", "draining", "stop"."""

    phase: str


@dataclass(frozen=True, slots=True)
class AnnounceReady:
    pass


@dataclass(frozen=True, slots=True)
class CountRestart:
    role: str
    cause: str


@dataclass(frozen=True, slots=True)
class Exit:
    code: int
    sentence: str = ""


@dataclass(slots=True)
class _Seat:
    """A place: its process's incarnation (0: none), and when it may be filled again."""

    incarnation: int = 0
    back_off_s: float = 0.0
    start_at: float = 0.0
    killed_why: str = ""
    last_alive_until: float = 0.0
    shift_s: float = 0.0
    has_worked: bool = False


@dataclass(slots=True)
class _Stop:
    """A stop under way: its phase and when that ends."""

    phase: str = ""
    until: float = math.inf
    drained: set[int] = field(default_factory=set)


class Supervisor:
    """The master's decisions. Lives are numbered from 1; no number is used twice."""

    def __init__(self, plan: Plan, now: float) -> None:
        self.plan = plan
        self.is_ready = False
        self.phase = "starting"
        self._seats: dict[Place, _Seat] = {}
        self._next_incarnation = 1
        self._forkserver_ready = False
        self._last_engine_at = now
        self._last_tick = now
        self._stop = _Stop()
        self._has_ended = False
        self._actions: list[object] = []

    def start(self, now: float) -> None:
        for index in range(self.plan.fronts):
            self._open(("front", index), now)
        self._open(("dispatcher", 0), now)
        self._open(("preparer", 0), now)

    def prepared(self, now: float) -> None:
        """The model is sealed; the preparer's place is closed."""
        self._seats.pop(("preparer", 0), None)
        self._open(("forkserver", 0), now)

    def refused(self, sentence: str) -> None:
        """The checkpoint cannot be served."""
        self._end(2, sentence)

    def forkserver_ready(self, incarnation: int, now: float) -> None:
        seat = self._seats.get(("forkserver", 0))
        if seat is None or seat.incarnation != incarnation:
            return
        self._forkserver_ready = True
        seat.has_worked = True
        for index in range(self.plan.engines):
            place = ("engine", index)
            if place not in self._seats:
                self._open(place, now)
        self._fill(now)

    def engine_serves(self, now: float) -> None:
        """The dispatcher has its first engine."""
        self._last_engine_at = now
        if not self.is_ready and not self._has_ended:
            self.is_ready = True
            # The fronts are told first, so that whoever reads the announcement is not refused.
            if not self._stop.phase:
                self._enter("serving")
            self._actions.append(AnnounceReady())

    def exited(self, role: str, index: int, incarnation: int, cause: str, is_fault: bool,
               has_worked: bool, now: float, words: str = "") -> None:
        """A process was reaped. `cause` as in the metrics, `words` for people."""
        seat = self._seats.get((role, index))
        if seat is None or seat.incarnation != incarnation:
            return
        if seat.killed_why:
            cause, is_fault = "lease", True
        if role == "forkserver":
            self._forkserver_ready = False
        if role in ("engine", "dispatcher"):
            self._actions.append(ReportDeath(role, index, incarnation, is_fault))
        if not self.is_ready:
            self._end(3, f"{role} {index} ended before the server was ready: {words or cause}")
            return
        self._actions.append(CountRestart(role, cause))
        self._vacate(seat, has_worked or seat.has_worked, now)
        if role == "front" and self._stop.phase in ("draining", "stop"):
            # Its connections are gone with it, and nobody may come in any more.
            self.drained(index, now)
        self._fill(now)

    def never_came(self, role: str, index: int, incarnation: int, now: float,
                   words: str = "") -> None:
        """A process that was to be started is not there and never was."""
        seat = self._seats.get((role, index))
        if seat is None or seat.incarnation != incarnation:
            return
        if not self.is_ready:
            self._end(3, f"{role} {index} could not be started: {words}")
            return
        self._vacate(seat, False, now)
        if role == "front" and self._stop.phase in ("draining", "stop"):
            self.drained(index, now)
        self._fill(now)

    def _vacate(self, seat: _Seat, has_worked: bool, now: float) -> None:
        seat.back_off_s = 0.0 if has_worked else min(
            max(2 * seat.back_off_s, FIRST_BACK_OFF_S), LONGEST_BACK_OFF_S)
        seat.incarnation, seat.killed_why, seat.has_worked = 0, "", False
        seat.start_at = now + seat.back_off_s

    def drained(self, front: int, now: float) -> None:
        """A front has nothing open any more."""
        self._stop.drained.add(front)
        self._end_if_drained(now)

    def signal(self, name: str, now: float) -> None:
        """TERM or INT; others are not the supervisor's."""
        if not self.is_ready:
            self._end(0)
        elif self._stop.phase:
            self._end(1, "told twice to stop: some requests may be unanswered")
        elif name == "TERM" and self.plan.lame_duck_s > 0:
            self._stop = _Stop("lame_duck", now + self.plan.lame_duck_s)
            self._enter("lame_duck")
        else:
            self._drain(now)

    def tick(self, readings: Mapping[Place, Reading], now: float) -> None:
        """Timers and leases; after everything that has come was read."""
        late_s = now - self._last_tick - TICK_S
        self._last_tick = now
        self._check_leases(readings, late_s if late_s > LATE_S else 0.0, now)
        if any(reading.is_up for place, reading in readings.items() if place[0] == "engine"):
            self._last_engine_at = now
        elif late_s > LATE_S:
            self._last_engine_at += late_s
        if self.is_ready and now - self._last_engine_at > self.plan.give_up_s:
            self._end(5, f"gave up: no engine for {self.plan.give_up_s:g} s")
        if now >= self._stop.until:
            self._next_stop_phase(now)
        self._fill(now)

    def next_timer(self, now: float) -> float:
        """When `tick` should be called next, in monotonic seconds."""
        times = [seat.start_at for seat in self._seats.values() if not seat.incarnation]
        return min([now + TICK_S, self._stop.until, *(at for at in times if at > now)])

    def take_actions(self) -> list[object]:
        actions, self._actions = self._actions, []
        return actions

    def _open(self, place: Place, now: float) -> None:
        self._seats[place] = _Seat(start_at=now)
        self._fill(now)

    def _fill(self, now: float) -> None:
        """Starts a process in each empty place whose time has come."""
        if self._has_ended:
            return
        for (role, index), seat in self._seats.items():
            if seat.incarnation or seat.start_at > now:
                continue
            if role == "engine" and not self._forkserver_ready:
                continue
            if role == "front" and self._stop.phase in ("draining", "stop"):
                continue
            seat.incarnation = self._next_incarnation
            seat.last_alive_until = seat.shift_s = 0.0
            self._next_incarnation += 1
            self._actions.append(Spawn(role, index, seat.incarnation))

    def _check_leases(self, readings: Mapping[Place, Reading], late_s: float, now: float) -> None:
        for place, reading in readings.items():
            seat = self._seats.get(place)
            if seat is None or not seat.incarnation or seat.killed_why:
                continue
            if reading.alive_until != seat.last_alive_until:
                seat.last_alive_until, seat.shift_s = reading.alive_until, 0.0
            seat.shift_s += late_s
            if now > reading.alive_until + seat.shift_s:
                self._kill(place, seat, "gave no sign of life in time")
            elif reading.cpu_until and reading.cpu_used > reading.cpu_until:
                self._kill(place, seat, "used more CPU time than its work costs")

    def _kill(self, place: Place, seat: _Seat, why: str) -> None:
        seat.killed_why = why
        self._actions.append(Kill(*place, seat.incarnation, why))

    def _next_stop_phase(self, now: float) -> None:
        if self._stop.phase == "lame_duck":
            self._drain(now)
        elif self._stop.phase == "draining":
            self._stop.phase, self._stop.until = "stop", now + FAREWELL_S
            self._enter("stop")
        else:
            self._end(1, "the drain's time is over: some requests were not answered")

    def _drain(self, now: float) -> None:
        self._stop = _Stop("draining", now + self.plan.drain_s)
        self._enter("draining")
        dead = [index for (role, index), seat in self._seats.items()
                if role == "front" and not seat.incarnation]
        self._stop.drained.update(dead)
        self._end_if_drained(now)

    def _end_if_drained(self, now: float) -> None:
        if self._stop.phase == "draining" and len(self._stop.drained) >= self.plan.fronts:
            self._end(0)

    def _enter(self, phase: str) -> None:
        self.phase = phase
        self._actions.append(EnterPhase(phase))

    def _end(self, code: int, sentence: str = "") -> None:
        if not self._has_ended:
            self._has_ended = True
            self._actions.append(Exit(code, sentence))


def is_fault(cause: str, killed_by_us: bool = False) -> bool:
    """Whether a death speaks against what the process did: anything but an ordered end or a kill
    from outside."""
    return killed_by_us or cause not in ("exit-0", "sigkill", "sigterm")


def due_s(cost_ms: float) -> tuple[float, float]:
    """(CPU seconds, wall seconds) that a batch of that estimated cost may take.

    Eight times the estimate and a second, so that no healthy engine is killed; ten times that on
    the wall, because neighbours may hold the cores.
    """
    cpu_s = cost_ms * 8 / 1e3 + 1.0
    return cpu_s, 10 * cpu_s
