"""Where a batch's texts begin and what their tokens add, against a slow walk over them."""

import numpy as np
import pytest

from model.native.texts import TEXTS, Places, emit_texts
from tests.guarded import run_code

VOCAB = 50
KINDS = [Places(VOCAB, 0, None), Places(VOCAB, 40, None), Places(VOCAB, 0, 0), Places(VOCAB, 0, 1)]
BATCHES = [[1], [7], [1, 1, 1], [16, 3, 40, 1], [512], list(range(1, 30))]


def run(places: Places, ids: np.ndarray, lengths: list[int], splits: list[int]) -> dict:
    arrays = {"ids": ids, "lengths": np.array(lengths), "splits": np.array(splits),
              "texts": np.array([len(lengths)]), "tokens": np.array([sum(lengths)]),
              "starts": np.full(len(lengths), -7), "where": np.full(sum(lengths), -7)}
    assert tuple(arrays) == TEXTS.names
    run_code(lambda a, _: emit_texts(a, "kernel", places), arrays)
    return arrays


def slow_places(places: Places, ids: list[int], split: int) -> list[int]:
    if places.pad_id is None:
        return [place + (places.segment_step if place >= split else 0)
                for place in range(len(ids))]
    found, following = [], places.pad_id + 1
    for number in ids:
        found.append(places.pad_id if number == places.pad_id else following)
        following += number != places.pad_id
    return found


@pytest.mark.parametrize("lengths", BATCHES, ids=str)
@pytest.mark.parametrize("places", KINDS, ids=str)
def test_texts_begin_and_tokens_stand_where_a_slow_walk_says(places, lengths):
    rng = np.random.default_rng(sum(lengths))
    ids = rng.integers(VOCAB, size=sum(lengths))
    ids[rng.random(len(ids)) < 0.3] = places.pad_id or 0
    splits = [int(rng.integers(length + 1)) for length in lengths]
    found = run(places, ids, lengths, splits)
    edges = np.cumsum([0, *lengths]).tolist()
    assert found["starts"].tolist() == edges[:-1]
    assert found["where"].tolist() == [place for begin, end, split in zip(edges, edges[1:], splits)
                                       for place in slow_places(places, ids[begin:end].tolist(),
                                                                split)]
    assert (found["texts"].item(), found["tokens"].item()) == (len(lengths), sum(lengths))


@pytest.mark.parametrize("number", [VOCAB, -1, 1 << 40, -1 << 63, (1 << 63) - 1])
@pytest.mark.parametrize("place", [0, 4, 9])
@pytest.mark.parametrize("places", KINDS, ids=str)
def test_id_that_no_word_has_leaves_nothing_to_do(places, place, number):
    ids = np.arange(10)
    ids[place] = number
    found = run(places, ids, [5, 5], [5, 5])
    assert (found["texts"].item(), found["tokens"].item()) == (0, 0)


def test_batch_without_texts_is_left_as_it_is():
    found = run(KINDS[1], np.zeros(0, np.int64), [], [])
    assert (found["texts"].item(), found["tokens"].item()) == (0, 0)
