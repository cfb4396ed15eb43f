"""bench/soak.py sees growth that is there, and none in noise."""

import random

import pytest

from bench.soak import growth_of_second_half


def test_soak_growth_is_as_worked_by_hand():
    assert growth_of_second_half([(0, 100), (1, 100), (2, 101), (3, 102), (4, 103), (5, 104)]) \
        == pytest.approx(2 / 103)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("grown", [0.0, 0.01, 0.05])
def test_soak_growth_is_found_under_noise_and_outliers(seed, grown):
    """Of 120 samples each a tenth of a percent off, some of which a moment has moved by a tenth."""
    chance = random.Random(seed)
    samples = []
    for number in range(120):
        size = 300 * (1 + grown * max(0, number - 60) / 59) * (1 + chance.gauss(0, 0.001))
        samples.append((10.0 * number, size * (1.1 if number % 16 == 0 else 1)))
    assert growth_of_second_half(samples) == pytest.approx(grown, abs=0.002)


def test_soak_growth_of_the_first_half_is_not_counted():
    samples = [(number, 200 + min(number, 50)) for number in range(100)]
    assert growth_of_second_half(samples) == 0
