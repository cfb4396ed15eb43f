"""The wire format: records of text and user id, in a body or a file, and their 16-byte answers.

A record, little-endian without padding: u32 text_len (bit 31: a pair follows), text, [u32 pair_len,
pair], u64 user_id. The places of records are chained by their lengths, so they can only be found
one after another: 100,000 records take about 20 ms in plain Python, which leaves nothing to gain
from anything cleverer. A walk goes in steps, so that a loop can do other things in between.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Sequence
from itertools import repeat
from typing import NamedTuple

from loader.errors import WireError, shown

PAIR = 1 << 31
LARGEST = PAIR - 1        # bytes of a text or of its pair
SMALLEST_RECORD = 12      # bytes: an empty text and its user_id
WINDOW_BYTES = 1 << 20    # what is read of a file at a time while looking for records
LARGEST_IN_FILE = 16 << 20  # bytes of a record in a file: so much is read into memory at once
MARK_EVERY = 4096         # records between two remembered places of a file

OK, NOT_UTF8, TOO_LONG, FAILED = range(4)  # the status of an answer
NO_LABEL = 65535
ANSWER = struct.Struct("<QfHH")
_LENGTH = struct.Struct("<I")
_ID = struct.Struct("<Q")
_record = tuple.__new__  # half the time of Record(…)


class Record(NamedTuple):
    """One text to classify; `text` and `pair` are the bytes as they came, UTF-8 or not."""

    text: bytes
    pair: bytes | None
    user_id: int


def write_record(text: bytes, pair: bytes | None, user_id: int) -> bytes:
    """One record's bytes; an empty pair is no pair. ValueError where a field has no room."""
    if len(text) > LARGEST or pair is not None and len(pair) > LARGEST:
        raise ValueError(f"a text of a record has at most {LARGEST} bytes")
    if not 0 <= user_id < 1 << 64:
        raise ValueError(f"user_id {user_id} is not an unsigned 64-bit integer")
    if not pair:
        return _LENGTH.pack(len(text)) + text + _ID.pack(user_id)
    return b"".join((_LENGTH.pack(len(text) | PAIR), text, _LENGTH.pack(len(pair)), pair,
                     _ID.pack(user_id)))


def pack_answer(user_id: int, score: float, label: int, status: int) -> bytes:
    """The 16 bytes of one answer; not ok means score NaN and label NO_LABEL, whatever is given."""
    if status != OK:
        score, label = float("nan"), NO_LABEL
    return ANSWER.pack(user_id, score, label, status)


class Walk:
    """Finds the records of a whole body, step by step.

    `starts` holds the offset of each record found so far. `step` raises WireError at the first
    record whose lengths do not add up; then no record of the body counts.
    """

    def __init__(self, body: bytes) -> None:
        self.starts: list[int] = []
        self._body = body
        self._at = 0

    def step(self, limit: int) -> bool:
        """Finds at most `limit` more records; True when the end of the body is reached."""
        starts, self._at = find_records(self._body, self._at, limit)
        if len(starts) < limit and self._at < len(self._body):
            raise WireError(_fault(self._body, self._at, len(self.starts) + len(starts)))
        self.starts += starts
        return self._at == len(self._body)

    def record(self, index: int) -> Record:
        """The record at that place in `starts`."""
        return record_at(self._body, self.starts[index])


def read_records(body: bytes) -> list[Record]:
    """All records of a body; WireError where it is empty or its lengths do not add up."""
    if not body:
        raise WireError("there is no record in an empty body")
    walk = Walk(body)
    walk.step(len(body))
    return [record_at(body, start) for start in walk.starts]


def find_records(data: bytes, at: int, limit: int) -> tuple[list[int], int]:
    """Offsets of at most `limit` whole records from `at` on, and where the last of them ends.

    Stops without an error at a record that is cut short or has the pair's bit 31 set.
    """
    starts: list[int] = []
    found, end, length_at = starts.append, len(data), _LENGTH.unpack_from
    last = end - SMALLEST_RECORD
    for _ in repeat(None, limit):
        if at > last:
            break
        found(at)
        length, = length_at(data, at)
        if length < PAIR:
            at += SMALLEST_RECORD + length
            continue
        middle = at + 4 + length - PAIR
        pair_length = length_at(data, middle)[0] if middle + 4 <= end else PAIR
        at = middle + SMALLEST_RECORD + pair_length if pair_length < PAIR else end + 1
    if at > end:  # one check at the end is faster than one a record
        at = starts.pop()
    return starts, at


def record_at(data: bytes, at: int) -> Record:
    """The record that begins at `at`, where `find_records` found it."""
    length, = _LENGTH.unpack_from(data, at)
    begin = at + 4
    if length < PAIR:
        end = begin + length
        return _record(Record, (data[begin:end], None, _ID.unpack_from(data, end)[0]))
    middle = begin + length - PAIR
    end = middle + 4 + _LENGTH.unpack_from(data, middle)[0]
    return _record(Record, (data[begin:middle], data[middle + 4:end] or None,
                            _ID.unpack_from(data, end)[0]))


class RecordFile:
    """A plain file of records that others may cut or overwrite while it is read.

    It is read by pread in windows, not through a mapping: a page of a mapping whose file was cut is
    SIGBUS, the death of the process, and no check before the access can rule that out; copying
    100,000 records costs 2 ms. Any change of the length is WireError, and every window is checked
    anew, so that an overwritten one gives WireError or sound records, never anything else.
    """

    def __init__(self, fd: int) -> None:
        """Takes over the descriptor of a plain file."""
        self._fd = fd
        self.size = os.fstat(fd).st_size
        self._marks = [0]    # the offset of each record whose number is a multiple of MARK_EVERY
        self._known = 0      # records found so far
        self._end = 0        # where the last of them ends

    @classmethod
    def open(cls, directory: str, name: str) -> RecordFile:
        """Opens the plain file `name` of `directory`: no link and no path that leads elsewhere.

        Raises WireError (no such name, not a plain file) or OSError.
        """
        if not name or name in (".", "..") or "/" in name or "\0" in name:
            raise WireError(f"{shown(name)} is not the name of a file in the folder of records")
        folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                raise WireError(f"{shown(name)} is not a plain file")
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            return cls(os.open(name, flags, dir_fd=folder))
        finally:
            os.close(folder)

    def close(self) -> None:
        """Closes the descriptor."""
        os.close(self._fd)

    def reach(self, number: int, limit: int) -> bool:
        """Looks at most `limit` records further for record `number`: 10,000 take about 3 ms.

        True when its place is known, or when the file ends before it.
        """
        while limit > 0 and self._known <= number and self._end < self.size:
            limit -= len(self._step(self._known, self._end, limit)[0])
        return self._known > number or self._end == self.size

    def index(self, first: int, count: int) -> list[int]:
        """Offsets of the records first … first + count - 1, and at the end where they end.

        Fewer where the file ends before: one offset alone says that there is none. A call looks at
        all records up to there that none has looked at; `reach` does the same in steps.
        """
        mark = min(first // MARK_EVERY, len(self._marks) - 1)
        number, at = mark * MARK_EVERY, self._marks[mark]
        offsets: list[int] = []
        while number < first + count and at < self.size:
            found, at = self._step(number, at, first + count - number)
            offsets += found if number >= first else found[first - number:]
            number += len(found)
        return offsets + [at]

    def read(self, offsets: Sequence[int]) -> list[Record]:
        """The records between neighbours of `offsets`, a slice of what `index` gave.

        The caller bounds the slice by its bytes: all of them are read at once.
        """
        if len(offsets) < 2:
            return []
        begin = offsets[0]
        data = self._window(begin, offsets[-1] - begin)
        starts, end = find_records(data, 0, len(offsets))
        if end != len(data) or [begin + start for start in starts] != list(offsets[:-1]):
            raise WireError("the file changed while it was read")
        return [record_at(data, start) for start in starts]

    def _step(self, number: int, at: int, limit: int) -> tuple[list[int], int]:
        """Offsets of 1 to `limit` records from `number` on, which is at `at`, and their end.

        Goes no further than to the next mark, which it remembers. WireError where there is none.
        """
        size = WINDOW_BYTES
        while True:
            data = self._window(at, min(size, self.size - at))
            starts, end = find_records(data, 0, min(limit, MARK_EVERY - number % MARK_EVERY))
            if starts:
                break
            if len(data) == self.size - at:
                raise WireError(_fault(data, 0, number, at))
            if size == LARGEST_IN_FILE:
                raise WireError(f"record {number} (at byte {at}) is not sound or longer than "
                                f"{LARGEST_IN_FILE} bytes")
            size = LARGEST_IN_FILE  # one record longer than the window
        number, end = number + len(starts), at + end
        if number > self._known:
            self._known, self._end = number, end
            if number % MARK_EVERY == 0:
                self._marks.append(end)
        return [at + start for start in starts] if at else starts, end

    def _window(self, at: int, size: int) -> bytes:
        data = os.pread(self._fd, size, at)
        if len(data) != size or os.fstat(self._fd).st_size != self.size:
            raise WireError("the file changed its length while it was read")
        return data


def _fault(data: bytes, at: int, number: int, base: int = 0) -> str:
    """Why no record begins at `at`: record and byte are counted from 0."""
    where = f"record {number} (at byte {base + at})"
    room = len(data) - at
    if room < SMALLEST_RECORD:
        return f"{where} is cut short: a record has at least {SMALLEST_RECORD} bytes, not {room}"
    length, = _LENGTH.unpack_from(data, at)
    if length < PAIR:
        return f"{where} says {length} bytes of text, which leads past the end"
    middle = 4 + length - PAIR
    if middle + 4 > room:
        return f"{where} says {length - PAIR} bytes of text and a pair, which leads past the end"
    pair_length, = _LENGTH.unpack_from(data, at + middle)
    if pair_length >= PAIR:
        return f"{where} has bit 31 of its pair_len set"
    return f"{where} says {pair_length} bytes of pair, which leads past the end"
