"""Machine code made callable."""

from __future__ import annotations

import ctypes
import mmap

_libc = ctypes.CDLL(None, use_errno=True)
_mprotect = _libc.mprotect
_mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class Executable:
    """Code in pages that can be read and run, and no longer written; forks share them."""

    def __init__(self, code: bytes, labels: dict[str, int]) -> None:
        """Raises OSError where the system lets no process run memory that it has written."""
        self._pages = mmap.mmap(-1, len(code), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._pages[:] = code
        self._begin = ctypes.addressof(ctypes.c_char.from_buffer(self._pages))
        self._labels = labels
        size = -(-len(code) // mmap.PAGESIZE) * mmap.PAGESIZE
        if _mprotect(self._begin, size, mmap.PROT_READ | mmap.PROT_EXEC):
            number = ctypes.get_errno()
            raise OSError(number, "memory cannot be made executable here")

    def address(self, label: str) -> int:
        """Where the label is in this process and its forks."""
        return self._begin + self._labels[label]

    def function(self, label: str) -> ctypes._CFuncPtr:
        """The function there: it takes one pointer, gives nothing, and holds no lock of Python's.
        """
        return ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.address(label))
