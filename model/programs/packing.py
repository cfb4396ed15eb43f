"""Rows of many lengths as one run of tokens without padding, and the indices to work on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from model.program import Row

# Attention alone pads, each text to a multiple of this: its softmax takes two vectors of 8 or one
# of 16 floats at once and goes one by one for a rest (15 keys take 2.5 times as long as 16).
# The padded length depends on the text's own length only, so company changes no bit.
KEY_STEP = 16


@dataclass(frozen=True)
class Packed:
    """B texts with N tokens in all, shortest first, and padded to Q places for attention.

    N and B are filled up to a number of rows that the kernels take by tokens and texts that nobody
    reads: id 0 at place 0, and the first text again. `ids`, `places` and `segments` are int64 [N].
    `first` is the place of each text's first token, int64 [B]; `order[b]` is the caller's row that
    text b is, without the fillers. Texts of one padded length make a group: `counts` texts of
    `lengths` places each. `gather` (int64 [Q]) is the token for each padded place, `mask` (float32
    [Q]) is 0 there or -inf where nothing is, and `scatter` (int64 [N]) is the padded place of each
    token (0 for a filler).
    """

    ids: np.ndarray
    places: np.ndarray
    segments: np.ndarray
    first: np.ndarray
    order: np.ndarray
    counts: list[int]
    lengths: list[int]
    gather: np.ndarray
    mask: np.ndarray
    scatter: np.ndarray


def pack(rows: Sequence[Row], fill: Callable[[int], int]) -> Packed:
    """`fill` says how many tokens, or texts, to make of so many.

    Example: texts of 3 and 18 tokens have N = 21, first [0, 3], lengths [16, 32], Q = 48; filled up
    to multiples of four, N = 24 and first [0, 3, 0, 0].
    """
    sizes = np.array([len(row.ids) for row in rows])
    order = np.argsort(sizes, kind="stable")
    sizes = sizes[order]
    ends = np.cumsum(sizes)
    first = ends - sizes
    ids = np.concatenate([rows[row].ids for row in order]).astype(np.int64)
    splits = np.array([rows[row].split for row in order])
    places = np.arange(len(ids)) - np.repeat(first, sizes)

    padded = -(-sizes // KEY_STEP) * KEY_STEP
    padded_first = np.cumsum(padded) - padded
    keys = np.arange(int(padded.sum())) - np.repeat(padded_first, padded)
    last = np.repeat(sizes - 1, padded)
    lengths, counts = np.unique(padded, return_counts=True)
    segments = (places >= np.repeat(splits, sizes)).astype(np.int64)
    return Packed(
        ids=_filled(ids, fill), places=_filled(places, fill),
        segments=_filled(segments, fill), first=_filled(first, fill), order=order,
        counts=counts.tolist(), lengths=lengths.tolist(),
        gather=np.repeat(first, padded) + np.minimum(keys, last),
        mask=np.where(keys <= last, np.float32(0), np.float32(-np.inf)),
        scatter=_filled(np.repeat(padded_first, sizes) + places, fill))


def _filled(values: np.ndarray, fill: Callable[[int], int]) -> np.ndarray:
    """With zeros behind."""
    missing = fill(len(values)) - len(values)
    return np.concatenate([values, np.zeros(missing, values.dtype)]) if missing else values


def cut(rows: Sequence[Row], tokens: int) -> Iterator[Sequence[Row]]:
    """Cuts rows into runs of at most `tokens` tokens; a longer row is a run of its own."""
    begin, held = 0, 0
    for end, row in enumerate(rows):
        if end > begin and held + len(row.ids) > tokens:
            yield rows[begin:end]
            begin, held = end, 0
        held += len(row.ids)
    if begin < len(rows):
        yield rows[begin:]
