"""What a kernel is told: a block of 64-bit words, addresses mostly, each with a name."""

from __future__ import annotations

import numpy as np

from model.native.operands import RDI, Mem, at


class Fields:
    """The words of a kernel's block in their order; kernels find the block's address in RDI.

    Example: Fields("rows", "x").of("x") is the place at(RDI, 8).
    """

    def __init__(self, *names: str) -> None:
        self.names = names
        self._places = {name: at(RDI, 8 * place) for place, name in enumerate(names)}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fields) and self.names == other.names

    def __hash__(self) -> int:
        return hash(self.names)

    def of(self, name: str) -> Mem:
        return self._places[name]

    def block(self, **words: int | np.ndarray) -> np.ndarray:
        """The block, int64; of an array the address is taken. Whoever holds the block holds the
        arrays too. Raises KeyError for a name that is missing or not there."""
        if words.keys() != set(self.names):
            raise KeyError(f"a kernel takes {sorted(self.names)}, not {sorted(words)}")
        return np.array([word.ctypes.data if isinstance(word, np.ndarray) else word
                         for word in map(words.__getitem__, self.names)], dtype=np.int64)
