"""A cache of what short chunks of text become, bounded by forgetting what is not asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

# Chunks up to this long are remembered. Full of the longest in the widest script they take some
# 16 MB; with English text 5 MB.
CACHED_CHARACTERS = 32
CACHED_CHUNKS = 1 << 15


Ids = TypeVar("Ids")      # tuples of ids, or their bytes


class ChunkCache(dict, Generic[Ids]):
    """Chunk → ids, computed when missing. What was not asked for since those that it holds were
    too many is forgotten when they are again."""

    def __init__(self, compute: Callable[[str], Ids]) -> None:
        super().__init__()
        self._compute = compute
        self._older: dict[str, Ids] = {}

    def __missing__(self, chunk: str) -> Ids:
        ids = self._older.pop(chunk, None)
        if ids is None:
            ids = self._compute(chunk)
            if len(chunk) > CACHED_CHARACTERS:
                return ids
        if len(self) + len(self._older) >= CACHED_CHUNKS:
            self._older = self.copy()
            self.clear()
        self[chunk] = ids
        return ids
