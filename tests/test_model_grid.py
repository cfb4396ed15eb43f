"""Buckets: ascending, the last one the model's limit, each count in the smallest that holds it."""

import pytest

from model.grid import bucket, buckets


@pytest.mark.parametrize(("limit", "expected"), [
    (512, [16, 32, 48, 64, 96, 128, 192, 256, 384, 512]), (20, [16, 20]), (16, [16]), (1, [1]),
    (514, [16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 514])])
def test_buckets_of_a_limit(limit, expected):
    assert buckets(limit) == expected


def test_bucket_of_every_count_is_the_smallest_that_holds_it():
    for limit in (*range(1, 70), 512, 8192):
        sizes = buckets(limit)
        assert sizes == sorted(set(sizes)) and sizes[-1] == limit
        for tokens in range(1, limit + 1):
            assert bucket(tokens, sizes) == min(size for size in sizes if size >= tokens)


def test_bucket_above_the_limit_is_an_error():
    with pytest.raises(ValueError, match="21 tokens"):
        bucket(21, buckets(20))


def test_buckets_without_room_is_an_error():
    with pytest.raises(ValueError):
        buckets(0)
