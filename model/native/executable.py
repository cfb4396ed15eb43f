"""Machine code made callable."""

from __future__ import annotations

import ctypes
import mmap
import os

import numpy as np


class Executable:
    """Code in pages that can be read and run and were never writable; forks share them.

    They are of a file in memory, since a process that may not make written memory executable, as
    under systemd's MemoryDenyWriteExecute, may map a file to run.
    """

    def __init__(self, code: bytes, labels: dict[str, int]) -> None:
        """Raises OSError where the system lets no file in memory run."""
        file = os.memfd_create("machine code")
        try:
            with open(file, "wb", closefd=False) as written:
                written.write(code)
            self._pages = np.frombuffer(mmap.mmap(
                file, len(code), flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC),
                dtype=np.uint8)
        finally:
            os.close(file)
        self._labels = labels

    def address(self, label: str) -> int:
        """Where the label is in this process and its forks."""
        return self._pages.ctypes.data + self._labels[label]

    def function(self, label: str) -> ctypes._CFuncPtr:
        """The function there: it takes one pointer, gives nothing, and holds no lock of Python's.
        """
        return ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.address(label))

    def reader(self, label: str) -> ctypes._CFuncPtr:
        """The function there: it takes bytes and two offsets in them, and gives a number, all below
        2 GiB. Without a list of its arguments' types a call takes half as long."""
        return ctypes.PYFUNCTYPE(ctypes.c_int)(
            self.address(label))
