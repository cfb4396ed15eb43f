"""One tensor where it lies: an open file, a place in it, strides; and its bytes in order."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from loader.errors import CheckpointError
from loader.safetensors import BITS, NUMPY, Tensor

CHUNK_BYTES = 4 << 20


@dataclass(frozen=True)
class Stored:
    """A tensor of an open weights file.

    `file` names that file in messages, `dtype` is a word of the safetensors format, `begin` is the
    byte of the file at which its first element lies. `strides` are in elements, as many as
    dimensions; None where the elements lie one after another. Whoever made it has checked that it
    lies inside the file.
    """

    file: str
    fd: int
    dtype: str
    shape: tuple[int, ...]
    begin: int
    strides: tuple[int, ...] | None = None

    @classmethod
    def of(cls, tensor: Tensor, file: str, fd: int) -> Stored:
        """A tensor out of the header of a safetensors file."""
        return cls(file, fd, tensor.dtype, tensor.shape, tensor.begin)

    @property
    def size_bytes(self) -> int:
        """What its elements take when they lie one after another."""
        return math.prod(self.shape) * BITS[self.dtype] // 8

    def chunks(self) -> Iterator[bytearray | bytes]:
        """Its bytes in order, at most about CHUNK_BYTES at a time.

        Raises CheckpointError where the file cannot be read or was cut.
        """
        if self.strides is not None:
            yield from self._gathered(self.strides)
            return
        end = self.begin + self.size_bytes
        for begin in range(self.begin, end, CHUNK_BYTES):
            yield self._read(min(CHUNK_BYTES, end - begin), begin)

    def _gathered(self, strides: tuple[int, ...]) -> Iterator[bytes]:
        """By rows of the first dimension; the stretch of the file that it spans is read whole."""
        kind = np.dtype(NUMPY[self.dtype])
        span = 1 + sum((size - 1) * stride for size, stride in zip(self.shape, strides))
        flat = np.frombuffer(self._read(span * kind.itemsize, self.begin), kind)
        view = np.lib.stride_tricks.as_strided(
            flat, self.shape, [stride * kind.itemsize for stride in strides], writeable=False)
        rows = max(1, CHUNK_BYTES * self.shape[0] // self.size_bytes)
        for row in range(0, self.shape[0], rows):
            yield view[row:row + rows].tobytes()

    def _read(self, count: int, offset: int) -> bytearray:
        data = bytearray(count)
        done = 0
        while done < count:
            try:
                part = os.preadv(self.fd, [memoryview(data)[done:]], offset + done)
            except OSError as error:
                raise CheckpointError(f"{self.file} cannot be read: {error.strerror}; "
                                      "check the disk.") from None
            if part == 0:
                raise CheckpointError(f"{self.file} became shorter while it was read; start again.")
            done += part
        return data


def read_float32(stored: Stored) -> np.ndarray:
    """The whole tensor, widened (or F64 narrowed) to float32; floating types only."""
    flat = np.frombuffer(b"".join(stored.chunks()), NUMPY[stored.dtype])
    if stored.dtype == "BF16":  # the upper half of a float32
        flat = (flat.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return flat.astype(np.float32, copy=False).reshape(stored.shape)
