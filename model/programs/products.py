"""Products x · Wᵀ + b in fp32, and the choice of the kernel that this machine may use for them.

An answer must not depend on its company, not by a bit, so a row's product must not depend on the
number of rows M. Which kernel keeps that depends on the machine: MKL takes other code for few rows
(seen on Sapphire Rapids: below 16 rows for a weight as stored [N, K], for one row only for its
transpose [K, N]; with AVX2 alone: in patterns up to some 250 rows, for either), oneDNN's packed
weights kept it everywhere from two rows up. So `choose` tries, in order of speed, on the machine.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor, nn

MIN_ROWS = 4  # fewer rows take other kernels even where the rest agrees: they are filled up to 4

PROBE_ROWS = (*range(MIN_ROWS, 10), 13, 15, 16, 17, 23, 31, 32, 33, 55, 66, 87, 127)
PROBE_ALL = 240
PROBE_SHIFT = 17  # a probed row's place differs from its place among all


def at_least(x: Tensor, rows: int) -> Tensor:
    """x [M, K] with its first row repeated below until it has `rows` rows."""
    missing = rows - x.size(0)
    if missing <= 0:
        return x
    return torch.cat([x, x[:1].expand(missing, x.size(1))])


class StoredProduct(nn.Module):
    """MKL on the weight as stored, [N, K]: no copy."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.weight = weight
        self.bias = bias

    def forward(self, x: Tensor) -> Tensor:
        rows = x.size(0)
        # Not addmm: TorchScript takes it apart into mm and add, which is one pass more.
        y = nn.functional.linear(at_least(x, 4), self.weight, self.bias)  # [M, N]
        return y if rows >= 4 else y[:rows]


class TransposedProduct(StoredProduct):
    """MKL on a copy of the weight that lies as [K, N]: the fastest, above all for few rows."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__(weight.t().contiguous().t(), bias)


class PackedProduct(nn.Module):
    """oneDNN on a weight packed in its own order."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), 128)
        self.bias = bias

    def forward(self, x: Tensor) -> Tensor:
        rows = x.size(0)
        # oneDNN builds a primitive for each M; with 32 rows at a time, few are built.
        filled = (rows + 31) // 32 * 32
        y = torch.ops.mkldnn._linear_pointwise(at_least(x, filled), self.weight, self.bias,
                                               "none", [], "")
        return y if rows == filled else y[:rows]


KERNELS: dict[str, type[nn.Module]] = {
    "mkl-transposed": TransposedProduct, "mkl-stored": StoredProduct, "onednn": PackedProduct}


def choose(shapes: Collection[tuple[int, int]]) -> tuple[str, bool]:
    """The kernel for products of these shapes (N, K), and whether it kept every bit here.

    Where none does (no machine seen yet), the last is taken: there answers agree to rounding.
    """
    for name in KERNELS:
        if all(is_invariant(name, *shape) for shape in shapes):
            return name, True
    return name, False


def is_invariant(name: str, outputs: int, inputs: int,
                 row_counts: Collection[int] = PROBE_ROWS) -> bool:
    """True if no row's product changes by a bit with the number of rows and its place in them."""
    random = torch.Generator().manual_seed(outputs * 65537 + inputs)
    x = torch.randn(max(PROBE_ALL, *row_counts) + PROBE_SHIFT, inputs, generator=random)
    product = KERNELS[name](torch.randn(outputs, inputs, generator=random) / inputs ** 0.5,
                            torch.randn(outputs, generator=random))
    expected = product(x)[PROBE_SHIFT:]
    x = x[PROBE_SHIFT:]
    return all(torch.equal(product(x[:rows].clone()), expected[:rows]) for rows in row_counts)
