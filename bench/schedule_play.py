"""Plays a trace through an order of work on a simulated machine, under a virtual clock (pure).

A request costs some of a front's time when it comes, and the rest of it when it is answered (what
tokenising costs is counted there too: a request that is refused is not tokenised); between them it
waits in the order under test and runs on an engine. Two runs with the same trace, order and machine
are the same to the last digit.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from bench.schedule_machine import BatchTimes, Cores, Machine, Task
from bench.schedule_policies import Ended, Order, Start
from bench.schedule_trace import Asked, Trace

TRIES_MOST = 10         # of a request that obeys Retry-After, as bench/load_client.py has it
GRACE_S = 30.0          # after the trace's end
# Of what a request costs outside engines so much is spent before it is admitted or refused, and by
# one that is refused no more: a server of 0.6 ms a request took 0.1 ms for a refusal.
ADMISSION_SHARE = 0.2


@dataclass(frozen=True)
class Outcome:
    """One request: `latency_ms` from the planned time to the last byte of the last answer, `tries`
    how often it was sent; one that `is_good` was not refused in the end."""

    asked: Asked
    latency_ms: float
    is_good: bool
    tries: int = 1


class Ran(NamedTuple):
    """A batch that an engine computed for `ms` from `at_s` on; `computed` are its tokens with
    padding, `squares` the sum of the squares of what was computed of each text."""

    at_s: float
    texts: int
    tokens: int
    computed: int
    squares: int
    ms: float


@dataclass
class Played:
    """What came of a trace."""

    trace: Trace
    outcomes: list[Outcome] = field(default_factory=list)
    batches: list[Ran] = field(default_factory=list)
    took_s: float = 0.0
    engine_busy_s: float = 0.0


@dataclass(eq=False)
class _Open:
    number: int
    asked: Asked
    planned: float
    connection: int
    tries: int = 1


@dataclass(eq=False)
class _Engine:
    batches: deque[Start] = field(default_factory=deque)
    began: float | None = None


def play(trace: Trace, order: Order, machine: Machine, obeys: bool = False,
         pace: Callable[[float], float] = lambda now: 1.0) -> Played:
    """`obeys`: what is refused is sent again when Retry-After says so. `pace` tells how many times
    as long as usual a batch takes that begins at a time."""
    return _Play(trace, order, machine, obeys, pace).run()


class _Play:
    def __init__(self, trace: Trace, order: Order, machine: Machine, obeys: bool,
                 pace: Callable[[float], float]) -> None:
        self._trace, self._order, self._machine = trace, order, machine
        self._obeys, self._pace = obeys, pace
        self._times, self._cores = BatchTimes(machine), Cores(machine.cores)
        self._now, self._ticket = 0.0, 0
        self._events: list[tuple[float, int, Callable, tuple]] = []
        self._open: dict[int, _Open] = {}
        self._idle: list[int] = []
        self._connections = 0
        self._next = 0
        self._number = 0
        self._host: deque[Task] = deque()
        self._host_running = 0
        self._engines = [_Engine() for _ in range(machine.engines)]
        self._timer = math.inf
        self._played = Played(trace)

    def run(self) -> Played:
        trace, played = self._trace, self._played
        if trace.connections:
            for _ in range(trace.connections):
                self._ask_next()
        else:
            for asked in trace.requests:
                self._at(asked.at_s, self._come, asked)
        end = trace.duration_s + GRACE_S
        while True:
            next_at = min(self._events[0][0] if self._events else math.inf,
                          self._cores.next_end(), self._timer)
            if next_at > end:
                break
            self._now = max(next_at, self._now)
            self._turn()
        for one in self._open.values():
            played.outcomes.append(Outcome(one.asked, (end - one.planned) * 1e3, False, one.tries))
        played.engine_busy_s = self._cores.engine_busy_s
        return played

    def _at(self, when: float, do: Callable, *given: object) -> None:
        self._ticket += 1
        heapq.heappush(self._events, (when, self._ticket, do, given))

    def _turn(self) -> None:
        """All that happens now, then what the order makes of it."""
        for task in self._cores.take_ended(self._now):
            task.what()
        while self._events and self._events[0][0] <= self._now:
            _, _, do, given = heapq.heappop(self._events)
            do(*given)
        for event in self._order.act(self._now):
            if isinstance(event, Start):
                self._at(self._now + self._machine.link_ms / 1e3, self._receive, event)
            else:
                self._end(event)
        timer = self._order.next_timer(self._now)
        self._timer = math.inf if timer is None else max(timer, self._now + 1e-6)

    # ---- requests -----------------------------------------------------------------------

    def _ask_next(self) -> None:
        if self._next < len(self._trace.requests) and self._now < self._trace.duration_s:
            self._next += 1
            self._come(self._trace.requests[self._next - 1])

    def _come(self, asked: Asked) -> None:
        connection = asked.connection
        if connection is None:
            if self._idle:
                connection = self._idle.pop()
            else:
                connection, self._connections = self._connections, self._connections + 1
        one = _Open(self._number, asked, self._now, connection)
        self._number += 1
        self._send(one)

    def _send(self, one: _Open) -> None:
        self._open[one.number] = one
        self._at(self._now + self._machine.wake_ms / 1e3, self._arrive, one)

    def _arrive(self, one: _Open) -> None:
        self._work(ADMISSION_SHARE * self._machine.host_ms,
                   lambda: self._order.ask(one.number, one.asked, one.connection, self._now))

    def _end(self, event: Ended) -> None:
        one = self._open.pop(event.number)
        machine, tokens = self._machine, one.asked.tokens
        work_ms = 0.0 if event.retry_ms else (
            (1 - ADMISSION_SHARE) * machine.host_ms + machine.host_text_ms * len(tokens)
            + machine.host_token_ms * sum(tokens))
        self._work(work_ms, lambda: self._answered(one, event.retry_ms))

    def _answered(self, one: _Open, retry_ms: int) -> None:
        again = self._now + math.ceil(retry_ms / 1e3)
        if retry_ms and self._obeys and one.tries < TRIES_MOST \
                and again < self._trace.duration_s + GRACE_S:
            self._at(again, self._send, _Open(self._new_number(), one.asked, one.planned,
                                              one.connection, one.tries + 1))
            return
        if one.asked.connection is None:
            self._idle.append(one.connection)
        self._played.outcomes.append(Outcome(
            one.asked, (self._now - one.planned) * 1e3, not retry_ms, one.tries))
        self._played.took_s = self._now
        if self._trace.connections:
            self._ask_next()

    def _new_number(self) -> int:
        self._number += 1
        return self._number - 1

    # ---- machine ------------------------------------------------------------------------

    def _work(self, work_ms: float, then: Callable[[], None]) -> None:
        """Work outside engines, in as many places as there are fronts."""
        self._host.append(Task(work_ms, False, lambda: self._worked(then)))
        self._begin_work()

    def _begin_work(self) -> None:
        while self._host and self._host_running < self._machine.fronts:
            self._host_running += 1
            self._cores.add(self._host.popleft(), self._now)

    def _worked(self, then: Callable[[], None]) -> None:
        self._host_running -= 1
        then()
        self._begin_work()

    def _receive(self, batch: Start) -> None:
        engine = self._engines[batch.engine]
        engine.batches.append(batch)
        if engine.began is None:
            self._begin(engine)

    def _begin(self, engine: _Engine) -> None:
        batch, engine.began = engine.batches[0], self._now
        work_ms = self._pace(self._now) * self._times.work_ms(
            batch.texts, batch.computed, batch.squares)
        self._cores.add(Task(work_ms, True, lambda: self._ran(engine)), self._now)

    def _ran(self, engine: _Engine) -> None:
        batch = engine.batches.popleft()
        took_ms = (self._now - engine.began) * 1e3
        self._played.batches.append(Ran(engine.began, batch.texts, batch.tokens, batch.computed,
                                        batch.squares, took_ms))
        engine.began = None
        self._at(self._now + self._machine.link_ms / 1e3, self._tell, batch.engine, took_ms)
        if engine.batches:
            self._begin(engine)

    def _tell(self, engine: int, took_ms: float) -> None:
        self._order.done(engine, took_ms, self._now)
