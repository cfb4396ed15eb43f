"""What lies between two 8-bit products, row by row: the contract, and torch's own operators.

A row of T is quantised by itself: codes = round(x / scale) with scale = its largest |x| / the
largest code. A row of zeros has the scale 0. A row that is not finite has the scale NaN: it goes
through every later product into the logits, where the host looks for it, while codes would have
made it finite again.

A product comes in one of two forms. int32 sums of int8 codes lack their row scales, column scales
and bias, which are given with it. A product of 16 bits is complete, as torch._scaled_mm gives it:
the three are None.

Letters: T rows (tokens), H and N columns. "Wide" is the network's 16-bit type.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

LARGEST = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0}
# What is smaller counts as zero: its reciprocal must not overflow.
LEAST = 1e-30


class RowOps(Protocol):
    """Implementations are modules that TorchScript takes: what is not written in it is marked
    torch.jit.ignore. Everything but codes, sums and wide rows is float32; all is contiguous."""

    def quantise(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Wide x [T, H] → codes [T, H], scales [T, 1]."""

    def dequantise_bias(self, sums: Tensor, row_scales: Tensor, column_scales: Tensor,
                        bias: Tensor) -> Tensor:
        """int32 sums [T, N], row_scales [T, 1], column_scales [N], bias [N] → wide [T, N]."""

    def add_norm_quantise(self, product: Tensor, row_scales: Tensor | None,
                          column_scales: Tensor | None, bias: Tensor | None, residual: Tensor,
                          gain: Tensor, shift: Tensor, eps: float
                          ) -> tuple[Tensor, Tensor, Tensor]:
        """LayerNorm(product + residual) · gain + shift of a product [T, H] of either form and a
        wide residual [T, H]; gain and shift [H] → the rows wide [T, H], their codes [T, H] (of
        what they were before they were made wide), scales [T, 1]."""

    def gelu_quantise(self, product: Tensor, row_scales: Tensor | None,
                      column_scales: Tensor | None, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        """GELU (by erf) of a product [T, N] of either form → codes [T, N], scales [T, 1]."""


class PlainRows(nn.Module):
    """RowOps by torch's operators, on any device: right, and many passes over memory."""

    def __init__(self, codes: torch.dtype, wide: torch.dtype) -> None:
        super().__init__()
        self.codes, self.wide = codes, wide
        self.largest: float = LARGEST[codes]
        self.least: float = LEAST
        self.is_whole: bool = codes == torch.int8

    def quantise(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self._codes(x.float())

    def dequantise_bias(self, sums: Tensor, row_scales: Tensor, column_scales: Tensor,
                        bias: Tensor) -> Tensor:
        return self._whole(sums, row_scales, column_scales, bias).to(self.wide)

    def add_norm_quantise(self, product: Tensor, row_scales: Tensor | None,
                          column_scales: Tensor | None, bias: Tensor | None, residual: Tensor,
                          gain: Tensor, shift: Tensor, eps: float
                          ) -> tuple[Tensor, Tensor, Tensor]:
        x = self._whole(product, row_scales, column_scales, bias) + residual.float()
        x = nn.functional.layer_norm(x, [x.size(1)], gain, shift, eps)
        codes, scales = self._codes(x)
        return x.to(self.wide), codes, scales

    def gelu_quantise(self, product: Tensor, row_scales: Tensor | None,
                      column_scales: Tensor | None, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        return self._codes(nn.functional.gelu(
            self._whole(product, row_scales, column_scales, bias)))

    def _whole(self, product: Tensor, row_scales: Tensor | None, column_scales: Tensor | None,
               bias: Tensor | None) -> Tensor:
        """A product of either form, complete, in float32."""
        x = product.float()
        if row_scales is not None and column_scales is not None and bias is not None:
            x = x.mul_(row_scales).mul_(column_scales).add_(bias)
        return x

    def _codes(self, x: Tensor) -> tuple[Tensor, Tensor]:
        reach = x.abs().amax(1, True)                                       # [T, 1]
        # Of zeros any code times a scale of zero is right, but 0 / 0 is none.
        codes = x * (self.largest / reach.clamp_min(self.least))
        if self.is_whole:
            codes = codes.round_()
        codes = codes.nan_to_num_(0.0).clamp_(-self.largest, self.largest).to(self.codes)
        # Infinity times 0 is NaN, and NaN stays.
        return codes, reach / self.largest + reach * 0.0
