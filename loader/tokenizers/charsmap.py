"""The precompiled charsmap of sentencepiece: what it replaces, and doing so as the reference.

A charsmap is a double-array trie of UTF-8 keys (Darts' layout: little-endian units of 32 bits),
led by its size in bytes, and behind it the replacements, each ended by a zero byte.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator

import numpy

from loader.errors import CheckpointError
from loader.tokenizers.grapheme_clusters import CLUSTER, JOINERS

# A cluster of fewer bytes than this is looked up whole; so longer keys are never found.
WHOLE_BYTES = 6

_BROKEN = CheckpointError("tokenizer.json: the normalizer's precompiled_charsmap is damaged; save "
                          "the tokenizer again.")


def read_charsmap(encoded: object) -> dict[str, str]:
    """Text → its replacement, of a base64 text, as far as the reference ever looks.

    Raises CheckpointError.
    """
    try:
        data = base64.b64decode(encoded, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise _BROKEN from None
    size = int.from_bytes(data[:4], "little")
    if len(data) < 8 or size % 4 or not 0 < size <= len(data) - 4:
        raise _BROKEN
    units = numpy.frombuffer(data, dtype="<u4", offset=4, count=size // 4)
    replacements = data[4 + size:]
    try:
        replacements.decode()
        return {key.decode(): _replacement(replacements, at) for key, at in _keys(units)}
    except (UnicodeDecodeError, IndexError):
        raise _BROKEN from None


def _keys(units: numpy.ndarray) -> Iterator[tuple[bytes, int]]:
    """(key, where its replacement begins) of all keys with fewer than WHOLE_BYTES bytes. None
    below another key: the reference takes the shortest."""
    labels = numpy.arange(1, 256, dtype=numpy.uint32)
    waiting, left = [(b"", _offset(int(units[0])))], len(units)
    while waiting:
        key, base = waiting.pop()
        places = labels ^ base
        places[places >= len(units)] = 0            # the root has no label, so is no child
        for byte in labels[units[places] & 0x800000FF == labels].tolist():
            left -= 1
            if left < 0:
                raise _BROKEN                       # no tree: units are children of several
            unit = int(units[base ^ byte])
            child = base ^ byte ^ _offset(unit)
            if unit & 0x100:
                yield key + bytes([byte]), int(units[child]) & 0x7FFFFFFF
            elif len(key) < WHOLE_BYTES - 2:
                waiting.append((key + bytes([byte]), child))


def _offset(unit: int) -> int:
    return unit >> 10 << ((unit & 0x200) >> 6)


def _replacement(replacements: bytes, at: int) -> str:
    if at > len(replacements):
        raise IndexError
    end = replacements.find(b"\0", at)
    return replacements[at:end if end >= 0 else len(replacements)].decode()


class Charsmap:
    """Replaces what the charsmap holds, cluster by cluster."""

    def __init__(self, replacements: dict[str, str]) -> None:
        self._single = {ord(key): value for key, value in replacements.items() if len(key) == 1}
        self._longer = {key: value for key, value in replacements.items() if len(key) > 1}

    def apply(self, text: str) -> str:
        """The text with its replacements; text joined by U+0020 to what comes before or behind is
        the caller's to keep together."""
        if JOINERS.isdisjoint(text):
            return text.translate(self._single)
        return "".join(map(self._cluster, CLUSTER.findall(text)))

    def _cluster(self, cluster: str) -> str:
        """A short cluster becomes what replaces its shortest known beginning, and loses the rest;
        others are replaced by code points."""
        if 1 < len(cluster) < WHOLE_BYTES and len(cluster.encode()) < WHOLE_BYTES:
            whole = self._single.get(ord(cluster[0]))
            for end in range(2, len(cluster) + 1):
                if whole is not None:
                    break
                whole = self._longer.get(cluster[:end])
            if whole is not None:
                return whole
        return cluster.translate(self._single)
