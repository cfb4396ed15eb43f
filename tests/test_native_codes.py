"""Codes and reaches of rows by machine code: those of the formula, exactly."""

import numpy as np
import pytest

from model.native.codes import Coding, emit_quantise_rows
from model.native.columns import codes_stride
from model.native.rows import emit_finish_all
from tests.guarded import run_code
from tests.slow_codes import LEAST, factors_of, quantise_slowly, rows_of

SIDES = pytest.mark.parametrize("least", [0.0, LEAST], ids=["two-sided", "one-sided"])
FACTORS = pytest.mark.parametrize("has_factors", [False, True], ids=["plain", "factors"])


def quantise(x: np.ndarray, least: float = 0.0, factors: np.ndarray | None = None,
             gap: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(codes uint8 [N, K], reaches float32 [N]); `gap` floats lie between rows."""
    count, width = x.shape
    coding = Coding(width, least, factors is not None)
    stride = 4 * (width + gap)
    arrays = {"rows": np.array([count]), "v": np.pad(x, ((0, 0), (0, gap))),
              "codes": np.zeros((count, codes_stride(width)), np.uint8),
              "reaches": np.zeros(count, np.float32)}
    if factors is not None:
        arrays["factors"] = factors
    assert set(coding.names) <= set(arrays)

    def emit(a, fields):
        emit_quantise_rows(a, "finish", fields, coding, stride)
        emit_finish_all(a, "kernel", fields, "v", stride, "finish")

    run_code(emit, arrays)
    return arrays["codes"][:, :width], arrays["reaches"]


def check(x: np.ndarray, least: float, factors: np.ndarray | None, gap: int = 0) -> None:
    codes, reaches = quantise(x, least, factors, gap)
    expected_codes, expected_reaches = quantise_slowly(x, least, factors)
    np.testing.assert_array_equal(reaches, expected_reaches)
    np.testing.assert_array_equal(codes, expected_codes)


@FACTORS
@SIDES
@pytest.mark.parametrize("width", [16, 32, 48, 64, 80, 128, 144, 240, 256, 272, 384, 400, 464, 768,
                                   1536, 3072])
def test_codes_of_any_width_are_those_of_the_formula(width, least, has_factors):
    check(rows_of(width, 5, width, least), least, factors_of(width, width, has_factors))


@FACTORS
@SIDES
def test_codes_of_any_count_are_those_of_the_formula(least, has_factors):
    for count in (*range(1, 36), 64, 65, 100):
        check(rows_of(count, count, 48, least), least, factors_of(count, 48, has_factors))


@SIDES
def test_codes_of_rows_with_gaps_are_those_of_the_formula(least):
    check(rows_of(1, 35, 48, least), least, factors_of(1, 48, True), gap=16)


@pytest.mark.parametrize("column", [0, 17, 50, 399])
def test_codes_largest_in_any_column_decides_the_reach(column):
    for value in (300.0, -300.0):
        x = rows_of(2, 3, 400) * 1e-3
        x[1, column] = value
        check(x, 0.0, None)


@pytest.mark.parametrize("column", [0, 17, 50, 399])
def test_codes_one_sided_smallest_decides_the_reach_with_factors(column):
    x = rows_of(2, 3, 400, LEAST) * np.float32(1e-3)
    x[1, column] = LEAST
    factors = np.ones(400, np.float32)
    factors[column] = 20.0
    assert quantise(x, LEAST, factors)[1][1] > np.float32(LEAST / -16 * 238)
    check(x, LEAST, factors)


@FACTORS
@pytest.mark.parametrize("least, zero_point, reach", [(0.0, 128, 1e-10), (LEAST, 16, None)])
def test_codes_of_zeros_are_the_zero_point(least, zero_point, reach, has_factors):
    codes, reaches = quantise(np.zeros((3, 80), np.float32), least, factors_of(1, 80, has_factors))
    assert (codes == zero_point).all()
    assert (reaches == np.float32(reach or LEAST / -16 * 238)).all()


def test_codes_ties_go_to_the_even_one():
    x = np.zeros((1, 16), np.float32)
    x[0, :6] = 127, 0.5, 1.5, 2.5, -0.5, -1.5
    assert quantise(x)[0][0, :6].tolist() == [255, 128, 130, 130, 128, 126]


@FACTORS
@SIDES
@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -np.inf])
def test_codes_row_not_finite_has_a_reach_that_is_not_and_others_do_not_notice(value, least,
                                                                               has_factors):
    x, factors = rows_of(3, 7, 144, least), factors_of(3, 144, has_factors)
    expected_codes, expected_reaches = quantise(x, least, factors)
    for column in (0, 66, 143):
        bad = x.copy()
        bad[4, column] = value
        codes, reaches = quantise(bad, least, factors)
        assert not np.isfinite(reaches[4])
        others = np.arange(7) != 4
        np.testing.assert_array_equal(codes[others], expected_codes[others])
        np.testing.assert_array_equal(reaches[others], expected_reaches[others])
