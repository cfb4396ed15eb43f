"""The cache keeps the most recently used answers, and never more than it may."""

import random

import pytest

from server.cache import ENTRY_BYTES, Cache


class SlowCache:
    """The same by a list, oldest first, summed up anew each time."""

    def __init__(self, limit_bytes):
        self.limit_bytes = limit_bytes
        self.entries = []

    def size_bytes(self):
        return sum(len(key) + len(logits) + ENTRY_BYTES for key, logits in self.entries)

    def get(self, key):
        for entry in self.entries:
            if entry[0] == key:
                self.entries.remove(entry)
                self.entries.append(entry)
                return entry[1]
        return None

    def put(self, key, logits):
        if len(key) + len(logits) + ENTRY_BYTES > self.limit_bytes:
            return
        self.entries = [entry for entry in self.entries if entry[0] != key]
        self.entries.append((key, logits))
        while self.size_bytes() > self.limit_bytes:
            self.entries.pop(0)


@pytest.mark.parametrize("seed", range(8))
def test_cache_any_use_is_as_the_slow_one_says(seed):
    rng = random.Random(seed)
    limit = rng.choice((100, 500, 5_000, 20_000))
    cache, slow = Cache(limit), SlowCache(limit)
    keys = [rng.randbytes(rng.choice((0, 4, 60, 1000))) for _ in range(40)]
    for _ in range(2000):
        key = rng.choice(keys)
        if rng.random() < 0.5:
            assert cache.get(key) == slow.get(key)
        else:
            logits = rng.randbytes(rng.choice((4, 8, 400)))
            cache.put(key, logits)
            slow.put(key, logits)
        assert cache.size_bytes == slow.size_bytes() <= limit
        assert len(cache) == len(slow.entries)
