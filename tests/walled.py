"""Arrays between pages that nobody may touch: a read or write beside one ends the process."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

from model.native.memory import LINE

_mprotect = ctypes.CDLL(None, use_errno=True).mprotect
_mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
PROT_NONE = 0


def walled(size: int, room: int = 0, from_below: bool = False) -> np.ndarray:
    """Zeros, uint8 [size], from a boundary of vectors on and with `room` bytes behind: a multiple
    of vectors, the wall stands right behind them. With `from_below` it stands right before."""
    taken = -(-size // LINE) * LINE + room
    pages = -(-taken // mmap.PAGESIZE)
    memory = mmap.mmap(-1, (pages + 2) * mmap.PAGESIZE)
    first = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    end = (pages + 1) * mmap.PAGESIZE
    for wall in (first, first + end):
        if _mprotect(wall, mmap.PAGESIZE, PROT_NONE):
            raise OSError(ctypes.get_errno(), "no wall can be built")
    begin = mmap.PAGESIZE if from_below else end - taken
    return np.frombuffer(memory, dtype=np.uint8)[begin:begin + size]
