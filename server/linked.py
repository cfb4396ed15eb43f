"""An engine as the dispatcher sees it: what it said of itself, and what it runs (pure)."""

from collections import deque
from dataclasses import dataclass

from server.messages import EngineHello
from server.turns import Entry


@dataclass(slots=True, eq=False)
class Run:
    """A batch at an engine."""

    number: int
    entries: list[Entry]
    tokens: int
    cost_ms: float


@dataclass(slots=True, eq=False)
class LinkedEngine:
    """An engine that has said HELLO; `runs` are its batches, the first of them under way."""

    hello: EngineHello
    runs: deque[Run]
    is_leaving: bool = False
    is_cold: bool = False       # it has run nothing since it was parked

    @property
    def key(self) -> tuple[int, int]:
        return self.hello.index, self.hello.incarnation
