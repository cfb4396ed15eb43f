"""Rows of many lengths as one run of tokens without padding, and the indices to work on it."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from model.program import Row

# Attention alone pads, each text to a multiple of this: its softmax takes two vectors of 8 or one
# of 16 floats at once and goes one by one for a rest (15 keys take 2.5 times as long as 16).
# The padded length depends on the text's own length only, so company changes no bit.
KEY_STEP = 16
# Up to this length what packing needs of a text is kept. numpy's calls on such short arrays cost
# microseconds each, and thrice that after a batch has filled the caches with weights.
KEPT_TOKENS = 512


class Packed(NamedTuple):
    """B texts with N tokens in all, shortest first, and padded to Q places for attention.

    N and B are filled up to a number of rows that the kernels take by tokens and texts that nobody
    reads: id 0 at place 0, and the first text again. `ids`, `places` and `segments` are int64 [N].
    `first` is the place of each text's first token, int64 [B]; `ranks[row]` is the text that the
    caller's row is, int64 without fillers. Texts of one padded length make a group: `counts` texts
    of `lengths` places each. `gather` (int64 [Q]) is the token for each padded place, `mask`
    (float32 [Q]) is 0 there or -inf where nothing is, and `scatter` (int64 [N]) is the padded place
    of each token (0 for a filler).
    """

    ids: np.ndarray
    places: np.ndarray
    segments: np.ndarray
    first: np.ndarray
    ranks: np.ndarray
    counts: list[int]
    lengths: list[int]
    gather: np.ndarray
    mask: np.ndarray
    scatter: np.ndarray


def pack(rows: Sequence[Row], fill: Callable[[int], int]) -> Packed:
    """`fill` says how many tokens, or texts, to make of so many.

    All arrays are parts of one, which few calls fill: what takes 17 µs in a loop takes 60 µs
    between two batches, for their weights have driven numpy's code out of the caches.

    Example: texts of 3 and 18 tokens have N = 21, first [0, 3], lengths [16, 32], Q = 48; filled up
    to multiples of four, N = 24 and first [0, 3, 0, 0].
    """
    sizes = [len(row.ids) for row in rows]
    order = sorted(range(len(rows)), key=sizes.__getitem__)
    sizes.sort()
    padded = [-(-size // KEY_STEP) * KEY_STEP for size in sizes]
    texts = [_text(size) for size in sizes]
    first = list(itertools.accumulate(sizes, initial=0))
    padded_first = list(itertools.accumulate(padded, initial=0))
    total, all_places = first.pop(), padded_first.pop()
    tokens = fill(total)
    ranks = [0] * len(rows)
    for text, row in enumerate(order):
        ranks[row] = text
    filled_first = first + [0] * (fill(len(rows)) - len(rows))
    places = [text.places for text in texts]
    block = np.zeros(4 * tokens + len(filled_first) + len(ranks) + all_places * 3 // 2, np.int64)
    fillers = block[:tokens - total]  # of the segments, which are zeros
    np.concatenate([
        *[rows[row].ids for row in order], fillers, *places, fillers, filled_first, ranks, *places,
        fillers, *[text.gather for text in texts], *[text.mask for text in texts]],
        out=block[tokens:])
    segments, ids, of_places, firsts, of_ranks, scatter, gather, mask = _parts(block, (
        tokens, tokens, tokens, len(filled_first), len(ranks), tokens, all_places,
        all_places // 2))
    for row, begin in zip(order, first):
        if rows[row].split < len(rows[row].ids):
            segments[begin + rows[row].split:begin + len(rows[row].ids)] = 1
    if len(rows) > 1:  # the two lie side by side
        begin = len(block) - len(mask) - len(gather) - tokens
        block[begin:-len(mask)] += np.repeat([*padded_first, 0, *first],
                                             [*sizes, tokens - total, *padded])
    runs = [(length, len(list(run))) for length, run in itertools.groupby(padded)]
    return Packed(ids, of_places, segments, firsts, of_ranks, [count for _, count in runs],
                  [length for length, _ in runs], gather, mask.view(np.float32), scatter)


def _parts(block: np.ndarray, sizes: Sequence[int]) -> list[np.ndarray]:
    return [block[end - size:end] for size, end in zip(sizes, itertools.accumulate(sizes))]


class _Text(NamedTuple):
    """What is the same for all texts of one length, counted from the text's first token: `places`
    int64 [n], `gather` int64 and `mask` float32 of its padded places, these taken two by two as
    int64."""

    places: np.ndarray
    gather: np.ndarray
    mask: np.ndarray


def _make_text(size: int) -> _Text:
    keys = np.arange(-(-size // KEY_STEP) * KEY_STEP)
    mask = np.where(keys < size, np.float32(0), np.float32(-np.inf))
    return _Text(keys[:size], np.minimum(keys, size - 1), mask.view(np.int64))


_kept_text = functools.lru_cache(maxsize=None)(_make_text)


def _text(size: int) -> _Text:
    """Of usual lengths made once: some 3 MB when all have been seen."""
    return _kept_text(size) if size <= KEPT_TOKENS else _make_text(size)


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
