"""Row operations between 8-bit products, against float64."""

import math

import numpy as np
import pytest
import torch

from model.programs.row_ops import LARGEST, PlainRows
from model.programs.script import script

CODES = list(LARGEST)
WIDES = [torch.float16, torch.bfloat16]
EPS = 1e-12


def _rows(rng, rows: int, width: int) -> torch.Tensor:
    """Ragged: each row of another size, the second of zeros."""
    sizes = 10.0 ** rng.integers(-3, 3, (rows, 1))
    sizes[1] = 0
    return torch.from_numpy(rng.standard_normal((rows, width)) * sizes)


def _sums(rng, rows: int, width: int) -> tuple:
    return (torch.from_numpy(rng.integers(-1 << 20, 1 << 20, (rows, width)).astype(np.int32)),
            torch.from_numpy(rng.random((rows, 1), np.float32) * 1e-3),
            torch.from_numpy(rng.random(width, np.float32) * 1e-3),
            torch.from_numpy(rng.standard_normal(width).astype(np.float32)))


def _check_codes(codes, scales, wanted, kind):
    """Codes times scales are `wanted` to half a step, and use their whole range."""
    assert codes.dtype == kind and scales.dtype == torch.float32 and scales.shape == (len(codes), 1)
    reach = wanted.abs().amax(1, True)
    steps = codes.double()
    assert torch.allclose(scales.double() * LARGEST[kind], reach, rtol=1e-5, atol=1e-30)
    near = reach / 254 if kind == torch.int8 else torch.maximum(
        wanted.abs() / 16, reach / 448 * 2.0 ** -10)
    assert ((steps * scales.double() - wanted).abs() <= near * 1.001 + reach * 1e-5).all()
    assert torch.equal(steps.abs().amax(1) == LARGEST[kind], reach[:, 0] > 0)


@pytest.mark.parametrize("wide", WIDES)
@pytest.mark.parametrize("kind", CODES)
@pytest.mark.parametrize("rows, width", [(2, 1), (3, 7), (5, 96), (33, 384)])
def test_row_ops_quantise_keeps_each_row_to_half_a_step(kind, wide, rows, width):
    x = _rows(np.random.default_rng(width), rows, width).to(wide)
    codes, scales = PlainRows(kind, wide).quantise(x)
    _check_codes(codes, scales, x.double(), kind)


@pytest.mark.parametrize("kind", CODES)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_row_ops_row_that_is_not_finite_gets_a_scale_of_nan_and_no_other(kind, bad):
    x = torch.ones(4, 16, dtype=torch.float16)
    x[2, 5] = bad
    _, scales = PlainRows(kind, torch.float16).quantise(x)
    assert scales.isnan()[:, 0].tolist() == [False, False, True, False]


@pytest.mark.parametrize("kind", CODES)
def test_row_ops_extremes_of_fp16_are_quantised(kind):
    tiny, most = torch.finfo(torch.float16).smallest_normal / 1024, torch.finfo(torch.float16).max
    x = torch.tensor([[tiny, -tiny], [most, -most]], dtype=torch.float16)
    codes, scales = PlainRows(kind, torch.float16).quantise(x)
    _check_codes(codes, scales, x.double(), kind)


@pytest.mark.parametrize("wide", WIDES)
def test_row_ops_sums_become_wide_rows(wide):
    sums, row_scales, column_scales, bias = _sums(np.random.default_rng(1), 5, 48)
    found = PlainRows(torch.int8, wide).dequantise_bias(sums, row_scales, column_scales, bias)
    wanted = sums.double() * row_scales * column_scales + bias
    assert found.dtype == wide
    assert torch.allclose(found.double(), wanted, rtol=torch.finfo(wide).eps, atol=1e-4)


@pytest.mark.parametrize("form", ["sums", "wide"])
@pytest.mark.parametrize("kind", CODES)
@pytest.mark.parametrize("wide", WIDES)
def test_row_ops_add_norm_and_gelu_quantise_either_form_of_product(kind, wide, form):
    rng = np.random.default_rng(2)
    product = _sums(rng, 6, 64)
    whole = product[0].double() * product[1] * product[2] + product[3]
    if form == "wide":
        product = whole.to(wide), None, None, None
        whole = product[0].double()
    residual = torch.from_numpy(rng.standard_normal((6, 64))).to(wide)
    gain, shift = (torch.from_numpy(rng.standard_normal(64).astype(np.float32)) for _ in range(2))
    ops = PlainRows(kind, wide)
    x, codes, scales = ops.add_norm_quantise(*product, residual, gain, shift, EPS)
    wanted = torch.nn.functional.layer_norm(
        whole + residual.double(), [64], gain.double(), shift.double(), EPS)
    assert x.dtype == wide
    assert torch.allclose(x.double(), wanted, rtol=torch.finfo(wide).eps, atol=1e-4)
    _check_codes(codes, scales, wanted, kind)
    codes, scales = ops.gelu_quantise(*product)
    _check_codes(codes, scales, torch.nn.functional.gelu(whole), kind)


class _Both(torch.nn.Module):
    """Row operations as a network calls them."""

    def __init__(self, rows: torch.nn.Module) -> None:
        super().__init__()
        self.rows = rows

    def forward(self, product: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.rows.gelu_quantise(product, None, None, None)


@pytest.mark.parametrize("kind", CODES)
def test_row_ops_compiled_give_the_same(kind):
    x = _rows(np.random.default_rng(3), 5, 32).half()
    ops = PlainRows(kind, torch.float16)
    for found, wanted in zip(script(_Both(ops))(x), ops.gelu_quantise(x, None, None, None)):
        assert torch.equal(found.float(), wanted.float())
