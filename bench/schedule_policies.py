"""Orders of work for simulated schedules: the server's own, and three that others use (pure).

Ours is server.scheduler.Scheduler behind a front's server.inflight.InFlight and
server.returns.Returns for each front, as they are. The
others admit by the same rule (429 past an estimated wait) and differ in order and batches alone:
FIFO without padding; the shortest first, padded to the longest of the batch; and fixed buckets, the
oldest text's, padded to the bucket's length.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from bench.schedule_trace import Asked
from model.grid import bucket, buckets
from server.costs import CostModel
from server.dispatch import (Policy, RunBatch, SendNotes, SendRefused, SendResults,
                             SendState)
from server.inflight import Finish, InFlight, Limits, SendCancel, SendGroups
from server.jobqueue import BATCH_CAP_MS
from server.messages import CPU, HIGH, LOW, Done, EngineHello, Refused, Results, Row
from server.returns import Returns
from server.scheduler import Scheduler

MAX_JOBS = 10_000
CLASSES = 2
NO_LOGITS = bytes(4 * CLASSES)
LENGTHS = buckets(512)


@dataclass(frozen=True)
class Start:
    """An engine is given a batch; `computed` counts its tokens with padding, and `squares` is the
    sum of the squares of what is computed of each text."""

    engine: int
    texts: int
    tokens: int
    computed: int
    squares: int


@dataclass(frozen=True)
class Ended:
    """A request has its answer, or is refused where `retry_ms` is above 0."""

    number: int
    retry_ms: int = 0


class Order(Protocol):
    """Decides which texts an engine computes next."""

    name: str

    def ask(self, number: int, request: Asked, connection: int, now: float) -> None:
        """A request has come; its number is not one that is open."""

    def done(self, engine: int, took_ms: float, now: float) -> None:
        """The engine's oldest batch is finished."""

    def act(self, now: float) -> list[Start | Ended]:
        """What happens now."""

    def next_timer(self, now: float) -> float | None:
        """When `act` has something though nothing happened; None for never."""


class Ours:
    """The server's scheduler and fronts; `costs` is what its engines' hellos tell it."""

    name = "firebrick"

    def __init__(self, costs: Sequence[tuple[int, int, float]], engines: int, fronts: int,
                 max_wait_ms: float) -> None:
        self.scheduler = Scheduler(1, Policy(engines, max_wait_ms))
        self._fronts = [InFlight(index, 1, 1, Limits(max_wait_ms), 0.0)
                        for index in range(fronts)]
        self._returns = [Returns(0.0) for _ in range(fronts)]
        self._connections: dict[int, int] = {}
        self._events: list[Start | Ended] = []
        self._batches: list[deque[RunBatch]] = [deque() for _ in range(engines)]
        for front in self._fronts:
            front.link_up(0.0)
            self.scheduler.front_hello((front.hello.front, 1))
            front.take_actions()
        for index in range(engines):
            self.scheduler.engine_hello(EngineHello(CPU, index, 1, 1, CLASSES, list(costs)))
        self.act(0.0)

    def ask(self, number: int, request: Asked, connection: int, now: float) -> None:
        front = self._fronts[connection % len(self._fronts)]
        priority = HIGH if request.high else LOW
        refusal = front.early_refusal(priority, now)
        if refusal is not None:
            self._refuse(number, connection, refusal.retry_ms, now)
            return
        self._connections[number] = connection
        front.open(number, connection, priority, None, [
            Row(tokens, tokens, b"%d.%d" % (number, place) + bytes(2 * tokens))
            for place, tokens in enumerate(request.tokens)], now)
        self._pass_on(front, now)

    def done(self, engine: int, took_ms: float, now: float) -> None:
        batch = self._batches[engine].popleft().batch
        self.scheduler.done(engine, 1, Done(batch.batch, int(took_ms * 1e3), CLASSES,
                                            NO_LOGITS * len(batch.rows)), now)

    def act(self, now: float) -> list[Start | Ended]:
        for action in self.scheduler.take_actions(now):
            self._obey(action, now)
        for front in self._fronts:
            front.tick(now)
            self._pass_on(front, now)
        events, self._events = self._events, []
        return events

    def next_timer(self, now: float) -> float | None:
        times = [self.scheduler.next_timer(now), *(front.next_timer(now) for front in self._fronts)]
        return min((time for time in times if time is not None), default=None)

    def _obey(self, action: object, now: float) -> None:
        if isinstance(action, RunBatch):
            rows = action.batch.rows
            tokens = sum(row.tokens for row in rows)
            self._batches[action.engine].append(action)
            self._events.append(Start(action.engine, len(rows), tokens, tokens,
                                      sum(row.tokens ** 2 for row in rows)))
        elif isinstance(action, SendState):
            for front in self._fronts:
                front.receive(action.state, now)
        elif isinstance(action, SendResults):
            self._fronts[action.source[0]].receive(Results(action.results), now)
        elif isinstance(action, SendRefused):
            self._fronts[action.source[0]].receive(Refused([action.refusal]), now)
        else:
            assert not isinstance(action, SendNotes), "nobody dies here"

    def _pass_on(self, front: InFlight, now: float) -> None:
        source = (front.hello.front, 1)
        for action in front.take_actions():
            if isinstance(action, SendGroups):
                self.scheduler.jobs(source, action.groups, now)
            elif isinstance(action, SendCancel):
                self.scheduler.cancel(source, action.cancel.jobs)
            elif isinstance(action, Finish):
                connection = self._connections.pop(action.group)
                if action.outcome.kind == "ok":
                    self._returns[front.hello.front].answered(now)
                    self._events.append(Ended(action.group))
                else:
                    self._refuse(action.group, connection, action.outcome.retry_ms, now)

    def _refuse(self, number: int, connection: int, retry_ms: int, now: float) -> None:
        returns = self._returns[connection % len(self._fronts)]
        self._events.append(Ended(number, max(returns.give_ms(retry_ms, now), 1)))


@dataclass(eq=False)
class _Text:
    number: int
    tokens: int
    cost_ms: float
    order: int


class _Plain:
    """What the three have in common: admission, idle engines, batches of at most BATCH_CAP_MS."""

    def __init__(self, costs: Sequence[tuple[int, int, float]], engines: int,
                 max_wait_ms: float) -> None:
        self._costs = CostModel(costs)
        self._max_wait_ms = max_wait_ms
        self._running: list[list[_Text] | None] = [None] * engines
        self._waiting: list[_Text] = []
        self._left: dict[int, int] = {}
        self._backlog_ms = 0.0
        self._count = 0
        self._events: list[Start | Ended] = []

    def ask(self, number: int, request: Asked, connection: int, now: float) -> None:
        wait_ms = self._backlog_ms / len(self._running)
        if self._waiting and (wait_ms > self._max_wait_ms
                              or len(self._waiting) + len(request.tokens) > MAX_JOBS):
            self._events.append(Ended(number, max(int(wait_ms - self._max_wait_ms), 0) + 1))
            return
        self._left[number] = len(request.tokens)
        for tokens in request.tokens:
            computed = self._width(tokens)
            text = _Text(number, tokens, self._costs.share_ms(computed), self._count)
            self._count += 1
            self._backlog_ms += text.cost_ms
            self._waiting.append(text)

    def done(self, engine: int, took_ms: float, now: float) -> None:
        for text in self._running[engine] or ():
            self._left[text.number] -= 1
            if not self._left[text.number]:
                del self._left[text.number]
                self._events.append(Ended(text.number))
        self._running[engine] = None

    def act(self, now: float) -> list[Start | Ended]:
        for engine, running in enumerate(self._running):
            if running is None and self._waiting:
                batch, width = self._take()
                gone = {text.order for text in batch}
                self._waiting = [text for text in self._waiting if text.order not in gone]
                self._backlog_ms -= sum(text.cost_ms for text in batch)
                self._running[engine] = batch
                computed = [width or text.tokens for text in batch]
                self._events.append(Start(
                    engine, len(batch), sum(text.tokens for text in batch), sum(computed),
                    sum(length ** 2 for length in computed)))
        events, self._events = self._events, []
        return events

    def next_timer(self, now: float) -> float | None:
        return None

    def _width(self, tokens: int) -> int:
        """Tokens that one text of that length costs at least."""
        return tokens

    def _take(self) -> tuple[list[_Text], int]:
        """The next batch and the length to which its texts are padded, 0 where they are not."""
        raise NotImplementedError

    def _fill(self, texts: Sequence[_Text], width: int) -> list[_Text]:
        """The first of the texts that fit; padded to `width`, or to the longest if it is -1, or
        not at all if it is 0."""
        batch: list[_Text] = []
        tokens = longest = 0
        for text in texts:
            tokens += text.tokens
            longest = max(longest, text.tokens)
            padded = {0: tokens, -1: longest * (len(batch) + 1)}.get(
                width, width * (len(batch) + 1))
            if batch and self._costs.estimate_ms(len(batch) + 1, padded) > BATCH_CAP_MS:
                break
            batch.append(text)
        return batch


class Fifo(_Plain):
    """In the order of arrival, without padding."""

    name = "fifo"

    def _take(self) -> tuple[list[_Text], int]:
        return self._fill(self._waiting, 0), 0


class Shortest(_Plain):
    """By length, the shortest first, padded to the longest of the batch."""

    name = "sort-by-length"

    def _take(self) -> tuple[list[_Text], int]:
        batch = self._fill(sorted(self._waiting, key=lambda text: (text.tokens, text.order)), -1)
        return batch, max(text.tokens for text in batch)


class Buckets(_Plain):
    """The bucket of the oldest text, padded to its length."""

    name = "padded buckets"

    def _width(self, tokens: int) -> int:
        return bucket(tokens, LENGTHS)

    def _take(self) -> tuple[list[_Text], int]:
        width = self._width(self._waiting[0].tokens)
        batch = self._fill([text for text in self._waiting if self._width(text.tokens) == width],
                           width)
        return batch, width


def orders(costs: Sequence[tuple[int, int, float]], engines: int, fronts: int,
           max_wait_ms: float) -> list[Order]:
    """All four, ours first."""
    assert max_wait_ms < math.inf
    return [Ours(costs, engines, fronts, max_wait_ms), Fifo(costs, engines, max_wait_ms),
            Shortest(costs, engines, max_wait_ms), Buckets(costs, engines, max_wait_ms)]
