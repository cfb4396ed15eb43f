"""Packing: every token once, its place, segment and neighbours right, whatever the lengths."""

import numpy as np
import pytest

from model.program import Row
from model.programs.packing import KEPT_TOKENS, KEY_STEP, cut, pack


def make_rows(sizes, seed=3):
    rng = np.random.default_rng(seed)
    return [Row(rng.integers(0, 1000, size), int(rng.integers(1, size + 1))) for size in sizes]


def test_pack_example_by_hand():
    packed = pack([Row(np.arange(18), 18), Row(np.array([7, 8, 9]), 2)], int)
    assert packed.ranks.tolist() == [1, 0] and packed.first.tolist() == [0, 3]
    assert packed.ids.tolist() == [7, 8, 9, *range(18)]
    assert packed.places.tolist() == [0, 1, 2, *range(18)]
    assert packed.segments.tolist() == [0, 0, 1] + [0] * 18
    assert (packed.counts, packed.lengths) == ([1, 1], [16, 32])
    assert packed.gather.tolist() == [0, 1, 2] + [2] * 13 + [*range(3, 21)] + [20] * 14
    assert packed.scatter.tolist() == [0, 1, 2] + [*range(16, 34)]
    assert np.isneginf(packed.mask).sum() == 13 + 14 and (packed.mask == 0).sum() == 21


@pytest.mark.parametrize("seed", range(20))
def test_pack_random_rows_finds_each_back(seed):
    rng = np.random.default_rng(seed)
    rows = make_rows(rng.integers(1, 70, rng.integers(1, 30)).tolist(), seed)
    packed = pack(rows, int)
    assert sorted(packed.ranks) == list(range(len(rows)))
    assert np.array_equal(packed.gather[packed.scatter], np.arange(len(packed.ids)))
    assert (packed.mask[packed.scatter] == 0).all()
    assert (packed.mask == 0).sum() == len(packed.ids)
    padded = np.repeat(packed.lengths, packed.counts)
    for text, row in enumerate(np.argsort(packed.ranks)):
        ids, split = rows[row]
        here = slice(packed.first[text], packed.first[text] + len(ids))
        assert np.array_equal(packed.ids[here], ids)
        assert np.array_equal(packed.places[here], np.arange(len(ids)))
        assert packed.segments[here].tolist() == [0] * split + [1] * (len(ids) - split)
        assert padded[text] == -(-len(ids) // KEY_STEP) * KEY_STEP
        places = slice(sum(padded[:text]), sum(padded[:text + 1]))
        assert ((packed.gather[places] >= here.start) & (packed.gather[places] < here.stop)).all()


def test_pack_filled_adds_tokens_and_texts_that_nobody_reads():
    rows = make_rows([3, 18, 5])
    plain, filled = pack(rows, int), pack(rows, lambda count: count + -count % 4)
    for name in ("ids", "places", "segments", "scatter"):
        assert getattr(filled, name).tolist() == getattr(plain, name).tolist() + [0, 0]
    assert filled.first.tolist() == plain.first.tolist() + [0]
    for name in ("ranks", "gather", "mask"):
        assert np.array_equal(getattr(filled, name), getattr(plain, name))


def test_cut_keeps_order_and_limit():
    rows = make_rows([5, 5, 5, 20, 1, 9, 1])
    parts = list(cut(rows, 10))
    assert [[len(row.ids) for row in part] for part in parts] == [[5, 5], [5], [20], [1, 9], [1]]
    assert [row for part in parts for row in part] == rows
    assert list(cut([], 10)) == []


def test_pack_kept_arrays_are_not_what_callers_get():
    rows = make_rows([7])
    packed = pack(rows, int)
    for name in ("places", "gather", "mask", "scatter"):
        getattr(packed, name)[:] = 5
    again = pack(rows, int)
    assert again.places.tolist() == again.scatter.tolist() == list(range(7))
    assert again.gather.tolist() == [*range(7)] + [6] * 9
    assert np.isneginf(again.mask).tolist() == [False] * 7 + [True] * 9


def test_pack_longer_texts_than_are_kept_are_packed_alike():
    rows = make_rows([KEPT_TOKENS + 30, KEPT_TOKENS, 5])
    packed = pack(rows, int)
    assert packed.first.tolist() == [0, 5, 5 + KEPT_TOKENS]
    assert np.array_equal(packed.gather[packed.scatter], np.arange(len(packed.ids)))
    assert (packed.mask == 0).sum() == len(packed.ids)
