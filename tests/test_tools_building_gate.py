"""What the gate measures and demands, by examples worked by hand."""

import math

import numpy as np
import pytest

from tools.building.gate import Judgement, compare, keeps_company

FP32 = np.array([[2.0, 1.0], [1.0, 1.2], [0.0, 3.0], [1.0, 0.9]], np.float32)
FOUND = np.array([[1.5, 1.0], [1.0, 1.5], [0.0, 2.0], [1.0, 1.1]], np.float32)
GOOD = Judgement(texts=500, agreement=1.0, mean_difference=0.01, largest_difference=0.1,
                 clear_decisions_changed=0)


def test_compare_softmax_worked_by_hand():
    judged = compare(FP32, FOUND, "softmax")
    assert judged.texts == 4 and judged.agreement == 0.75
    assert judged.mean_difference == pytest.approx((0.5 + 0.3 + 1.0 + 0.2) / 8, abs=1e-6)
    assert judged.largest_difference == 1.0
    assert judged.clear_decisions_changed == 0  # the one that changed had a margin of 0.1
    assert (judged.accuracy, judged.accuracy_fp32, judged.interval) == (None, None, None)


def test_compare_softmax_clear_decisions_are_those_half_a_logit_apart():
    found = FP32[:, ::-1]
    assert compare(FP32, found, "softmax").clear_decisions_changed == 2
    assert compare(FP32, found, "softmax").agreement == 0.0


def test_compare_accuracy_is_paired():
    labels = [0, 1, 0, 0]       # fp32: right right wrong right; found: right right wrong wrong
    judged = compare(FP32, FOUND, "softmax", labels)
    assert (judged.accuracy, judged.accuracy_fp32) == (0.5, 0.75)
    # The differences are 0, 0, 0, -1: mean -1/4, variance 3/16, standard error sqrt(3/16)/2.
    half = 1.96 * math.sqrt(3 / 16) / 2
    assert judged.interval == pytest.approx((-0.25 - half, -0.25 + half))


def test_compare_accuracy_both_equally_right_still_has_an_interval():
    found = FP32.copy()
    found[0], found[3] = found[0, ::-1], found[3, ::-1]
    judged = compare(FP32, found, "softmax", [0, 1, 1, 1])  # one right lost, one won
    assert judged.accuracy == judged.accuracy_fp32 == 0.75
    low, high = judged.interval
    assert low == pytest.approx(-high) and high == pytest.approx(1.96 * math.sqrt(1 / 2) / 2)


def test_compare_sigmoid_each_label_counts_by_its_side_of_zero():
    expected = np.array([[1.0, -1.0], [0.5, 0.1]], np.float32)
    found = np.array([[0.2, -3.0], [0.5, -0.1]], np.float32)
    judged = compare(expected, found, "sigmoid", None)
    assert (judged.agreement, judged.clear_decisions_changed) == (0.75, 0)


def test_compare_regression_agrees_within_a_twentieth_of_the_spread():
    expected = np.array([[0.0], [10.0], [20.0], [30.0]], np.float32)    # its spread is 11.18
    found = expected + np.array([[0.5], [-0.55], [0.57], [0.0]], np.float32)
    judged = compare(expected, found, "none")
    assert judged.agreement == 0.75 and judged.clear_decisions_changed == 0
    assert judged.largest_difference == pytest.approx(0.57)


@pytest.mark.parametrize(("change", "word"), [
    ({"agreement": 0.9899}, "agrees with fp32 on 98.99%"), ({"agreement": math.nan}, "agrees"),
    ({"accuracy": 0.9559, "accuracy_fp32": 0.96}, "its accuracy is 95.59%, fp32's 96.00%"),
    ({"worst_product_error": 0.051}, "a product's output is 5.1% off"),
    ({"worst_product_error": math.nan}, "a product's output is nan"),
    ({"worst_rounding": 2.1}, "2.1 times as far off as rounding explains"),
    ({"worst_rounding": math.nan}, "as rounding explains"),
    ({"is_invariant": False}, "depends on its company"),
    ({"largest_difference": math.nan}, "not finite"),
    ({"largest_difference": math.inf}, "not finite")])
def test_judgement_each_fault_is_told_alone(change, word):
    found = GOOD._replace(**change).faults()
    assert len(found) == 1 and word in found[0]


def test_judgement_at_the_limits_passes():
    assert GOOD.faults() == []
    assert GOOD._replace(agreement=0.99, accuracy=0.957, accuracy_fp32=0.96,
                         worst_product_error=0.05, worst_rounding=2.0).faults() == []
    assert GOOD._replace(accuracy=1.0, accuracy_fp32=0.9).faults() == []


class Fake:
    """Adds `company` for every other row, and `place` for every row before a row."""

    def __init__(self, company=0.0, place=0.0):
        self.company, self.place = company, place

    def run(self, rows):
        return np.array([[row + self.company * (len(rows) - 1) + self.place * number, 1.0]
                         for number, row in enumerate(rows)], np.float32)


def test_keeps_company_sees_a_bit_of_difference():
    rows = [1.0, 2.0, 4.0]
    for program, keeps in ((Fake(), True), (Fake(company=1e-6), False), (Fake(place=1e-6), False)):
        assert keeps_company(program, rows, program.run(rows)) == keeps
