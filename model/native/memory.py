"""Arrays that kernels may read and write: on boundaries of vectors, with room past their end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

LINE = 64
SPARE_ROWS = 32  # that kernels may touch past the last row: as many as they take at once


def rows(count: int, width: int, dtype: Any = np.float32) -> np.ndarray:
    """Zeros [count + SPARE_ROWS, width]; pages that are never written take no memory."""
    return _zeros((count + SPARE_ROWS, width), np.dtype(dtype))


def aligned(values: np.ndarray) -> np.ndarray:
    """A copy without gaps, with a vector to spare."""
    found = _zeros(values.shape, values.dtype)
    found[...] = values
    return found


def _zeros(shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    size = int(np.prod(shape)) * dtype.itemsize
    memory = np.zeros(size + 2 * LINE, dtype=np.uint8)
    begin = -memory.ctypes.data % LINE
    return memory[begin:begin + size].view(dtype).reshape(shape)
