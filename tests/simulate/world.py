"""Clock, processes and pipes of the simulation: what a kernel does, and no more.

A pipe keeps order and loses nothing that was sent before its sender died; its end is seen after
that. A process takes turns: it drains its inbox whole, then looks at its timers. A stopped one
takes none, and finds everything that came meanwhile when it goes on.
"""

import heapq
import random
from collections.abc import Callable

LOOP_LEASE_S = 5.0
HEARTBEAT_S = 0.4
EOF = object()


class World:
    """Time, the events to come, and one source of chance."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.rng = random.Random(seed)
        self._events: list[tuple[float, int, Callable, tuple]] = []
        self._count = 0

    def at(self, when: float, do: Callable, *given: object) -> None:
        self._count += 1
        heapq.heappush(self._events, (when, self._count, do, given))

    def run(self, until: float, is_over: Callable[[], bool] = lambda: False) -> None:
        while self._events and self._events[0][0] <= until and not is_over():
            self.now, _, do, given = heapq.heappop(self._events)
            do(*given)
        self.now = max(self.now, until) if not is_over() else self.now

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self.rng.random()

    def pick(self, items: list) -> object:
        """One of them; by random() alone, which every Python computes alike."""
        return items[int(self.rng.random() * len(items))]


class End:
    """One end of a pipe; `owner` is None while it waits in the listener's backlog."""

    def __init__(self, world: World, owner: "Process | None") -> None:
        self.world, self.owner = world, owner
        self.peer: End
        self.is_closed = False
        self.early: list[object] = []
        self._last_arrival = 0.0

    def send(self, message: object) -> None:
        if self.is_closed:
            return
        world = self.world
        self._last_arrival = max(self._last_arrival, world.now + world.between(2e-5, 3e-4))
        world.at(self._last_arrival, self.peer._arrive, message)

    def close(self) -> None:
        self.send(EOF)
        self.is_closed = True

    def _arrive(self, message: object) -> None:
        if self.is_closed:
            return
        if self.owner is None:
            self.early.append(message)
        else:
            self.owner.deliver(self, message)

    def accept(self, owner: "Process") -> None:
        self.owner = owner
        for message in self.early:
            owner.deliver(self, message)
        self.early.clear()


def pipe(world: World, ours: "Process", theirs: "Process | None") -> tuple[End, End]:
    near, far = End(world, ours), End(world, theirs)
    near.peer, far.peer = far, near
    return near, far


class Process:
    """A life in a place. `hang()` makes it deaf for ever, `stop` for a while."""

    def __init__(self, world: World, role: str, index: int, incarnation: int,
                 generation: int = 0) -> None:
        self.world, self.role, self.index, self.incarnation = world, role, index, incarnation
        self.generation = generation
        self.is_alive, self.is_hung, self.is_up, self.has_worked = True, False, False, False
        self.stopped_until = 0.0
        self.stopped_since: float | None = None
        self.shared_stop_s = 0.0        # how much of a stop the master shared
        self.killed_by_master = self.died_of_fault = False
        self.alive_until = world.now + 10.0
        self.inbox: list[tuple[object, object]] = []
        self.ends: list[End] = []
        self._turn_at, self._turn_number = float("inf"), 0
        self.wake(world.now)

    def deliver(self, source: object, message: object) -> None:
        if self.is_alive:
            self.inbox.append((source, message))
            self.wake(self.world.now)

    def wake(self, when: float) -> None:
        """Asks for a turn at that time, or earlier if one is due."""
        if when < self._turn_at:
            self._turn_at = when
            self._turn_number += 1
            self.world.at(when, self._take_turn, self._turn_number)

    def _take_turn(self, number: int) -> None:
        if number != self._turn_number or not self.is_alive or self.is_hung:
            return
        now = self.world.now
        self._turn_at = float("inf")
        if now < self.stopped_until:
            self.wake(self.stopped_until)
            return
        self.stopped_since = None
        self.alive_until = max(now + LOOP_LEASE_S, self.promised_until())
        items, self.inbox = self.inbox, []
        timer = self.turn(items, now)
        if self.is_alive:
            self.wake(min(now + HEARTBEAT_S, timer if timer is not None else float("inf")))

    def promised_until(self) -> float:
        return 0.0

    def turn(self, items: list[tuple[object, object]], now: float) -> float | None:
        """Handles what has come, acts, and returns when it next has something to do."""
        raise NotImplementedError

    def stop(self, seconds: float) -> None:
        if self.stopped_since is None or self.world.now >= self.stopped_until:
            self.stopped_since = self.world.now
        self.stopped_until = max(self.stopped_until, self.world.now + seconds)

    def die(self) -> None:
        self.is_alive = False
        for end in self.ends:
            end.close()
