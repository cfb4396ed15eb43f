"""A cache of what short chunks of text become, bounded by forgetting what is not asked for."""

from __future__ import annotations

from collections.abc import Callable

# Chunks up to this long are remembered. Full of the longest in the widest script, both generations
# take some 16 MB; with English text 5 MB.
CACHED_CHARACTERS = 32
CACHED_CHUNKS = 1 << 14


class ChunkCache(dict):
    """Chunk → ids, computed when missing. Two generations: what was not asked for while one of
    them filled is forgotten."""

    def __init__(self, compute: Callable[[str], tuple[int, ...]]) -> None:
        super().__init__()
        self._compute = compute
        self._older: dict[str, tuple[int, ...]] = {}

    def __missing__(self, chunk: str) -> tuple[int, ...]:
        ids = self._older.get(chunk)
        if ids is None:
            ids = self._compute(chunk)
            if len(chunk) > CACHED_CHARACTERS:
                return ids
        if len(self) >= CACHED_CHUNKS:
            self._older = self.copy()
            self.clear()
        self[chunk] = ids
        return ids
