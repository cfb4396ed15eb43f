"""Where the entries of a zip file lie that compresses nothing, as torch writes it.

An own reader, because such a file is believed nothing: the directory is bounded before it is read,
an entry lies inside the file, and nothing is ever unpacked, so that no bomb can go off.
"""

from __future__ import annotations

import os
import struct
from typing import NamedTuple

from loader.errors import CheckpointError, shown

ENTRY_LIMIT = 100_000            # one a tensor, and five
DIRECTORY_BYTES = 32 << 20
COMMENT_BYTES = 65_535
ALL_32 = 0xFFFFFFFF  # "look in the extra field"
ENCRYPTED = 1
_END = struct.Struct("<4s4H2IH")
_LOCATOR = struct.Struct("<4sIQI")
_END_64 = struct.Struct("<4sQ2H2I4Q")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_LOCAL = struct.Struct("<4s5H3I2H")


class Entry(NamedTuple):
    """The content of one entry: its first byte in the file, and how many there are."""

    begin: int
    size: int


def read_directory(fd: int, file: str) -> dict[str, Entry]:
    """Name → place of every entry of an open zip file. Raises CheckpointError."""
    size = os.fstat(fd).st_size
    try:
        count, begin, length = _directory(fd, size, file)
        if count > ENTRY_LIMIT or length > DIRECTORY_BYTES:
            raise CheckpointError(f"{file} is a zip file of {count} entries, more than any "
                                  "checkpoint needs; check what it is.")
        directory = os.pread(fd, length, begin)
        entries, at = {}, 0
        for _ in range(count):
            name, entry, at = _entry(fd, directory, at, begin, file)
            if name in entries:
                raise CheckpointError(f"{file} has two entries named {shown(name)}; save the model "
                                      "again.")
            entries[name] = entry
        return entries
    except struct.error:  # a field would lie past the end
        raise _damaged(file) from None


def _directory(fd: int, size: int, file: str) -> tuple[int, int, int]:
    """How many entries, where their directory begins, and its bytes."""
    start = max(0, size - _END.size - COMMENT_BYTES)
    tail = os.pread(fd, size - start, start)
    at = tail.rfind(b"PK\5\6")
    if at < 0:
        raise CheckpointError(f"{file} is a zip file that is cut short; download it again.")
    _, disk, first_disk, _, count, length, begin, _ = _END.unpack_from(tail, at)
    if at >= _LOCATOR.size and tail.startswith(b"PK\6\7", at - _LOCATOR.size):
        _, _, end_64, _ = _LOCATOR.unpack_from(tail, at - _LOCATOR.size)
        if end_64 > size - _END_64.size:
            raise _damaged(file)
        mark, _, _, _, disk, first_disk, _, count, length, begin = _END_64.unpack(
            os.pread(fd, _END_64.size, end_64))
        if mark != b"PK\6\6":
            raise _damaged(file)
    if disk or first_disk or begin + length > size:
        raise _damaged(file)
    return count, begin, length


def _entry(fd: int, directory: bytes, at: int, end: int, file: str) -> tuple[str, Entry, int]:
    """One entry of the directory, and where the next one begins; its content ends before `end`."""
    (mark, _, _, flags, method, _, _, _, packed, size, name_length, extra_length, comment_length,
     _, _, _, local) = _CENTRAL.unpack_from(directory, at)
    if mark != b"PK\1\2":
        raise _damaged(file)
    at += _CENTRAL.size
    name = directory[at:at + name_length].decode("utf-8", "replace")
    extra = directory[at + name_length:at + name_length + extra_length]
    size, packed, local = _wide(extra, size, packed, local)
    if method or flags & ENCRYPTED or packed != size:
        raise CheckpointError(f"{file}: the entry {shown(name)} is compressed or encrypted, which "
                              "torch never does; save the model again.")
    if local > end:
        raise _damaged(file)
    head = _LOCAL.unpack(os.pread(fd, _LOCAL.size, local))
    begin = local + _LOCAL.size + head[-2] + head[-1]
    if head[0] != b"PK\3\4" or begin + size > end:
        raise _damaged(file)
    return name, Entry(begin, size), at + name_length + extra_length + comment_length


def _wide(extra: bytes, size: int, packed: int, local: int) -> tuple[int, int, int]:
    """The same three, those that say so replaced by the 64-bit ones of the extra field."""
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        if kind == 1:
            at += 4
            values = []
            for value in (size, packed, local):
                if value == ALL_32:
                    value, = struct.unpack_from("<Q", extra, at)
                    at += 8
                values.append(value)
            return values[0], values[1], values[2]
        at += 4 + length
    return size, packed, local


def _damaged(file: str) -> CheckpointError:
    return CheckpointError(f"{file} is a zip file with a damaged directory; download it again.")
