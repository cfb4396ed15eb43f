"""Engines as the scheduler sees them: what each runs, and until when it ran (pure)."""

import math
from collections import deque
from dataclasses import dataclass

from server.messages import EngineHello
from server.turns import Entry


@dataclass(slots=True, eq=False)
class Run:
    """A batch at an engine; `sent_at` in monotonic seconds."""

    number: int
    entries: list[Entry]
    tokens: int
    cost_ms: float
    sent_at: float


@dataclass(slots=True, eq=False)
class Engine:
    """A linked engine; `runs` in the order sent, the first of them runs."""

    hello: EngineHello
    runs: deque[Run]
    free_at: float = -math.inf  # when it had finished its last batch
    is_leaving: bool = False
    is_cold: bool = False       # it has run nothing since it was parked

    @property
    def key(self) -> tuple[int, int]:
        return self.hello.index, self.hello.incarnation
