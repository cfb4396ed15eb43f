"""Jobs that came in one message and that nothing distinguishes, as one object (pure).

Most messages of a front are of requests with one text each, low, with no deadline, sent once, of as
many connections that have nothing else waiting. Their fair turns are the order in which they came,
they have waited equally long, and mostly they go into one batch. So they stay together, as columns
that travel as they are, and only what happens to one of them makes an Entry of each: a second job
of its connection, a cancel, a death, a turn beside other jobs.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING

from server.costs import CostModel
from server.dispatch import Answered, Measured
from server.messages import LOW, Done, LoneJobs, PackedBatch
from server.turns import QUEUED, Entry

if TYPE_CHECKING:       # it is of blocks itself
    from server.linked import Run


class Block:
    """Jobs in the order of their turns, QUEUED or RUNNING together. `held` is where the dispatcher
    finds the jobs of their front by number: it has the block, or what became of it.

    `order` and `ticket` are those of the first job, `entries` the jobs once they are told apart.
    """

    __slots__ = ("source", "held", "jobs", "lone", "costs", "arrived_at", "order", "tokens",
                 "cost_ms", "where", "virtual_ms", "ticket", "entries")

    priority = LOW

    def __init__(self, source: tuple[int, int], held: dict, lone: LoneJobs, costs: CostModel,
                 arrived_at: float, order: int) -> None:
        self.source, self.held, self.arrived_at, self.order = source, held, arrived_at, order
        self.costs, self.where, self.ticket, self.virtual_ms = costs, QUEUED, 0, 0.0
        self.entries: list[Entry] | None = None
        self._set(lone)

    def _set(self, lone: LoneJobs) -> None:
        self.lone, self.jobs, self.tokens = lone, lone.jobs, sum(lone.tokens)
        self.cost_ms = self.costs.share_ms(self.tokens, len(lone.jobs))

    def __len__(self) -> int:
        return len(self.jobs)

    def keys(self) -> Iterator[tuple[tuple[int, int], int]]:
        """(source, connection) of each."""
        return zip(repeat(self.source), self.lone.connections)

    def split(self, count: int) -> "Block":
        """The first `count` jobs as a block of their own; this one keeps those that are left."""
        lone, left = self.lone.cut(count)
        first = Block(self.source, self.held, lone, self.costs, self.arrived_at, self.order)
        first.ticket, first.virtual_ms = self.ticket, self.virtual_ms
        self.order += count
        self.ticket += count
        self._set(left)
        self.held.update(dict.fromkeys(first.jobs, first))
        return first

    def expand(self) -> list[Entry]:
        """The jobs one by one, from now on."""
        if self.entries is None:
            lone, at, self.entries = self.lone, 0, []
            for number, (group, connection, job, tokens, split, size) in enumerate(zip(
                    lone.groups, lone.connections, lone.jobs, lone.tokens, lone.splits,
                    lone.sizes)):
                self.entries.append(Entry(
                    self.source, job, group, connection, LOW, math.inf, self.arrived_at,
                    self.order + number, tokens, split, lone.ids[at:at + size],
                    self.costs.share_ms(tokens), 0, False, where=self.where))
                at += size
            self.held.update(zip(lone.jobs, self.entries))
        return self.entries


def batch_of(number: int, blocks: Sequence[Block]) -> PackedBatch:
    """What an engine gets for these blocks."""
    if len(blocks) == 1:
        lone = blocks[0].lone
        return PackedBatch(number, LOW, lone.sizes, lone.splits, lone.ids)
    sizes: list[int] = []
    splits: list[int] = []
    for block in blocks:
        sizes += block.lone.sizes
        splits += block.lone.splits
    return PackedBatch(number, LOW, sizes, splits, b"".join([block.lone.ids for block in blocks]))


def answers_of(run: "Run", kind: int, index: int, done: Done) -> list[Answered | Measured]:
    """What is to be told of a batch of blocks that an engine has answered; they are over."""
    told: list[Answered | Measured] = []
    at, width, queued = 0, 4 * done.classes, []
    for block in run.blocks:
        jobs, held = block.jobs, block.held
        end = at + width * len(jobs)
        waited_s = run.sent_at - block.arrived_at
        waited_us = int(waited_s * 1e6)
        told.append(Answered(block.source, jobs, kind, index, run.texts,
                             waited_us if waited_us > 0 else 0, done.infer_us, width,
                             done.logits[at:end]))
        queued.append((waited_s, len(jobs)))
        at = end
        for job in jobs:
            del held[job]
    told.append(Measured(kind, run.texts, run.tokens, done.infer_us / 1e6, ([], queued),
                         done.padding))
    return told
