"""A program on a lane of a device: a graph for each shape, and a ring of staging slots before them.

While the device computes one launch the host fills the slot of the next; a slot is written again
only after its event. On the low lane a batch is launched only when the one before it is done, so
that a batch of the high lane never waits behind more than one; what the host can do ahead is done
by then. Nothing is allocated once it serves. Before that, every graph is compared
with the same function run as it is, over outputs that were poisoned: a graph whose output is not
written, or is another's, is found here and not by a client.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from model.device import staging
from model.device.guard import obstacle
from model.device.ladder import Part, Shape, parts
from model.device.port import Event, Graph, Lane, OutOfMemory, Port
from model.program import Row

SLOTS = 3
# How far a graph may be from the same kernels without one: only their order of sums may differ.
TOLERANCES = {torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 1e-1}
POISON = float("nan")
# A launch that takes longer than any of these is not coming back.
DUE_S, DUE_FACTOR = 2.0, 20.0
WAIT_S = 0.0001

# (ids, places, lengths, starts, key_starts: int32 tensors on the device, L) → logits [B, C].
Network = Callable[..., Tensor]


class CheckFailed(Exception):
    """A graph does not compute what its function does; the message says which."""


@dataclass(eq=False)
class _Slot:
    """Staging of one launch. `part` is None while it is free; `padding` counts its tokens that are
    no text's."""

    input: Tensor
    output: Tensor
    begin: Event
    end: Event
    part: Part | None = None
    ticket: _Ticket | None = None
    padding: int = 0


@dataclass(eq=False)
class _Ticket:
    """A submitted batch: its logits as far as they are there, and what the device took for them."""

    number: int
    logits: np.ndarray
    missing: int
    device_ms: float = 0.0


@dataclass(frozen=True)
class Finished:
    """A batch that is done: float32 [B, C], and the device's own time for it."""

    number: int
    logits: np.ndarray
    device_ms: float


@dataclass
class Counts:
    """What was done since the last look, for the metrics."""

    replays: int = 0
    eager: int = 0
    padding: int = 0
    retries: int = 0


@dataclass(eq=False)
class _Launch:
    """A shape's function, its graph (None: it runs as it is) and what it takes."""

    work: Callable[[], Tensor]
    graph: Graph | None = None
    ms: float = 0.0


class GraphProgram:
    """A model.program.Program that can also be fed ahead: `submit`, then `poll`.

    `known` are the shapes, largest first; `settings` and `max_tokens` are the card's. Of the port
    it uses one lane, `port.high` where `is_high`.
    """

    def __init__(self, port: Port, network: Network, dtype: torch.dtype, known: Sequence[Shape],
                 settings: dict, labels: int, max_tokens: int, is_high: bool = False) -> None:
        self.port, self.dtype, self.shapes = port, dtype, list(known)
        self.is_high = is_high
        self.lane: Lane = port.high if is_high else port.low
        self.counts = Counts()
        self.token_cap = max(shape.tokens for shape in known)
        self._network = network
        self._vocab, self._max_tokens = settings["vocab"], max_tokens
        self._positions = settings["max_position_embeddings"]
        self._labels = labels
        most = max(staging.size(shape) for shape in known)
        rows = max(shape.batch for shape in known)
        self._input = port.empty((most,), torch.int32)
        self._output = port.empty((rows * labels,), torch.float32)
        self._launches = {shape: _Launch(self._work(shape)) for shape in known}
        self._slots = [_Slot(port.staging(most, torch.int32),
                             port.staging(rows * labels, torch.float32),
                             self.lane.event(), self.lane.event()) for _ in range(SLOTS)]
        self._waiting: deque[tuple[_Ticket, Part, list[Row]]] = deque()
        self._filled: deque[_Slot] = deque()
        self._running: deque[_Slot] = deque()
        self._head_since = 0.0

    def _work(self, shape: Shape) -> Callable[[], Tensor]:
        """The function of a shape, over the static buffers; what it keeps is allocated here."""
        port, tokens, labels = self.port, shape.tokens, self._labels
        starts = port.upload(torch.arange(shape.batch + 1, dtype=torch.int32))
        key_starts = port.upload(torch.arange(shape.batch + 1, dtype=torch.int32) * shape.length)
        ids, places, lengths = self._input[:staging.size(shape)].split(
            [tokens, tokens, shape.batch])
        output = self._output[:shape.batch * labels].view(shape.batch, labels)

        def work() -> Tensor:
            logits = self._network(ids, places, lengths, starts, key_starts, shape.length)
            output.copy_(logits)
            return logits

        return work

    # ---- preparation ------------------------------------------------------------------------

    def prepare(self, eager: frozenset[Shape] = frozenset(), replays: int = 1) -> None:
        """Warms and captures all shapes but the `eager` ones, and compares each, timing it so
        often; the port may then be sealed. Raises CheckFailed, or what the port raises."""
        for shape in self.shapes:
            launch = self._launches[shape]
            # Whatever a launch on the host's side could have left there is a text of zeros.
            self._put(self._slots[0], shape, [])
            self.lane.warm(launch.work)
            if shape not in eager:
                launch.graph = self.lane.capture(launch.work, shape.tokens)
        for shape in self.shapes:
            self._compare(shape)
            for _ in range(replays - 1):
                self._time(shape)

    def obstacle(self, shape: Shape) -> str:
        """Why this shape can have no graph; empty where it can. Runs it once, over zeros."""
        self._put(self._slots[0], shape, [])
        self.lane.wait()
        return obstacle(self._launches[shape].work)

    def _compare(self, shape: Shape) -> None:
        slot, launch = self._slots[0], self._launches[shape]
        rng = np.random.default_rng(shape.tokens)
        rows = []
        for _ in range(shape.batch):
            length = int(rng.integers(1, shape.length + 1))
            rows.append(Row(rng.integers(0, self._vocab, length), length))
        count = shape.batch * self._labels
        self._put(slot, shape, rows)
        self.lane.run(launch.work)
        self.lane.get(slot.output[:count], self._output[:count])
        self.lane.wait()
        wanted = slot.output[:count].numpy().copy()
        slot.output.fill_(POISON)
        self.lane.put(self._output, slot.output)
        self.lane.wait()
        launch.ms = math.inf
        self._time(shape)
        found = slot.output[:count].numpy()
        if not np.isfinite(wanted).all():
            raise CheckFailed(f"{shape.batch} × {shape.length} gives logits that are not finite")
        worst = np.abs(found - wanted) / np.maximum(np.abs(wanted), 1)
        if not (worst <= TOLERANCES[self.dtype]).all():     # a NaN is not
            raise CheckFailed(f"the graph of {shape.batch} × {shape.length} gives other logits "
                              "than its function")

    def _time(self, shape: Shape) -> None:
        """Once more over the input that is there; the least time counts."""
        slot, launch, count = self._slots[0], self._launches[shape], shape.batch * self._labels
        slot.begin.record()
        self._go(launch, shape)
        self.lane.get(slot.output[:count], self._output[:count])
        slot.end.record()
        self._wait_for(slot.end, shape)
        launch.ms = min(launch.ms, slot.end.ms_since(slot.begin))

    def _put(self, slot: _Slot, shape: Shape, rows: Sequence[Row]) -> None:
        count = staging.size(shape)
        staging.fill(slot.input.numpy()[:count], shape, rows, self._positions)
        self.lane.put(self._input[:count], slot.input[:count])

    def _wait_for(self, event: Event, shape: Shape) -> None:
        deadline = time.monotonic() + DUE_S + DUE_FACTOR * shape.tokens / 1e3
        while not event.is_done():
            if time.monotonic() > deadline:
                raise CheckFailed(f"the graph of {shape.batch} × {shape.length} does not end")
            time.sleep(WAIT_S)

    def _go(self, launch: _Launch, shape: Shape) -> None:
        if launch.graph is None:
            self.lane.run(launch.work, shape.tokens)
            self.counts.eager += 1
        else:
            self.lane.replay(launch.graph)
            self.counts.replays += 1

    # ---- service ----------------------------------------------------------------------------

    def submit(self, number: int, rows: Sequence[Row]) -> None:
        """Takes a batch; it is launched as far as slots are free. Raises ValueError for a text
        that the model does not take, and then nothing of the batch is done."""
        staging.check(rows, self._vocab, self._max_tokens)
        found = parts([len(row.ids) for row in rows], self.shapes)
        ticket = _Ticket(number, np.empty((len(rows), self._labels), np.float32), len(found))
        self._waiting.extend((ticket, part, [rows[row] for row in part.rows]) for part in found)
        self._launch()

    def poll(self) -> list[Finished]:
        """What is done by now, in order of submission; launches what waited for a slot."""
        finished = []
        while self._running and self._running[0].end.is_done():
            slot = self._running.popleft()
            self._head_since = time.monotonic()
            part, ticket = slot.part, slot.ticket
            slot.part = slot.ticket = None
            count = len(part.rows)
            ticket.logits[part.rows] = \
                slot.output[:count * self._labels].numpy().reshape(count, self._labels)
            ticket.device_ms += slot.end.ms_since(slot.begin)
            ticket.missing -= 1
            if not ticket.missing:
                finished.append(Finished(ticket.number, ticket.logits, ticket.device_ms))
            self._launch()
        return finished

    def _launch(self) -> None:
        """Launches what may go, and fills free slots ahead of it."""
        while True:
            if self._filled and self._may_go(self._filled[0].ticket):
                self._enqueue(self._filled.popleft())
            elif self._waiting and len(self._filled) + len(self._running) < SLOTS:
                self._fill(*self._waiting.popleft())
            else:
                return

    def _may_go(self, ticket: _Ticket) -> bool:
        return self.is_high or not self._running or self._running[-1].ticket is ticket

    def _fill(self, ticket: _Ticket, part: Part, rows: Sequence[Row]) -> None:
        slot = next(slot for slot in self._slots if slot.part is None)
        slot.part, slot.ticket = part, ticket
        count = staging.size(part.shape)
        staging.fill(slot.input.numpy()[:count], part.shape, rows, self._positions)
        slot.padding = part.shape.tokens - sum(len(row.ids) for row in rows)
        self._filled.append(slot)

    def _enqueue(self, slot: _Slot) -> None:
        shape = slot.part.shape
        if not self._running:
            self._head_since = time.monotonic()
        count = staging.size(shape)
        self.lane.put(self._input[:count], slot.input[:count])
        slot.begin.record()
        try:
            self._go(self._launches[shape], shape)
        except OutOfMemory:
            # Once more, with what torch holds and does not use given back.
            self.counts.retries += 1
            self.port.trim()
            self._go(self._launches[shape], shape)
        count = len(slot.part.rows) * self._labels
        self.lane.get(slot.output[:count], self._output[:count])
        slot.end.record()
        self._running.append(slot)
        self.counts.padding += slot.padding

    @property
    def is_busy(self) -> bool:
        return bool(self._running or self._filled or self._waiting)

    def due(self) -> float:
        """When the launch that runs must have ended, in monotonic seconds; infinity for none."""
        if not self._running:
            return float("inf")
        launch = self._launches[self._running[0].part.shape]
        return self._head_since + max(DUE_S, DUE_FACTOR * launch.ms / 1e3)

    def remaining_s(self) -> float:
        """How long the launch that runs will still take, by what it took before."""
        if not self._running:
            return 0.0
        launch = self._launches[self._running[0].part.shape]
        return max(self._head_since + launch.ms / 1e3 - time.monotonic(), 0.0)

    def take_counts(self) -> Counts:
        counts, self.counts = self.counts, Counts()
        return counts

    # ---- a program like any other -------------------------------------------------------------

    def run(self, rows: Sequence[Row]) -> np.ndarray:
        """Logits, float32 [B, C]; alone, not between `submit` and `poll`."""
        self.submit(0, rows)
        while True:
            finished = self.poll()
            if finished:
                return finished[0].logits
            time.sleep(WAIT_S)

    def warm(self) -> None:
        """`prepare` did."""

    def idle(self) -> None:
        """Memory is only given back where the device is short of it."""

    def costs(self) -> list[tuple[int, int, float]]:
        """(texts, tokens, ms) of each shape, as measured when it was compared."""
        return [(shape.batch, shape.tokens, launch.ms)
                for shape, launch in self._launches.items()]

    @property
    def captured(self) -> int:
        """How many shapes have a graph."""
        return sum(launch.graph is not None for launch in self._launches.values())
