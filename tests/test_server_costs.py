"""The cost model fits its points and follows what batches really take."""

import pytest

from server.costs import CostModel, Pace


def test_costs_points_on_a_line_are_fitted():
    points = [(texts, tokens, 1 + 0.1 * texts + 0.02 * tokens)
              for texts, tokens in ((1, 8), (1, 64), (1, 512), (8, 64), (8, 512), (32, 512))]
    costs = CostModel(points)
    assert costs.estimate_ms(4, 50) == pytest.approx(2.4, rel=0.05)
    assert costs.estimate_ms(16, 1024) == pytest.approx(23.08, rel=0.05)


def test_costs_no_points_still_estimate_and_learn():
    costs = CostModel(())
    before = costs.estimate_ms(1, 100)
    for _ in range(200):
        costs.observe(1, 100, 3.0)
    assert before > 0 and costs.estimate_ms(1, 100) == pytest.approx(3.0, rel=0.05)


def test_costs_one_outlier_moves_little():
    costs = CostModel([(1, 16, 1.0), (1, 128, 8.0), (8, 128, 8.0)])
    before = costs.estimate_ms(1, 128)
    costs.observe(1, 128, 10_000.0)
    assert costs.estimate_ms(1, 128) < 1.3 * before


def test_costs_measured_zero_and_negative_slopes_stay_positive():
    costs = CostModel([(1, 16, 0.0), (1, 32, 5.0), (1, 64, 1.0)])
    assert all(costs.estimate_ms(t, n) > 0 and costs.share_ms(n) > 0
               for t in (1, 100) for n in (1, 10_000))


def test_pace_follows_the_work_of_the_last_second_and_no_single_outlier():
    pace = Pace()
    pace.observe(40.0, 40_000.0, 40.0)
    assert pace.value < 1.5
    for _ in range(100):
        pace.observe(40.0, 80.0, 80.0)
    assert pace.value == pytest.approx(2.0, rel=0.05)
    for _ in range(100):
        pace.observe(1.0, 9.0, 9.0)         # little work says little
    assert pace.value < 3.0


def test_pace_of_a_machine_that_became_slow_is_known_within_seconds():
    pace, passed_ms = Pace(), 0.0
    while pace.value < 8.0:
        pace.observe(40.0, 400.0, 40.0)
        passed_ms += 400.0
    assert passed_ms < 8000
