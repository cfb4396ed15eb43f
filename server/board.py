"""A text that the master writes and every front can read, in memory that they share.

One writer. A reader that meets a half-written text reads again: the number in front is odd while
it is being written, and another one afterwards.
"""

import mmap
import struct

SIZE_BYTES = 1 << 16
_HEAD = struct.Struct("<QI")        # number of the text, its length
READS = 100


class Board:
    """Anonymous memory, inherited by forks."""

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, SIZE_BYTES)

    def write(self, text: str) -> None:
        """Replaces the text; ValueError where it takes more than SIZE_BYTES."""
        data = text.encode()
        if _HEAD.size + len(data) > SIZE_BYTES:
            raise ValueError(f"a board holds {SIZE_BYTES} bytes, the text has {len(data)}")
        number, _ = _HEAD.unpack_from(self._map)
        _HEAD.pack_into(self._map, 0, number + 1, 0)
        self._map[_HEAD.size:_HEAD.size + len(data)] = data
        _HEAD.pack_into(self._map, 0, number + 2, len(data))

    def read(self) -> str:
        """The text; empty before the first, or where it is being replaced all the time."""
        for _ in range(READS):
            number, length = _HEAD.unpack_from(self._map)
            data = self._map[_HEAD.size:_HEAD.size + length]
            if number % 2 == 0 and _HEAD.unpack_from(self._map)[0] == number:
                return data.decode()
        return ""
