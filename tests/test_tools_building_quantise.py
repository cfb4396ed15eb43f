"""Weights to integers: within half a step, the slow way."""

import numpy as np
import pytest

from tools.building.quantise import LARGEST, dequantise, quantise


def weight(rows=17, columns=23, seed=1):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(rows, columns)) * np.exp(rng.normal(size=(rows, 1)) * 3)
    return values.astype(np.float32)


@pytest.mark.parametrize("bits", [7, 8])
def test_quantise_every_element_is_within_half_a_step(bits):
    original = weight()
    values, scales = quantise(original, bits)
    assert (values.dtype, scales.dtype) == (np.int8, np.float32)
    error = np.abs(values.astype(float) * scales[:, None] - original)
    assert (error <= 0.50001 * scales[:, None]).all()
    assert (np.abs(values.astype(int)).max(1) == LARGEST[bits]).all()
    assert np.array_equal(dequantise(values, scales), values * scales[:, None])


@pytest.mark.parametrize("bits", [7, 8])
def test_quantise_equals_a_loop(bits):
    original = weight()
    divisors = np.exp(np.random.default_rng(2).normal(size=23)).astype(np.float32)
    values, scales = quantise(original, bits, divisors)
    for row in range(len(original)):
        largest = max(abs(np.float32(element * divisor))
                      for element, divisor in zip(original[row], divisors))
        assert scales[row] == np.float32(largest / np.float32(LARGEST[bits]))
        for column in range(original.shape[1]):
            steps = np.float32(original[row, column] * divisors[column]) / scales[row]
            assert values[row, column] == round(float(steps))
    error = np.abs(dequantise(values, scales, divisors) - original)
    assert (error <= 0.50001 * scales[:, None] / divisors).all()


def test_quantise_rows_of_zeros_stay_zeros():
    original = weight()
    original[3] = 0.0
    values, scales = quantise(original, 8)
    assert not values[3].any() and scales[3] == 1.0 and not dequantise(values, scales)[3].any()


def test_quantise_exact_weights_come_back_exactly():
    whole = np.random.default_rng(3).integers(-127, 128, (5, 40)).astype(np.float32)
    whole[:, 0] = 127
    for scale in (1.0, 0.25, 64.0):
        values, scales = quantise(whole * np.float32(scale), 8)
        assert np.array_equal(values, whole) and (scales == scale).all()
