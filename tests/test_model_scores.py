"""Scores: right, and calm at both ends of what a float can be."""

import math
import random

import pytest

from model.scores import scores


def test_scores_softmax_by_hand():
    assert scores([0.0, math.log(3.0)], "softmax") == pytest.approx([0.25, 0.75], abs=1e-15)


@pytest.mark.parametrize("logits", [[-50.0, 40.0], [3e38, -3e38], [1e300, 1e300, -1e300], [0.0]])
def test_scores_softmax_of_extremes_sums_to_one(logits):
    found = scores(logits, "softmax")
    assert math.fsum(found) == pytest.approx(1.0, abs=1e-12)
    assert all(0.0 <= score <= 1.0 for score in found)


def test_scores_softmax_of_two_has_the_bits_of_the_general_sum():
    rng = random.Random(5)
    for _ in range(2000):
        logits = [rng.uniform(-40.0, 40.0), rng.uniform(-40.0, 40.0)]
        powers = [math.exp(logit - max(logits)) for logit in logits]
        assert scores(logits, "softmax") == [power / math.fsum(powers) for power in powers]


def test_scores_sigmoid_of_extremes_stays_in_range():
    assert scores([0.0, 1e300, -1e300, math.log(3.0)], "sigmoid") == pytest.approx(
        [0.5, 1.0, 0.0, 0.75], abs=1e-15)


def test_scores_none_gives_the_logits_back():
    assert scores([1.5, -2.0], "none") == [1.5, -2.0]


@pytest.mark.parametrize("function", ["softmax", "sigmoid", "none"])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_scores_of_no_finite_logit_is_an_error(function, bad):
    with pytest.raises(ValueError, match="finite"):
        scores([0.0, bad], function)


def test_scores_of_an_unknown_function_is_an_error():
    with pytest.raises(ValueError, match="relu"):
        scores([0.0], "relu")
