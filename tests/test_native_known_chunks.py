"""Look-ups by machine code give what a dict of chunks gives, and touch nothing beside the text."""

import ctypes
import mmap
import random
import struct

import pytest

from model.native import known_chunks
from model.native.cpu import has_vectors
from model.native.known_chunks import CHUNK_BYTES, IDS_BYTES, LINE, KnownChunks
from tests.walled import walled

pytestmark = pytest.mark.skipif(not has_vectors(), reason="no machine code on this CPU")

START, END = b"\1\2", b"\3\4\5\6"
LETTERS = [*"abcdefghij.,'!\"\\", "\u00e9", "\u4e2d", "\U0001f600", "\0", "\0", "\x7f"]


def found(known, data, begin, end):
    """The ids, or the complement that look_up gives."""
    where = known.look_up(data, begin, end)
    return known.written[LINE:where] if where >= 0 else where


def wanted(table, text, most_bytes, at):
    ids, offset = START, at
    for chunk in text.split(b" "):
        if chunk:
            if chunk not in table:
                return ~offset
            ids += table[chunk]
            if len(ids) + len(END) > most_bytes:
                return ~(at + len(text))
        offset += len(chunk) + 1
    return ids + END


def random_chunk(rng, most=CHUNK_BYTES):
    size = rng.choice((1, 2, 3, 4, 5, 8, 9, 16, 30, CHUNK_BYTES, 80))
    return "".join(rng.choices(LETTERS, k=size)).encode()[:min(size, most)]


@pytest.mark.parametrize("seed", range(3))
def test_known_chunks_random_texts_give_what_a_dict_gives(seed):
    rng = random.Random(seed)
    most_bytes = rng.choice((60, 120))
    known, table, kinds = KnownChunks((START, END), most_bytes), {}, set()
    for _ in range(300):
        chunk = random_chunk(rng)
        table[chunk] = rng.randbytes(2 * rng.choice((0, 1, 1, 2, IDS_BYTES // 2)))
        assert known.add(chunk, table[chunk])
    chunks = list(table)
    for _ in range(2000):
        some = rng.choices(chunks, k=rng.randrange(30)) if rng.random() < 0.5 \
            else rng.choices(chunks[:30], k=rng.randrange(8))
        if rng.random() < 0.2:
            some.insert(rng.randrange(len(some) + 1), random_chunk(rng, 100))
        if rng.random() < 0.3:
            some.insert(rng.randrange(len(some) + 1), b"")
        text = b" ".join(some)
        before, behind = rng.randbytes(rng.randrange(70)), rng.randbytes(rng.randrange(3))
        expected = wanted(table, text, most_bytes, len(before))
        assert found(known, before + text + behind, len(before), len(before + text)) == expected
        kinds.add(type(expected) if type(expected) is bytes else
                  "full" if ~expected == len(before + text) else "missing")
    assert kinds == {bytes, "full", "missing"}, "each end of a look-up is tried"


def test_known_chunks_text_between_walls_is_read_and_nothing_beside_it():
    known = KnownChunks((START, END), 4000)
    for chunk in (b"a", b"bc", b"x" * CHUNK_BYTES):
        known.add(chunk, chunk[:2] * 2)
    page = walled(mmap.PAGESIZE)        # with a wall on either side
    data = ctypes.c_void_p(page.ctypes.data)
    for text in (b"a", b"bc a", b"a " + b"x" * CHUNK_BYTES, b"x" * CHUNK_BYTES + b" a", b"a b",
                 b"x" * 70, b"bc " * 30):
        for at in (0, mmap.PAGESIZE - len(text)):
            page[:] = ord("a")
            page[at:at + len(text)] = list(text)
            alone = found(known, text, 0, len(text))
            there = found(known, data, at, at + len(text))
            assert there == (alone if type(alone) is bytes else ~(~alone + at))


def test_known_chunks_more_than_a_place_holds_are_right_or_missing(monkeypatch):
    monkeypatch.setattr(known_chunks, "PLACES_BITS", 1)
    rng = random.Random(3)
    known, table = KnownChunks((START, END), 400), {}
    missing = 0
    for number in range(500):
        chunk = random_chunk(rng)
        table[chunk] = struct.pack("<H", number)
        known.add(chunk, table[chunk])
        assert found(known, chunk, 0, len(chunk)) == START + table[chunk] + END
        other = rng.choice(list(table))
        seen = found(known, other, 0, len(other))
        missing += seen == -1
        assert seen in (-1, START + table[other] + END)
    assert 100 < missing < 499


def test_known_chunks_zeros_are_neither_an_empty_line_nor_the_end_of_a_chunk():
    known = KnownChunks((START, END), 400)
    known.add(b"a", b"\7\7")
    for size in range(1, 40):
        assert known.look_up(b"a" + bytes(size), 0, 1 + size) == -1
        assert known.look_up(bytes(size), 0, size) == -1


def test_known_chunks_what_is_too_long_for_a_line_is_not_added():
    known = KnownChunks((START, END), 400)
    assert not known.add(b"x" * (CHUNK_BYTES + 1), b"")
    assert not known.add(b"x", bytes(IDS_BYTES + 1))
    assert known.look_up(b"x", 0, 1) == -1


def test_known_chunks_empty_text_is_the_frame():
    assert found(KnownChunks((START, b""), 4), b"  ", 0, 2) == START
    assert found(KnownChunks((b"", b""), 4), b"", 0, 0) == b""
    with pytest.raises(ValueError, match="frames of 65 bytes"):
        KnownChunks((bytes(65), b""), 400)
