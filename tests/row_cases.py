"""Rows that are awkward to quantise, and what row operations must make of them, in float64."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

LARGEST = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0}
# Half a step of a 16-bit type, relative to a number.
HALF_STEPS = {torch.float16: 2.0 ** -11, torch.bfloat16: 2.0 ** -8}
ERF = np.vectorize(math.erf, otypes=[np.float64])
# One row more than blocks of four rows hold evenly.
T = 9
BROKEN_ROWS = (3, 4, 5)


@dataclass
class Product:
    """A product [T, N] in either form, the rest that belongs to it, and its exact value."""

    tensor: Tensor
    row_scales: Tensor | None
    column_scales: Tensor | None
    bias: Tensor | None
    exact: np.ndarray

    def parts(self) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
        return self.tensor, self.row_scales, self.column_scales, self.bias


def wide_rows(width: int, dtype: torch.dtype) -> Tensor:
    """Rows [T, width]: plain; zeros; all of one sign; with a NaN, infinity, minus infinity; the
    type's largest; its smallest, subnormal ones; one large number among small ones."""
    random = np.random.default_rng(width)
    rows = torch.from_numpy(random.normal(size=(T, width))).to(dtype)
    limits = torch.finfo(dtype)
    rows[1] = 0
    rows[2] = rows[2].abs() + 1
    for row, what in zip(BROKEN_ROWS, (math.nan, math.inf, -math.inf)):
        rows[row, width - 1 - row] = what
    rows[6] = torch.where(rows[6] > 0, limits.max, limits.min)
    rows[7] = rows[7].sign() * limits.smallest_normal / 8
    rows[8, 5] = 3e4
    return rows


def product(width: int, wide: torch.dtype, of_sums: bool) -> Product:
    """Rows as above (the sums: the largest that 4096 products of int8 give, and a row scale of NaN
    or infinity)."""
    if not of_sums:
        rows = wide_rows(width, wide)
        rows[6] = rows[6].clamp(-1e4, 1e4)      # what LayerNorm can square
        return Product(rows, None, None, None, rows.double().numpy())
    random = np.random.default_rng(width + 1)
    sums = random.integers(-30000, 30000, size=(T, width), dtype=np.int32)
    sums[1] = 0
    sums[6] = np.where(sums[6] > 0, 127 * 127 * 4096, -127 * 127 * 4096)
    row_scales = random.uniform(0.001, 0.01, size=(T, 1)).astype(np.float32)
    row_scales[list(BROKEN_ROWS), 0] = math.nan, math.inf, -math.inf
    column_scales = random.uniform(0.001, 0.02, width).astype(np.float32)
    bias = random.normal(size=width).astype(np.float32)
    with np.errstate(invalid="ignore"):
        exact = sums * row_scales.astype(np.float64) * column_scales + bias
    return Product(*map(torch.from_numpy, (sums, row_scales, column_scales, bias)), exact)


def norm_parts(width: int, wide: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """A residual [T, width], finite; gain and shift [width]."""
    random = np.random.default_rng(width + 2)
    residual = torch.from_numpy(random.normal(size=(T, width))).to(wide)
    gain, shift = (torch.from_numpy(random.normal(size=width).astype(np.float32)) for _ in range(2))
    return residual, gain, shift


def check_codes(codes: Tensor, scales: Tensor, exact: np.ndarray, slack: float = 1e-5) -> None:
    """Each finite row of `exact` [T, N] is what its codes say to half a step (and `slack` of its
    largest), its scale is what makes the largest one the largest code; others' scales are NaN."""
    largest = LARGEST[codes.dtype]
    assert codes.is_contiguous() and scales.shape == (len(codes), 1)
    assert scales.dtype == torch.float32
    scale, found = scales.double().numpy(), codes.double().numpy()
    is_whole = np.isfinite(exact).all(1)
    np.testing.assert_array_equal(np.isnan(scale[:, 0]), ~is_whole)
    scale, found, exact = scale[is_whole], found[is_whole], exact[is_whole]
    reach = np.abs(exact).max(1, keepdims=True)
    np.testing.assert_allclose(scale, reach / largest, rtol=slack, atol=1e-44)
    assert (np.abs(found).max(1, keepdims=True)[reach > 1e-30] == largest).all()
    assert (found[reach[:, 0] == 0] == 0).all()
    if codes.dtype == torch.int8:
        half_step = np.full_like(exact, 0.5)
    else:       # eight steps between powers of two, down to steps of 2^-9
        half_step = np.maximum(np.abs(exact) / np.maximum(scale, 1e-300) / 16, 2.0 ** -10)
    allowed = half_step * scale * (1 + 1e-6) + slack * reach
    is_counted = (reach > 1e-30)[:, 0]      # below that, all is zero to a network
    error = np.abs(found * scale - exact)
    assert (error <= allowed)[is_counted].all(), (error / allowed)[is_counted].max()


def check_wide(found: Tensor, exact: np.ndarray, wide: torch.dtype, slack: float = 1e-5) -> None:
    """Wide rows are the exact ones, rounded; those that are not finite hold something that is not.
    """
    assert found.dtype == wide and found.is_contiguous()
    rows = found.double().numpy()
    limit = torch.finfo(wide).max
    is_whole = np.isfinite(exact).all(1) & (np.abs(exact).max(1) < limit)
    assert not np.isfinite(rows[~is_whole]).all(1).any()
    reach = np.abs(exact[is_whole]).max(1, keepdims=True)
    allowed = HALF_STEPS[wide] * 1.01 * np.abs(exact[is_whole]) + slack * reach + 1e-7
    assert (np.abs(rows[is_whole] - exact[is_whole]) <= allowed).all()


def check_quantise(ops: Any, wide: torch.dtype, width: int) -> None:
    """ops.quantise is right on all awkward rows."""
    x = wide_rows(width, wide)
    check_codes(*ops.quantise(x), x.double().numpy())


def check_dequantise(ops: Any, wide: torch.dtype, width: int) -> None:
    """ops.dequantise_bias is right."""
    one = product(width, wide, True)
    check_wide(ops.dequantise_bias(*one.parts()), one.exact, wide)


def check_gelu(ops: Any, wide: torch.dtype, width: int, of_sums: bool) -> None:
    """ops.gelu_quantise is right."""
    one = product(width, wide, of_sums)
    with np.errstate(invalid="ignore"):
        exact = 0.5 * one.exact * (1 + ERF(one.exact / math.sqrt(2)))
        exact[~np.isfinite(one.exact).all(1)] = math.nan
    check_codes(*ops.gelu_quantise(*one.parts()), exact, 1e-5)


def check_add_norm(ops: Any, wide: torch.dtype, width: int, of_sums: bool) -> None:
    """ops.add_norm_quantise is right, also where eps is about a row's variance."""
    eps = 1e-5
    one = product(width, wide, of_sums)
    residual, gain, shift = norm_parts(width, wide)
    if not of_sums:     # a row of zeros and a residual whose variance is eps
        residual[1] *= eps ** 0.5
    exact = normalised(one.exact, residual, gain, shift, eps)
    x, codes, scales = ops.add_norm_quantise(*one.parts(), residual, gain, shift, eps)
    check_wide(x, exact, wide, 1e-4)
    check_codes(codes, scales, exact, 1e-4)
    residual[2, 7] = math.nan
    _, _, scales = ops.add_norm_quantise(*one.parts(), residual, gain, shift, eps)
    assert scales[2].isnan().all() and scales[:2].isfinite().all()


def check_add_norm_wide(ops: Any, wide: torch.dtype, width: int) -> None:
    """ops.add_norm gives the rows of add_norm_quantise for a product of 16 bits."""
    one = product(width, wide, False)
    residual, gain, shift = norm_parts(width, wide)
    found = ops.add_norm(*one.parts(), residual, gain, shift, 1e-5)
    check_wide(found, normalised(one.exact, residual, gain, shift, 1e-5), wide, 1e-4)


def normalised(exact: np.ndarray, residual: Tensor, gain: Tensor, shift: Tensor,
               eps: float) -> np.ndarray:
    """LayerNorm(exact + residual) · gain + shift; NaN in rows that hold anything not finite."""
    with np.errstate(invalid="ignore"):
        x = exact + residual.double().numpy()
        x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + eps)
    return x * gain.double().numpy() + shift.double().numpy()


class Uploading:
    """Row operations of a real device, over CPU tensors."""

    def __init__(self, ops: Any) -> None:
        self._ops = ops

    def __getattr__(self, name: str) -> Any:
        def run(*given: Any) -> Any:
            found = getattr(self._ops, name)(*(
                one.to("cuda") if isinstance(one, Tensor) else one for one in given))
            return tuple(one.cpu() for one in found) if isinstance(found, tuple) else found.cpu()
        return run


def check_every_half_in_codes(ops: Any, codes: torch.dtype) -> None:
    """Where a row's scale is 1 its codes are torch's own conversion, for every fp16 that is in
    reach."""
    largest = LARGEST[codes]
    halves = torch.arange(-1 << 15, 1 << 15).to(torch.int16).view(torch.float16)
    halves = halves[halves.abs() <= largest]
    rows = torch.full((len(halves) // 127 + 1, 128), largest, dtype=torch.float16)
    inner = torch.zeros(len(rows) * 127, dtype=torch.float16)
    inner[:len(halves)] = halves
    rows[:, 1:] = inner.view(-1, 127)
    found, scales = ops.quantise(rows)
    assert (scales == 1).all()
    wanted = rows.float().round() if codes == torch.int8 else rows.float()
    assert torch.equal(found.float(), wanted.to(codes).float())


def check_every_rounding(ops: Any, wide: torch.dtype) -> None:
    """Floats of every magnitude, ties and neighbours of ties, and what is no number are rounded to
    16 bits as torch rounds them."""
    exponents = np.arange(0, 1 << 32, 1 << 23, dtype=np.uint32)     # and signs
    fractions = np.array([0, 1, 0x0FFF, 0x1000, 0x1001, 0x3000, 0x7FFF, 0x8000, 0x8001, 0x18000,
                          0x7F_8000, 0x7F_F000, 0x7F_FFFF, 0x40_0000, 0x40_1000, 0x12_3456],
                         np.uint32)
    floats = (exponents[:, None] | fractions).view(np.float32).reshape(-1, 128)
    for row in torch.from_numpy(floats):
        zeros = torch.zeros(1, 128, dtype=torch.int32)
        found = ops.dequantise_bias(zeros, torch.ones(1, 1), torch.ones(128), row)
        wanted = row.to(wide)
        is_number = ~wanted.isnan()
        assert torch.equal(found[0].isnan(), wanted.isnan())
        assert torch.equal(found[0][is_number], wanted[is_number])
