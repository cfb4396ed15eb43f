"""Products x · Wᵀ + b with a weight of 32 or 16 bits: every kernel that torch offers for them.

An answer must not depend on its company, not by a bit, so a row's product must not depend on the
number of rows M. Which kernel keeps that depends on the machine: MKL takes other code for few rows
(seen on Sapphire Rapids: below 16 rows for a weight as stored [N, K], for one row only for its
transpose [K, N]; with AVX2 alone: in patterns up to some 250 rows, for either). So each is tried on
the machine (model.programs.plan), with M as multiples of its `row_step` only: programs fill their
rows up to such a multiple. oneDNN builds code for each M when it first sees it (`builds_by_rows`),
some milliseconds that are spent before the program is ready; its code may sum otherwise by M
(`differs_by_rows`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class StoredProduct(nn.Module):
    """MKL on the weight as stored, [N, K]: no copy."""

    row_step = 4  # fewer rows take other kernels even where the rest agrees
    builds_by_rows = differs_by_rows = False

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.weight = weight
        self.bias = bias

    def forward(self, x: Tensor) -> Tensor:
        # Not addmm: TorchScript takes it apart into mm and add, which is one pass more.
        return nn.functional.linear(x, self.weight, self.bias)              # [M, N]


class TransposedProduct(StoredProduct):
    """MKL on a copy of the weight that lies as [K, N]: the fastest in fp32, above all for few rows.
    """

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__(weight.t().contiguous().t(), bias)


class PackedProduct(nn.Module):
    """oneDNN on a weight packed in its own order; it computes in the weight's type."""

    row_step = 16
    builds_by_rows = differs_by_rows = True

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), 128)
        self.bias = bias

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")


class BFloat16Product(PackedProduct):
    """oneDNN in bfloat16 with sums in fp32, for CPUs that have it (AVX512-BF16, AMX)."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__(weight.bfloat16(), bias.bfloat16())


class HalfProduct(nn.Module):
    """fbgemm on fp16 weights with fp32 maths: half the memory, and faster where that is the limit.
    """

    row_step = 4
    builds_by_rows = differs_by_rows = False

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.packed = torch.ops.quantized.linear_prepack_fp16(weight, bias)

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.quantized.linear_dynamic_fp16(x, self.packed)


# By precision, in the order in which they are tried; of the last one alone it is known that it
# keeps every bit wherever it was tried.
WIDE_KERNELS: dict[str, dict[str, Any]] = {
    "fp32": {"mkl-transposed": TransposedProduct, "mkl-stored": StoredProduct,
             "onednn": PackedProduct},
    "fp16": {"fbgemm-fp16": HalfProduct},
    "bf16": {"onednn-bf16": BFloat16Product},
}
