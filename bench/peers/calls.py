"""How a set of texts is cut into the calls of an engine that pads: which rows, how wide (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from model.grid import bucket, buckets


class Call(NamedTuple):
    """`rows` are indices into the texts; `width` is what they are padded to, in tokens."""

    rows: list[int]
    width: int


def cut_calls(lengths: Sequence[int], mode: str, max_tokens: int) -> list[Call]:
    """The calls of a mode, for texts of so many tokens each:

    whole      all in one call, in the order given, padded to the longest
    alone      one text a call, no padding
    buckets    one call for the texts of each bucket of model.grid, padded to it
    buckets-N  the same, in calls of at most N tokens with their padding
    N          shortest first, padded to the longest, at most N tokens a call with their padding

    Example: lengths [3, 20, 5] in buckets are the calls ([0, 2], 16) and ([1], 32).
    """
    if mode == "whole":
        return [Call(list(range(len(lengths))), max(lengths))]
    if mode == "alone":
        return [Call([row], length) for row, length in enumerate(lengths)]
    kind, _, limit = mode.rpartition("-")
    in_buckets = "buckets" in (kind, mode)
    most = int(limit) if limit != "buckets" else max_tokens * len(lengths)
    sizes = buckets(max_tokens)
    calls: list[Call] = []
    for row in sorted(range(len(lengths)), key=lambda row: lengths[row]):
        width = bucket(lengths[row], sizes) if in_buckets else lengths[row]
        if (calls and width * (len(calls[-1].rows) + 1) <= most
                and (not in_buckets or width == calls[-1].width)):
            calls[-1] = Call([*calls[-1].rows, row], width)
        else:
            calls.append(Call([row], width))
    return calls
