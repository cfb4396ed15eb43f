"""An engine as the dispatcher sees it: what it said of itself, and its batches (pure)."""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from server.blocks import Block
from server.messages import CPU, ROW_LIMIT_BYTES, EngineHello
from server.turns import Entry

# A client that has its answer sends its next text within so long, for each text of the batch.
RETURN_MS = 0.25
# Waiting for them is worth at most this share of a batch, and only where a batch is of so many.
MOST_HELD, FEWEST_HELD = 0.4, 4
# Enough of them are back.
BACK = 0.8


class Run:
    """A batch at an engine, sent at `sent_at` in monotonic seconds; its `priority` is the lane
    where engines have lanes. `cost_ms` is what the batch takes, `work_ms` the sum of what its
    `texts` jobs add to one. It is of `blocks`, or of jobs that were told apart before."""

    __slots__ = ("number", "texts", "tokens", "cost_ms", "work_ms", "priority", "sent_at",
                 "blocks", "_entries")

    def __init__(self, number: int, jobs: Sequence[Entry] | Sequence[Block], texts: int,
                 tokens: int, cost_ms: float, work_ms: float, priority: int,
                 sent_at: float) -> None:
        self.number, self.texts, self.tokens = number, texts, tokens
        self.cost_ms, self.work_ms = cost_ms, work_ms
        self.priority, self.sent_at = priority, sent_at
        self.blocks, self._entries = (jobs, None) if type(jobs[0]) is Block else ((), jobs)

    @property
    def is_of_blocks(self) -> bool:
        """Whether nothing has happened to any one of its jobs."""
        for block in self.blocks:
            if block.entries is not None:
                return False
        return self._entries is None

    @property
    def entries(self) -> Sequence[Entry]:
        """The jobs one by one."""
        if self._entries is None:
            self._entries = [entry for block in self.blocks for entry in block.expand()]
        return self._entries


@dataclass(slots=True, eq=False)
class LinkedEngine:
    """An engine that has said HELLO; `runs` are its batches, the first of each lane under way."""

    hello: EngineHello
    runs: deque[Run]
    free_at: float = -math.inf  # when it had finished its last batch, of so many texts
    last_texts: int = 0
    last_ms: float = 0.0
    is_leaving: bool = False
    is_cold: bool = False       # it has run nothing since it was parked

    @property
    def key(self) -> tuple[int, int]:
        return self.hello.index, self.hello.incarnation

    @property
    def most_rows(self) -> int:
        """Of a batch: their logits must fit into one message."""
        return max(ROW_LIMIT_BYTES // (4 * self.hello.classes), 1)

    def holds_until(self, queued: int) -> float:
        """Until when to give it nothing though it is free and `queued` texts wait, monotonic s.

        Clients that wait for answers come back together, but the first of them a moment before the
        others: without this a large batch is followed by one of two texts, and everybody waits for
        both. Small batches are of clients who do not wait, or of few.
        """
        held_ms = RETURN_MS * self.last_texts
        if (self.last_texts < FEWEST_HELD or held_ms > MOST_HELD * self.last_ms
                or queued >= BACK * self.last_texts):
            return -math.inf
        return self.free_at + held_ms / 1e3

    def find(self, number: int) -> Run | None:
        """The batch of that number; None for one that it has not."""
        for run in self.runs:
            if run.number == number:
                return run
        return None

    def ahead_of(self, run: Run) -> int:
        """How many batches must be answered before this one: a GPU's high lane overtakes its low
        one, but nothing in a lane overtakes."""
        count = 0
        for other in self.runs:
            if other is run:
                break
            count += self.hello.kind == CPU or other.priority == run.priority
        return count

    def lane(self, priority: int) -> int:
        """How many batches of a class it has."""
        return sum(run.priority == priority for run in self.runs)
