"""LayerNorm by machine code: near the exact one, and the same bits in any company."""

import numpy as np
import pytest

from model.native.codes import Coding
from model.native.columns import codes_stride
from model.native.norms import Norm, emit_norm_rows
from model.native.rows import emit_finish_all
from tests.guarded import run_code
from tests.slow_codes import factors_of, quantise_slowly, rows_of

EPS = 1e-12


class Found:
    """What the routine makes of rows."""

    def __init__(self, v: np.ndarray, coding: Coding | None = None, gap: int = 0,
                 eps: float = EPS) -> None:
        count, width = v.shape
        rng = np.random.default_rng(width)
        norm = Norm(width, eps, coding)
        stride = 4 * (width + gap)
        self.eps = eps
        self.gain = rng.standard_normal(width).astype(np.float32)
        self.shift = rng.standard_normal(width).astype(np.float32)
        self.factors = factors_of(width, width, bool(coding and coding.has_factors))
        x = np.pad(v, ((0, 0), (0, gap)))
        self.codes = np.zeros((count, codes_stride(width)), np.uint8)
        self.reaches = np.zeros(count, np.float32)
        arrays = {"rows": np.array([count]), "x": x, "gain": self.gain, "shift": self.shift,
                  "codes": self.codes, "reaches": self.reaches}
        if self.factors is not None:
            arrays["factors"] = self.factors
        assert set(norm.names) <= set(arrays)

        def emit(a, fields):
            emit_norm_rows(a, "finish", fields, norm, stride)
            emit_finish_all(a, "kernel", fields, "x", stride, "finish")

        run_code(emit, arrays)
        self.x, self.codes = x[:, :width], self.codes[:, :width]


def norm_exactly(v: np.ndarray, found: Found) -> np.ndarray:
    v = v.astype(np.float64)
    centred = v - v.mean(1, keepdims=True)
    return (centred / np.sqrt((centred ** 2).mean(1, keepdims=True) + found.eps)
            * found.gain + found.shift)


def check(v: np.ndarray, found: Found) -> None:
    # Each of a few roundings may cost half a unit of a number that is at most sqrt(width).
    np.testing.assert_allclose(found.x, norm_exactly(v, found), rtol=2e-6, atol=1e-5)


@pytest.mark.parametrize("width", [16, 32, 48, 64, 80, 128, 144, 240, 256, 272, 384, 400, 768, 1024,
                                   3072])
def test_norm_of_any_width_is_near_the_exact_one(width):
    v = rows_of(width, 5, width)
    check(v, Found(v))


def test_norm_of_rows_far_from_zero_is_near_the_exact_one():
    v = rows_of(1, 5, 384) / np.float32(8) + np.float32(64)
    expected = norm_exactly(v, found := Found(v))
    assert np.abs(found.x - expected).max() < 1e-3


@pytest.mark.parametrize("coding", [None, Coding(48, 0.0, True)], ids=["rows", "codes"])
def test_norm_of_any_count_is_near_the_exact_one(coding):
    for count in (*range(1, 36), 64, 65, 100):
        v = rows_of(count, count, 48)
        check(v, Found(v, coding))


@pytest.mark.parametrize("eps", [1e-5, 2.0])
def test_norm_adds_eps_to_the_variance(eps):
    v = rows_of(2, 5, 80)
    check(v, Found(v, eps=eps))


@pytest.mark.parametrize("value", [0.25, 3.0, -5.0])
def test_norm_of_equal_columns_with_an_exact_sum_is_the_shift(value):
    found = Found(np.full((3, 384), value, np.float32))
    np.testing.assert_array_equal(found.x, np.tile(found.shift, (3, 1)))


@pytest.mark.parametrize("has_factors", [False, True], ids=["plain", "factors"])
@pytest.mark.parametrize("width", [16, 80, 128, 384, 400, 768])
def test_norm_codes_are_those_of_its_rows(width, has_factors):
    found = Found(rows_of(width, 35, width), Coding(width, 0.0, has_factors))
    codes, reaches = quantise_slowly(found.x, 0.0, found.factors)
    np.testing.assert_array_equal(found.reaches, reaches)
    np.testing.assert_array_equal(found.codes, codes)


@pytest.mark.parametrize("width", [48, 384, 400])
def test_norm_row_is_the_same_alone_and_anywhere(width):
    v = rows_of(width, 37, width)
    together = Found(v, Coding(width, 0.0, False))
    for row in (0, 1, 2, 31, 32, 36):
        alone = Found(v[row:row + 1], Coding(width, 0.0, False))
        assert alone.x.tobytes() == together.x[row].tobytes()
        assert alone.codes.tobytes() == together.codes[row].tobytes()
        assert alone.reaches[0] == together.reaches[row]
    plain = Found(v)
    assert plain.x.tobytes() == together.x.tobytes()


def test_norm_of_rows_with_gaps_is_the_same():
    v = rows_of(7, 35, 144)
    expected, found = (Found(v, Coding(144, 0.0, False), gap) for gap in (0, 16))
    assert found.x.tobytes() == expected.x.tobytes()
    assert found.codes.tobytes() == expected.codes.tobytes()


@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -np.inf])
def test_norm_row_not_finite_is_so_as_a_whole_and_others_do_not_notice(value):
    v = rows_of(8, 7, 144)
    expected = Found(v, Coding(144, 0.0, False))
    others = np.arange(7) != 4
    for column in (0, 66, 143):
        bad = v.copy()
        bad[4, column] = value
        found = Found(bad, Coding(144, 0.0, False))
        assert np.isnan(found.x[4]).all() and np.isnan(found.reaches[4])
        assert found.x[others].tobytes() == expected.x[others].tobytes()
        assert found.codes[others].tobytes() == expected.codes[others].tobytes()
