"""Length buckets: the sizes that token counts are rounded up to (pure).

A GPU captures one graph a bucket; on CPU cores programs need no padding, and the bucket is what
metrics and the X-Bucket header say.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence

SMALLEST = 16


def buckets(max_tokens: int) -> list[int]:
    """All buckets of a model that takes `max_tokens`, ascending; the last one is `max_tokens`.

    16, then 2^n and 1.5 · 2^n from 32 on. Example: buckets(128) is [16, 32, 48, 64, 96, 128],
    buckets(20) is [16, 20].
    """
    if max_tokens < 1:
        raise ValueError(f"a model that takes {max_tokens} tokens takes no text")
    sizes, power = [SMALLEST], 2 * SMALLEST
    while sizes[-1] < max_tokens:
        sizes += [power, power + power // 2]
        power *= 2
    return [size for size in sizes if size < max_tokens] + [max_tokens]


def bucket(tokens: int, sizes: Sequence[int]) -> int:
    """The smallest of the ascending `sizes` that holds `tokens`; ValueError above the last."""
    place = bisect.bisect_left(sizes, tokens)
    if place == len(sizes):
        raise ValueError(f"{tokens} tokens are more than the largest bucket, {sizes[-1]}")
    return sizes[place]
