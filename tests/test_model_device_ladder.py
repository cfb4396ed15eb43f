"""Which graphs there are, and that every text goes into one that holds it, with little waste."""

import random

import pytest

from model.device.ladder import BATCHES, GRAPH_BYTES, Shape, needed, parts, shapes
from model.grid import buckets


@pytest.mark.parametrize("max_tokens, cap", [(512, 16384), (512, 256), (20, 64), (1, 1)])
def test_ladder_shapes_come_largest_first_and_every_bucket_has_one(max_tokens, cap):
    found = shapes(buckets(max_tokens), cap)
    assert [shape.tokens for shape in found] == sorted((s.tokens for s in found), reverse=True)
    assert {shape.length for shape in found if shape.batch == 1} == set(buckets(max_tokens))
    assert all(shape.tokens <= cap or shape.batch == 1 for shape in found)
    assert len(set(found)) == len(found)


def test_ladder_example_of_the_docstring():
    assert shapes([16, 32], 64) == [Shape(16, 4), Shape(32, 1), Shape(16, 1)]


def test_ladder_budget_takes_the_largest_batches_first():
    sizes, whole = buckets(512), shapes(buckets(512), 16384)
    for share in (0.9, 0.5, 0.2, 0.0001):
        budget = int(needed(whole, 7680) * share)
        found = shapes(sizes, 16384, budget, 7680)
        kept = [shape for shape in whole if shape in found]
        assert found == kept
        assert needed(found, 7680) <= budget or all(shape.batch == 1 for shape in found)
    assert needed([Shape(16, 4)], 10) == 640 + GRAPH_BYTES


def test_ladder_parts_hold_each_text_once_in_a_shape_that_fits():
    known = shapes(buckets(512), 1024)
    for seed in range(300):
        rng = random.Random(seed)
        lengths = [min(int(rng.expovariate(1 / 40)) + 1, 512) for _ in range(rng.randint(1, 300))]
        found = parts(lengths, known)
        assert sorted(row for part in found for row in part.rows) == list(range(len(lengths)))
        for part in found:
            assert part.shape in known
            assert 1 <= len(part.rows) <= part.shape.batch
            assert max(lengths[row] for row in part.rows) <= part.shape.length
            # No smaller shape of the table holds the same texts of that bucket.
            assert len(part.rows) * 4 > part.shape.batch or part.shape.batch == BATCHES[0]


def test_ladder_empty_places_of_a_batch_take_shorter_texts():
    known = shapes([16, 32], 512)
    assert parts([30, 20, 5, 5], known) == [(Shape(32, 4), [0, 1, 2, 3])]
    assert parts([30, 5, 5], known) == [(Shape(32, 1), [0]), (Shape(16, 4), [1, 2])]


def test_ladder_text_longer_than_all_shapes_is_refused():
    with pytest.raises(ValueError, match="33 tokens, the model takes 32"):
        parts([33], shapes([16, 32], 64))
    assert parts([], shapes([16], 64)) == []
