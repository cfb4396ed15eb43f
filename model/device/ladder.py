"""Which graphs there are, and which of them takes which texts (pure).

A graph has a fixed shape, `batch` texts of `length` tokens, so texts are padded to the next one
that is captured. Batch sizes go in fours: finer steps would waste less padding and cost more
memory, some 24 MiB a graph in the driver alone.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import NamedTuple

BATCHES = (1, 4, 16, 64, 256)
# Of the high lane: it is for few texts at once, and its pool is memory that the low one has not.
HIGH_BATCHES = (1, 4, 16)
HIGH_SHARE = 0.25
# What vLLM reports of large graphs, beside the pool.
GRAPH_BYTES = 24 << 20


class Shape(NamedTuple):
    """`batch` texts of `length` tokens each."""

    length: int
    batch: int

    @property
    def tokens(self) -> int:
        return self.length * self.batch


def shapes(buckets: Sequence[int], token_cap: int, budget: int = 0,
           token_bytes: int = 0, batches: Sequence[int] = BATCHES) -> list[Shape]:
    """The shapes to capture, largest first. Every bucket has one of batch 1, whatever the cap.

    `budget` (bytes; 0: none) bounds the pool, `token_bytes` for each token of the largest, and
    GRAPH_BYTES a graph: the largest batches go first. Example: shapes([16, 32], 64) is
    (16, 4), (32, 1), (16, 1).
    """
    found = [Shape(length, batch) for length in buckets for batch in batches
             if batch == 1 or length * batch <= token_cap]
    found.sort(key=lambda shape: (-shape.tokens, -shape.length))
    while budget and found and needed(found, token_bytes) > budget:
        large = next((shape for shape in found if shape.batch > 1), None)
        if large is None:
            break
        found.remove(large)
    return found


def lane_shapes(buckets: Sequence[int], token_cap: int, budget: int,
                token_bytes: int) -> tuple[list[Shape], list[Shape]]:
    """(shapes of the low lane, of the high lane) within one `budget`; each lane has a pool."""
    high = shapes(buckets, int(token_cap * HIGH_SHARE), max(int(budget * HIGH_SHARE), 1),
                  token_bytes, HIGH_BATCHES)
    left = max(budget - needed(high, token_bytes), 1)
    return shapes(buckets, token_cap, left, token_bytes), high


def needed(found: Sequence[Shape], token_bytes: int) -> int:
    """Bytes that the graphs of these shapes are expected to take."""
    largest = max((shape.tokens for shape in found), default=0)
    return largest * token_bytes + GRAPH_BYTES * len(found)


class Part(NamedTuple):
    """One launch: `rows` are indices of the caller's texts, at most `shape.batch`."""

    shape: Shape
    rows: list[int]


def parts(lengths: Sequence[int], known: Sequence[Shape]) -> list[Part]:
    """Cuts texts of these lengths into launches, longest texts first; each text is in one.

    Texts of one bucket go together; where the last of them leave places of their batch empty,
    shorter ones fill those, for an empty place costs as much as a full one. Raises ValueError
    for a text that is longer than every shape.
    """
    sizes: dict[int, list[int]] = {}
    for shape in known:
        sizes.setdefault(shape.length, []).append(shape.batch)
    buckets = sorted(sizes)
    for batches in sizes.values():
        batches.sort()
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    found, begin = [], 0
    while begin < len(order):
        longest = lengths[order[begin]]
        place = bisect.bisect_left(buckets, longest)
        if place == len(buckets):
            raise ValueError(f"a text has {longest} tokens, the model takes "
                             f"{buckets[-1] if buckets else 0}")
        shorter = buckets[place - 1] if place else 0
        batches = sizes[buckets[place]]
        same = begin
        while same < len(order) and same - begin < batches[-1] and lengths[order[same]] > shorter:
            same += 1
        batch = batches[bisect.bisect_left(batches, same - begin)]
        end = min(begin + batch, len(order))
        found.append(Part(Shape(buckets[place], batch), order[begin:end]))
        begin = end
    return found
