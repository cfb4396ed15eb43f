"""Products of 8-bit integers: weights with one scale a channel, activations with one a token.

y[m, n] = b[n] + s[m] · t[n] · Σ (q[m, k] - z) · w[n, k], where q is the row x[m] in steps of s[m].
A row's step comes from that row alone, so its product does not depend on its company; the integer
sums are exact in every kernel that is admitted, so only the last multiplications round.

Inputs that are hardly negative (they come out of GELU) are laid over 254 of the 255 values with a
zero point z near the end, which makes their steps almost half as large.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

# Up to so many rows calls cost more than passes over the rows: then fewer calls are the faster way.
FEW_ROWS = 64
ZERO_POINT = -111  # one-sided inputs: 16 steps below zero, 238 above


class QuantisedWeight(NamedTuple):
    """`values` int8 [N, K]; `scales` float32 [N]; `bias` float32 [N]; `divisors` float32 [K]: what
    the inputs are divided by first (the weight was multiplied by it), or None."""

    values: Tensor
    scales: Tensor
    bias: Tensor
    divisors: Tensor | None = None


class Int8Product(nn.Module):
    """Rows to integers and sums to rows; what lies between is a kernel's own.

    `least` is a bound below the inputs that is near 0, or 0.0 where they may have both signs.
    `may_overwrite` says that nobody reads x afterwards.
    """

    row_step = 16
    builds_by_rows = True
    differs_by_rows = False  # sums of integers are what they are
    shift = 0  # of the zero point, where a kernel takes other integers than [-127, 127]

    def __init__(self, weight: QuantisedWeight, least: float = 0.0,
                 may_overwrite: bool = False) -> None:
        super().__init__()
        self.bias = weight.bias
        self.factors = None if weight.divisors is None else weight.divisors.reciprocal()
        self.is_one_sided: bool = least < 0
        self.steps = torch.tensor(238.0 if self.is_one_sided else 127.0)
        self.least_reach: float = least / -16 * 238
        # Steps are made reaches by the weights' scales, which saves a pass over small arrays.
        self.scales = weight.scales / self.steps
        self.may_overwrite: bool = may_overwrite
        self.few_rows: int = FEW_ROWS
        self.zero_point: int = self.shift + (ZERO_POINT if self.is_one_sided else 0)

    def forward(self, x: Tensor) -> Tensor:
        may_overwrite = self.may_overwrite
        factors = self.factors
        if factors is not None:
            x = x.mul_(factors) if may_overwrite else x * factors
            may_overwrite = True
        # A row's `reach` is what the largest integer stands for; its step is a `steps`th of that.
        if self.is_one_sided:
            reach = x.amax(1, True).clamp_min_(self.least_reach)
            if factors is not None:  # which may have made more of what is below zero
                reach = torch.maximum(reach, x.amin(1, True).mul_(238 / -16))
        elif x.size(0) <= self.few_rows:  # the same values
            reach = x.abs().amax(1, True).clamp_min_(1e-10)
        else:
            reach = torch.maximum(x.amax(1, True), x.amin(1, True).neg_()).clamp_min_(1e-10)
        inverse = torch.div(self.steps, reach)                              # [M, 1]
        q = (x.mul_(inverse) if may_overwrite else x * inverse).round_()
        return self.sums(q).mul_(reach).add_(self.bias)                     # [M, N]

    def sums(self, q: Tensor) -> Tensor:
        """t[n] · Σ (q - z) w ÷ steps, float32 [M, N]; q, float32 [M, K], are whole and without z.
        """
        raise NotImplementedError


class OneDnnSigned(Int8Product):
    """oneDNN on signed activations: exact with VNNI or AMX, elsewhere pairs of sums saturate."""

    def __init__(self, weight: QuantisedWeight, least: float = 0.0,
                 may_overwrite: bool = False) -> None:
        super().__init__(weight, least, may_overwrite)
        self.weight = torch.ops.onednn.qlinear_prepack(weight.values, None)
        self.zeros = torch.zeros(len(weight.scales), dtype=torch.int32)

    def sums(self, q: Tensor) -> Tensor:
        integers = q.to(torch.int8)
        if self.is_one_sided:
            integers = integers.sub_(111)
        return torch.ops.onednn.qlinear_pointwise(
            integers, 1.0, self.zero_point, self.weight, self.scales, self.zeros, None, 1.0, 0,
            torch.float32, "none", [], "")


class OneDnnUnsigned(OneDnnSigned):
    """oneDNN on unsigned activations: exact with weights of 7 bits on every CPU."""

    shift = 128

    def sums(self, q: Tensor) -> Tensor:
        integers = q.to(torch.int8)
        if self.is_one_sided:
            integers = integers.sub_(111)
        return torch.ops.onednn.qlinear_pointwise(
            integers.to(torch.uint8).bitwise_xor_(128), 1.0, self.zero_point, self.weight,
            self.scales, self.zeros, None, 1.0, 0, torch.float32, "none", [], "")


class Fbgemm(Int8Product):
    """fbgemm on unsigned activations, which it rounds itself: exact with weights of 7 bits, with 8
    where the CPU has VNNI."""

    builds_by_rows = False
    shift = 128

    def __init__(self, weight: QuantisedWeight, least: float = 0.0,
                 may_overwrite: bool = False) -> None:
        super().__init__(weight, least, may_overwrite)
        self.packed = _fbgemm_packed(weight.values, self.scales)

    def sums(self, q: Tensor) -> Tensor:
        return torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
            q, 1.0, self.zero_point, self.packed)


def _fbgemm_packed(values: Tensor, scales: Tensor) -> Any:
    with warnings.catch_warnings():  # of quantised tensors, which torch means to drop; we pin it
        warnings.simplefilter("ignore", UserWarning)
        weight = torch._make_per_channel_quantized_tensor(
            values, scales.double(), torch.zeros(len(scales), dtype=torch.long), 0)
        return torch.ops.quantized.linear_prepack(weight, None)


INT8_KERNELS: dict[str, Any] = {
    "onednn-s8": OneDnnSigned, "onednn-u8": OneDnnUnsigned, "fbgemm-u8": Fbgemm}
