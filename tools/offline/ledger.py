"""Which part of the input an engine gets, what a death means, and what may be written (pure).

Parts are handed out in order and may end in any order. What a dead engine held runs again: whole
where somebody killed the engine; where it died of itself, in halves, so that a text that no engine
survives is at last alone and is failed.
"""

from typing import Any, NamedTuple

FAULTS_ALONE = 3     # deaths of itself with one text alone, then that text is failed
KILLS = 10           # a part whose engine is killed that often is treated as at fault


class Part(NamedTuple):
    """Items of chunk `chunk` from its `begin`th on; `first` is the number of its first item in the
    file."""

    chunk: int
    begin: int
    first: int
    items: list[Any]
    faults: int = 0
    kills: int = 0


class Ledger:
    """All that is running and waiting. Chunks are numbered from 0 as they come."""

    def __init__(self, window: int) -> None:
        """At most `window` chunks are known at once: what is done waits for those before it."""
        self._window = window
        self._waiting: list[Part] = []
        self._running: dict[int, list[Part]] = {}
        self._done: dict[int, dict[int, tuple[int, Any]]] = {}
        self._sizes: dict[int, int] = {}
        self._written = 0
        self._added = 0

    @property
    def has_room(self) -> bool:
        """Whether `add` may be called: nothing waits, and the window is not full."""
        return not self._waiting and self._added - self._written < self._window

    @property
    def is_empty(self) -> bool:
        """Whether all that was added is done and was taken by `ready`."""
        return self._added == self._written

    def running(self, engine: int) -> int:
        """How many parts an engine holds."""
        return len(self._running.get(engine, ()))

    def add(self, first: int, items: list[Any]) -> None:
        """A new chunk: not empty, its items numbered from `first` on."""
        self._waiting.append(Part(self._added, 0, first, items))
        self._sizes[self._added] = len(items)
        self._done[self._added] = {}
        self._added += 1

    def hand_out(self, engine: int) -> Part | None:
        """The part that an engine runs next, after those that it holds; the oldest first."""
        part = self.next_part()
        if part is None:
            return None
        self._waiting.remove(part)
        self._running.setdefault(engine, []).append(part)
        return part

    def next_part(self) -> Part | None:
        """What `hand_out` would give."""
        return min(self._waiting, key=lambda part: part[:2], default=None)

    def finished(self, engine: int) -> Part:
        """The engine's oldest part, which is done; `settle` is told its result."""
        return self._running[engine].pop(0)

    def died(self, engine: int, is_fault: bool) -> Part | None:
        """The engine is gone. Returns a part of one item that is given up: `settle` it."""
        held = self._running.pop(engine, [])
        if not held:
            return None
        self._waiting += held[1:]  # not begun
        part = held[0]
        part = part._replace(faults=part.faults + is_fault, kills=part.kills + (not is_fault))
        if part.kills >= KILLS:
            part = part._replace(faults=part.faults + 1, kills=0)
        half = len(part.items) // 2
        if part.faults and half:
            self._waiting += [
                Part(part.chunk, part.begin, part.first, part.items[:half]),
                Part(part.chunk, part.begin + half, part.first + half, part.items[half:])]
        elif part.faults >= FAULTS_ALONE:
            return part
        else:
            self._waiting.append(part)
        return None

    def settle(self, part: Part, result: Any) -> None:
        """The result of what `finished` or `died` returned; `ready` gives it back."""
        self._done[part.chunk][part.begin] = len(part.items), result

    def ready(self) -> list[Any]:
        """The results that are next in the order of the input, each given once."""
        results = []
        while self._written < self._added:
            done = self._done[self._written]
            if sum(count for count, _ in done.values()) < self._sizes[self._written]:
                break
            results += [result for _, (_, result) in sorted(done.items())]
            del self._done[self._written], self._sizes[self._written]
            self._written += 1
        return results
