"""An engine as the dispatcher sees it: what it said of itself, and its batches (pure)."""

import itertools
import math
from collections import deque
from dataclasses import dataclass

from server.messages import CPU, ROW_LIMIT_BYTES, EngineHello
from server.turns import Entry


@dataclass(slots=True, eq=False)
class Run:
    """A batch at an engine, sent at `sent_at` in monotonic seconds; its `priority` is the lane
    where engines have lanes."""

    number: int
    entries: list[Entry]
    tokens: int
    cost_ms: float
    priority: int
    sent_at: float


@dataclass(slots=True, eq=False)
class LinkedEngine:
    """An engine that has said HELLO; `runs` are its batches, the first of each lane under way."""

    hello: EngineHello
    runs: deque[Run]
    free_at: float = -math.inf  # when it had finished its last batch
    is_leaving: bool = False
    is_cold: bool = False       # it has run nothing since it was parked

    @property
    def key(self) -> tuple[int, int]:
        return self.hello.index, self.hello.incarnation

    @property
    def most_rows(self) -> int:
        """Of a batch: their logits must fit into one message."""
        return max(ROW_LIMIT_BYTES // (4 * self.hello.classes), 1)

    def find(self, number: int) -> Run | None:
        """The batch of that number; None for one that it has not."""
        return next((run for run in self.runs if run.number == number), None)

    def ahead_of(self, run: Run) -> int:
        """How many batches must be answered before this one: a GPU's high lane overtakes its low
        one, but nothing in a lane overtakes."""
        before = itertools.takewhile(lambda other: other is not run, self.runs)
        return sum(self.hello.kind == CPU or other.priority == run.priority for other in before)

    def lane(self, priority: int) -> int:
        """How many batches of a class it has."""
        return sum(run.priority == priority for run in self.runs)
