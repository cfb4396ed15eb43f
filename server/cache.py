"""Answers that are kept: logits by text, in bounded memory, the least recently used out (pure).

A key is a text's whole ids and split, never a hash of them, so no text gets another's answer. The
dispatcher has a cache, which every front reaches through it (some 0.2 ms), and each front has a
small one of what it has had from there, so that a text that comes often wakes nobody else.
"""

from collections import OrderedDict

from server.messages import Job, Row

# What an entry takes beside the bytes of its key and its logits: two bytes objects with the
# allocator's rounding, a node of the order, and a place in a table that has just been doubled.
ENTRY_BYTES = 352


class Cache:
    """Logits by key, in at most `limit_bytes`, an entry counted with all that it takes."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.size_bytes = 0
        self._logits: OrderedDict[bytes, bytes] = OrderedDict()

    def __len__(self) -> int:
        return len(self._logits)

    def get(self, key: bytes) -> bytes | None:
        """The logits kept for a key, which is the most recently used from now on."""
        logits = self._logits.get(key)
        if logits is not None:
            self._logits.move_to_end(key)
        return logits

    def put(self, key: bytes, logits: bytes) -> None:
        """Keeps logits, the most recently used; what has been used least recently makes room."""
        cost = len(key) + len(logits) + ENTRY_BYTES
        if cost > self.limit_bytes:
            return
        older = self._logits.pop(key, None)
        if older is not None:
            self.size_bytes -= len(key) + len(older) + ENTRY_BYTES
        self._logits[key] = logits
        self.size_bytes += cost
        while self.size_bytes > self.limit_bytes:
            left, its_logits = self._logits.popitem(last=False)
            self.size_bytes -= len(left) + len(its_logits) + ENTRY_BYTES


def share_out(cache_mb: int, fronts: int) -> tuple[int, int]:
    """(bytes of the dispatcher's cache, bytes of each front's): half of all, and the rest in equal
    parts."""
    half = cache_mb << 19
    return half, half // fronts


def key_of(row: Row | Job) -> bytes:
    """All that an answer depends on, beside the model."""
    return row.split.to_bytes(4, "little") + row.ids
