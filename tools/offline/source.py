"""A file of texts as a run of raw lines or records, from its beginning or one shard of it.

A shard is a stretch of bytes, and an item belongs to the one in which it begins: the results of
all shards, one after another, are those of the whole file.
"""

import os
import sys
from typing import NamedTuple

from loader.errors import WireError
from loader.wire import RecordFile
from tools.texts.formats import numbered_lines

TAKE_BYTES = 256 << 10  # of one part, unless its first item is longer
COUNT_BYTES = 1 << 20
STANDARD_INPUT = "-"


class SourceError(Exception):
    """The file cannot be read (on): one sentence with its name."""


class Shard(NamedTuple):
    """The `index`th (from 0) of `count` shards."""

    index: int = 0
    count: int = 1

    def ends(self, size: int) -> tuple[int, int]:
        """The stretch of a file of `size` bytes."""
        return size * self.index // self.count, size * (self.index + 1) // self.count


class Lines:
    """The lines of a file; item numbers count from 1, as editors do."""

    def __init__(self, path: str, shard: Shard, skip: int) -> None:
        """Skips the first `skip` lines of the shard. Raises OSError."""
        self._file = sys.stdin.buffer if path == STANDARD_INPUT else open(path, "rb")
        self._begin = self._position = 0
        self._end: int | None = None
        number = 1
        if path != STANDARD_INPUT and self._file.seekable():
            self._begin, self._end = shard.ends(os.fstat(self._file.fileno()).st_size)
            number = self._seek_line()
        self._lines = numbered_lines(self._file, number)
        for _ in range(skip):
            if self._next() is None:
                break

    @property
    def done(self) -> float | None:
        """The share of the shard that was taken; None where its size is not known."""
        if self._end is None:
            return None
        return min(1.0, (self._position - self._begin) / max(1, self._end - self._begin))

    def take(self, limit: int) -> tuple[int, list[bytes | None]]:
        """The number of the next line, and at most `limit` lines, None for one that is too long;
        no lines at the end."""
        first, items, size = 0, [], 0
        while len(items) < limit and size < TAKE_BYTES:
            found = self._next()
            if found is None:
                break
            number, line = found
            first = first or number
            items.append(line)
            size += len(line or b"")
        return first, items

    def close(self) -> None:
        self._file.close()

    def _next(self) -> tuple[int, bytes | None] | None:
        if self._end is not None:
            self._position = self._file.tell()
            if self._position >= self._end:
                return None
        return next(self._lines, None)

    def _seek_line(self) -> int:
        """Goes to the first line that begins in the shard; its number."""
        number, left = 1, self._begin
        while left:  # read it all: a line's number is how many ends come before it
            block = self._file.read(min(left, COUNT_BYTES))
            number += block.count(b"\n")
            left -= len(block)
            if left == 0 and not block.endswith(b"\n"):
                self._file.readline()
                number += 1
        return number


class Records:
    """The records of a packed file, each as its raw bytes; item numbers count from 0."""

    def __init__(self, path: str, shard: Shard, skip: int) -> None:
        """Skips the first `skip` records of the shard. Raises OSError or SourceError."""
        self._path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._file = RecordFile(self._fd)
        self._begin, self._end = shard.ends(self._file.size)
        self._number, self._position = 0, 0
        while self._position < self._begin and self._advance(COUNT_BYTES, self._begin):
            continue
        while skip > 0 and (passed := self._advance(min(skip, COUNT_BYTES), self._end)):
            skip -= passed

    @property
    def done(self) -> float:
        """The share of the shard that was taken."""
        return min(1.0, (self._position - self._begin) / max(1, self._end - self._begin))

    def take(self, limit: int) -> tuple[int, list[bytes | None]]:
        """The number of the next record, and at most `limit` records; none at the end."""
        offsets = self._offsets(limit, self._end)
        while len(offsets) > 2 and offsets[-1] - offsets[0] > TAKE_BYTES:
            del offsets[len(offsets) // 2 + 1:]
        first, begin = self._number, offsets[0]
        if len(offsets) < 2:
            return first, []
        data = os.pread(self._fd, offsets[-1] - begin, begin)
        if len(data) != offsets[-1] - begin:
            raise SourceError(f"{self._path} became shorter while it was read.")
        self._number, self._position = first + len(offsets) - 1, offsets[-1]
        return first, [data[at - begin:end - begin] for at, end in zip(offsets, offsets[1:])]

    def close(self) -> None:
        self._file.close()

    def _advance(self, limit: int, end: int) -> int:
        """Passes over at most `limit` records that begin before `end`; how many."""
        offsets = self._offsets(limit, end)
        self._number += len(offsets) - 1
        self._position = offsets[-1]
        return len(offsets) - 1

    def _offsets(self, limit: int, end: int) -> list[int]:
        """Where the next records begin, those before `end` only, and where the last one ends."""
        try:
            offsets = self._file.index(self._number, limit)
        except WireError as error:
            raise SourceError(f"{self._path}: {error}.") from None
        while len(offsets) > 1 and offsets[-2] >= end:
            offsets.pop()
        return offsets


Source = Lines | Records
