"""Machine code on arrays that notice when something is written beside them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from model.native import cpu
from model.native.arguments import Fields
from model.native.assembler import Assembler
from model.native.executable import Executable

SENTINEL = 0xa5
GUARD_BYTES = 4096


class Guarded:
    """Arrays on boundaries of 64 bytes, each between bytes that check() wants untouched."""

    def __init__(self) -> None:
        self._guards: list[np.ndarray] = []

    def put(self, values: np.ndarray) -> np.ndarray:
        """A guarded copy."""
        memory = np.full(2 * GUARD_BYTES + 64 + values.nbytes, SENTINEL, dtype=np.uint8)
        begin = GUARD_BYTES + -(memory.ctypes.data + GUARD_BYTES) % 64
        end = begin + values.nbytes
        self._guards += [memory[:begin], memory[end:]]
        array = memory[begin:end].view(values.dtype).reshape(values.shape)
        array[...] = values
        return array

    def check(self) -> None:
        assert all((guard == SENTINEL).all() for guard in self._guards)


def skip_without(unit: str = "") -> None:
    """Skips the test where there is no machine code, or not with this unit."""
    found = cpu.integer_products()
    if not found.kind or unit == "amx" and found.kind != "amx":
        pytest.skip(found.reason)


def run_code(emit: Callable[[Assembler, Fields], None], arrays: dict[str, np.ndarray]) -> None:
    """Runs what `emit` puts at the label "kernel" once, with guarded copies of these arrays, into
    which results are written back. Skips the test where the CPU lacks what it takes."""
    skip_without()
    fields, a, memory = Fields(*arrays), Assembler(), Guarded()
    emit(a, fields)
    code = Executable(*a.finish())
    copies: dict[int, np.ndarray] = {}
    for array in arrays.values():  # an array under two names stays one
        copies.setdefault(id(array), memory.put(array))
    block = fields.block(**{name: copies[id(array)] for name, array in arrays.items()})
    code.function("kernel")(block.ctypes.data)
    memory.check()
    for array in arrays.values():
        array[...] = copies[id(array)]
