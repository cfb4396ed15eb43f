"""Weights of an image in the order and the units that the kernels of products read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from model.native.codes import ABOVE, BELOW, TWO_SIDED_STEPS, TWO_SIDED_ZERO
from model.native.memory import aligned
from model.native.products import packed_columns, packed_weight
from model.native.sums import ROWS, STEP
from model.programs.image import Image
from model.programs.probe import LIMITS


class Weight(NamedTuple):
    """The product with weights that lie one below the other.

    `kind` is "fp32", "int8", or "int7" where no weight takes the eighth bit; `unit` is that of
    products.Product; `factors` (float32 [K], or None) are what inputs are
    multiplied with before they become codes, `least` what they do not fall below (0.0: no bound).
    """

    kind: str
    unit: str
    inputs: int
    outputs: int
    packed: np.ndarray
    columns: np.ndarray
    factors: np.ndarray | None
    least: float

    @property
    def is_coded(self) -> bool:
        """Whether its inputs are 8-bit codes."""
        return self.unit != "avx512"

    @property
    def row_bytes(self) -> int:
        """Of its inputs, filled up."""
        return -(-self.inputs * (1 if self.is_coded else 4) // STEP) * STEP

    @property
    def layer_class(self) -> str:
        return f"{self.kind} {self.outputs}x{self.inputs}"

    def part(self, begin: int, end: int) -> Weight:
        """Outputs `begin` to `end` of the product, multiples of 32, in the same memory."""
        groups = slice(begin // ROWS, end // ROWS)
        packed = self.packed.reshape(len(self.columns), -1)[groups].reshape(-1)
        return self._replace(outputs=end - begin, packed=packed, columns=self.columns[groups])


class Weights:
    """Reads weights; those of 8 bits are for `unit`, "amx" or "vnni"."""

    def __init__(self, image: Image, unit: str) -> None:
        self._image = image
        self._unit = unit
        self._products: dict[tuple, Weight] = {}

    def vector(self, name: str) -> np.ndarray:
        """float32 [N]."""
        return aligned(self._image.widened(name).numpy())

    def shift(self, name: str) -> np.ndarray:
        """Of the norm `name`, float32 [N]: zeros where it has none."""
        return aligned(self._image.bias(name).numpy())

    def normalised(self, x: np.ndarray, name: str, eps: float) -> np.ndarray:
        """The LayerNorm `name` of constants, float32."""
        centred = x - x.mean(1, keepdims=True)
        deviation = np.sqrt(np.square(centred).mean(1, keepdims=True) + np.float32(eps))
        return centred / deviation * self.vector(f"{name}.weight") + self.shift(name)

    def transformed(self, x: np.ndarray, name: str) -> np.ndarray:
        """x · Wᵀ + b of the product `name` for constants, in float32 whatever the weight has."""
        return x @ self._image.wide_weight(name).numpy().T + self._image.bias(name).numpy()

    def table(self, name: str) -> np.ndarray:
        """float32 [rows, width], without a copy where it is stored so."""
        return self._image.widened(name).numpy()

    def product(self, *names: str, least: float = 0.0) -> Weight:
        """`least` is a bound below the inputs that is near 0, or 0.0 where they have both signs. A
        product that is asked for again is the same."""
        key = names, least
        if key not in self._products:
            self._products[key] = self._made(names, least)
        return self._products[key]

    def _made(self, names: Sequence[str], least: float) -> Weight:
        bias = np.concatenate([self._image.bias(name).numpy() for name in names])
        if not all(self._image.is_quantised(f"{name}.weight") for name in names):
            values = self._joined(names, "weight")
            return Weight("fp32", "avx512", values.shape[1], values.shape[0],
                          packed_weight(values), aligned(packed_columns(bias)), None, least)
        values = np.concatenate([self._image.stored(f"{name}.weight").numpy() for name in names])
        kind = "int7" if np.abs(values).max() <= LIMITS["int7"] else "int8"
        steps, zero_point = (ABOVE, BELOW) if least < 0 else (TWO_SIDED_STEPS, TWO_SIDED_ZERO)
        columns = packed_columns(bias, self._joined(names, "scales") / np.float32(steps),
                                 -zero_point * values.sum(1, dtype=np.int32))
        divisors = f"{names[0]}.divisors"
        factors = aligned(1 / self._image.widened(divisors).numpy()) \
            if self._image.has(divisors) else None
        return Weight(kind, self._unit, values.shape[1], values.shape[0],
                      packed_weight(values), aligned(columns), factors, least)

    def _joined(self, names: Sequence[str], part: str) -> np.ndarray:
        """float32, one below the other."""
        return np.concatenate([self._image.widened(f"{name}.{part}").numpy() for name in names])
