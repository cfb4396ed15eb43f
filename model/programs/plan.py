"""The precision of a program, and which kernel makes each of its products on this machine.

A kernel is tried once (model.programs.probe) and then the same for every engine: a plan travels as
`facts`, so that an engine that is born later computes as the others do, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from model.programs.int8 import INT8_KERNELS, QuantisedWeight
from model.programs.probe import LIMITS, MOST_ROWS, choose, filled
from model.programs.products import WIDE_KERNELS
from model.programs.script import script

FP16_MOST = 65504.0
LEAST_STEP = 4  # where no set of row counts is known to agree


class Plan:
    """Makes products. `kernels` is kernel by layer class, "<kind> <N>x<K>" ("int8 1536x384").

    `rows` are the row counts that keep every bit in all of them, ascending: programs compute with
    such counts only (`fill`). `is_invariant` is false where a kernel has none.
    """

    needs_products = False
    """True of a plan whose very products must run: then no machine code takes their place."""

    def __init__(self, precision: str, kernels: dict[str, str] | None = None,
                 rows: Sequence[int] = range(1, MOST_ROWS + 1), is_invariant: bool = True) -> None:
        self.precision = precision
        self.kernels = dict(kernels or {})
        self.rows = tuple(rows)
        self.is_invariant = is_invariant
        self._samples: dict[tuple, tuple[nn.Module, int, torch.dtype]] = {}

    @property
    def facts(self) -> dict[str, Any]:
        """The arguments that make this plan again, JSON-able."""
        return {"precision": self.precision, "kernels": self.kernels, "rows": list(self.rows),
                "is_invariant": self.is_invariant}

    @property
    def dtype(self) -> torch.dtype:
        """What activations are kept in."""
        return torch.bfloat16 if self.precision == "bf16" else torch.float32

    def fill(self, rows: int) -> int:
        """How many rows to compute where `rows` are wanted."""
        return filled(rows, self.rows)

    def compiled(self, network: nn.Module) -> Any:
        """The network as it runs, once all its products are made."""
        for module in network.modules():
            if isinstance(module, Chunks):
                module.most = self.rows[-1]
        return script(network)

    def product(self, names: Sequence[str], weight: Tensor, bias: Tensor, least: float = 0.0,
                kind: str = "") -> nn.Module:
        """x · Wᵀ + b for a float32 weight [N, K], in `kind` or else the plan's own precision; what
        an 8-bit checkpoint keeps wide is fp32.

        `names` are the weights that lie one below the other, `least` is as for 8 bits: here they
        change nothing.
        """
        kind = kind or ("fp32" if self.precision == "int8" else self.precision)
        if kind == "fp16" and not bool((weight.abs() <= FP16_MOST).all()):
            raise ArithmeticError(f"a weight is beyond {FP16_MOST:.0f}, the most that fp16 holds; "
                                  "use --precision fp32")
        return self._made(kind, weight.shape, WIDE_KERNELS[kind], (weight, bias))

    def quantised_product(self, weight: QuantisedWeight, least: float,
                          may_overwrite: bool) -> nn.Module:
        """The same for an 8-bit weight; the arguments are those of int8.Int8Product."""
        kind = "int7" if int(weight.values.abs().max()) <= LIMITS["int7"] else "int8"
        return self._made(kind, weight.values.shape, INT8_KERNELS, (weight, least, may_overwrite))

    def warm(self) -> None:
        """Has the code for every row count built that there will be, once for a layer class."""
        with torch.inference_mode():
            for product, inputs, dtype in self._samples.values():
                for rows in self.rows:
                    product(torch.zeros(rows, inputs, dtype=dtype))

    def _made(self, kind: str, shape: tuple[int, int], kernels: dict[str, Any],
              arguments: tuple) -> nn.Module:
        outputs, inputs = shape
        layer_class = f"{kind} {outputs}x{inputs}"
        if layer_class not in self.kernels:
            self._try(layer_class, kind, outputs, inputs)
        kernel = kernels[self.kernels[layer_class]]
        product = kernel(*arguments)
        if kernel.builds_by_rows:
            dtype = torch.bfloat16 if kind == "bf16" else torch.float32
            key = layer_class, getattr(product, "is_one_sided", False)
            self._samples.setdefault(key, (product, inputs, dtype))
        return Chunks(product)

    def _try(self, layer_class: str, kind: str, outputs: int, inputs: int) -> None:
        self.kernels[layer_class], rows = choose(kind, outputs, inputs)
        common = tuple(count for count in self.rows if count in rows)
        if common:
            self.rows = common
        else:
            self.is_invariant = False
            self.rows = tuple(count for count in self.rows if count % LEAST_STEP == 0) or self.rows


class Chunks(nn.Module):
    """A product in calls of at most so many rows as its kernel is known to take."""

    def __init__(self, product: nn.Module) -> None:
        super().__init__()
        self.product = product
        self.most: int = MOST_ROWS

    def forward(self, x: Tensor) -> Tensor:
        if x.size(0) <= self.most:
            return self.product(x)
        parts: list[Tensor] = []
        for part in x.split(self.most):
            parts.append(self.product(part))
        return torch.cat(parts)
