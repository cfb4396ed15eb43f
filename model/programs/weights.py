"""Parts of a network made from a sealed image, in the precision that each weight has there."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from model.programs.image import Image
from model.programs.int8 import QuantisedWeight
from model.programs.parts import Norm
from model.programs.plan import Plan

# Element-wise functions take whole vectors and do the rest of an array one by one, in other code:
# no array may have a rest, so widths that they run over are filled up with zeros to a multiple.
VECTOR = 32


class Weights:
    """Makes norms and products; `plan` chooses the kernels."""

    def __init__(self, image: Image, plan: Plan, eps: float) -> None:
        self.image = image
        self.plan = plan
        self._eps = eps

    def norm(self, name: str, kind: type[Norm] = Norm) -> Norm:
        """The LayerNorm `name`; one without a bias has a bias of zeros here."""
        return kind(self.image.widened(name + ".weight"), self.image.bias(name), self._eps)

    def product(self, *names: str, fill_outputs: bool = False, fill_inputs: bool = False,
                least: float = 0.0, may_overwrite: bool = False, kind: str = "") -> nn.Module:
        """The product with the weights `names`, one below the other, as one; they are all of 8 bits
        or none.

        A product without a bias has a bias of zeros here. Filled dimensions become multiples of
        VECTOR with zeros. `least` and `may_overwrite` are told to 8-bit kernels (int8.Int8Product);
        `kind` forces a wide precision (plan.Plan).
        """
        fill = _missing(self._rows(names), fill_outputs), \
            _missing(self.image.stored(f"{names[0]}.weight").size(1), fill_inputs)
        bias = _filled(torch.cat([self.image.bias(name) for name in names]), fill[:1])
        if not all(self.image.is_quantised(f"{name}.weight") for name in names):
            weight = torch.cat([self.image.widened(f"{name}.weight") for name in names])
            return self.plan.product(names, _filled(weight, fill), bias, least, kind)
        values = torch.cat([self.image.stored(f"{name}.weight") for name in names])
        divisors = f"{names[0]}.divisors"
        weight = QuantisedWeight(
            _filled(values, fill), _filled(self._joined(names, "scales"), fill[:1], 1.0), bias,
            _filled(self.image.widened(divisors), fill[1:], 1.0) if self.image.has(divisors)
            else None)
        return self.plan.quantised_product(weight, least, may_overwrite)

    def transformed(self, x: Tensor, name: str) -> Tensor:
        """x · Wᵀ + b of the product `name` in float32, for constants: the same in every plan."""
        return nn.functional.linear(x, self.image.wide_weight(name), self.image.bias(name))

    def _rows(self, names: Sequence[str]) -> int:
        return sum(len(self.image.stored(f"{name}.weight")) for name in names)

    def _joined(self, names: Sequence[str], part: str) -> Tensor:
        parts = [self.image.widened(f"{name}.{part}") for name in names]
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def _missing(size: int, is_filled: bool) -> int:
    return -size % VECTOR if is_filled else 0


def _filled(tensor: Tensor, missing: Sequence[int], value: float = 0.0) -> Tensor:
    """With `missing` more places at the end of each dimension."""
    if not any(missing):
        return tensor
    return nn.functional.pad(tensor, [at for count in reversed(missing) for at in (0, count)],
                             value=value)
