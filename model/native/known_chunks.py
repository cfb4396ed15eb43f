"""Texts to ids by a table of chunks: what stands between spaces is looked up as it lies in memory.

The code knows neither letters nor encodings: a chunk is its bytes, and only one that is equal to
one of the table counts. So whatever may not be in a text, broken UTF-8 or a quote that ends it, is
in no chunk of the table either, and is left to whoever fills the table.

A line of the table holds ids, how many bytes they take, and their chunk, filled up with spaces, at
least one, so that no chunk is like another with zeros behind it, nor like a line without one. A
chunk has its place in one of four lines; a new one takes the first, the others move, and the last
is forgotten.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable

import numpy as np

from model.native.assembler import LINE, Assembler
from model.native.executable import Executable
from model.native.operands import (K1, K2, R8, R9, R10, R11, RAX, RBP, RBX, RCX, RDI, RDX, RSI, ZMM,
                                   Mem, at)

ROOM_BYTES = 32             # of a chunk with its spaces
CHUNK_BYTES = ROOM_BYTES - 1
IDS_BYTES = 28              # of a chunk
PLACES_BITS = 13            # 2 MiB; of 5,000 chunks some 20 have no line, with two lines 200
PLACE_LINES = 4
PLACE_BYTES = PLACE_LINES * LINE
# Odd numbers by chance: the table's places are the upper bits of sums of products with them.
FACTORS = (0x9e3779b97f4a7c15, 0xc2b2ae3d27d4eb4f, 0xd6e8feb86659fd93, 0xa0761d6478bd642f)

_LINE = struct.Struct(f"<{IDS_BYTES}sI{ROOM_BYTES}s")
_CHUNK_AT = LINE - ROOM_BYTES
_WORDS = struct.Struct("<4Q")
_LOOK_UP = "look_up"


class KnownChunks:
    """A table, empty at first, and the code for it.

    look_up(data, begin, end) writes the ids of data[begin:end] in their frame to `written`, from
    LINE on, and gives where they end; else the complement of the offset in `data` of the first
    chunk that the table does not have, or of `end` where there are too many ids. It checks nothing:
    `data` are bytes, and 0 <= begin <= end <= len(data).

    `frame` are the bytes of the ids before and behind every text, each of at most a line; a text
    has room for `most_bytes` of ids with them.

    Raises OSError where the system lets no file in memory run. The CPU has the vectors
    (cpu.has_vectors). Not for several threads at once.
    """

    def __init__(self, frame: tuple[bytes, bytes], most_bytes: int) -> None:
        start, end = frame
        if max(map(len, frame)) > LINE:
            raise ValueError(f"frames of {max(map(len, frame))} bytes, a line has {LINE}")
        self._table = _memory(PLACE_BYTES << PLACES_BITS)
        # With a line to spare: ids are written a line at a time. The first is room for a chunk.
        self.written = _memory(LINE + most_bytes + IDS_BYTES + LINE)
        self.written[LINE:LINE + len(start)] = start
        room = _address(self.written)
        zero = room + LINE
        assembler = Assembler()
        _emit_look_up(assembler, {
            "table": _address(self._table), "room": room, "first": zero + len(start),
            "limit": zero + most_bytes - len(end), "zero": room - len(end)}, end)
        self._code = Executable(*assembler.finish())
        self.look_up: Callable[[bytes, int, int], int] = self._code.reader(_LOOK_UP)

    def add(self, chunk: bytes, ids: bytes) -> bool:
        """Puts a chunk into the table; False where it does not fit in. It is not empty and holds
        no space."""
        if len(chunk) > CHUNK_BYTES or len(ids) > IDS_BYTES:
            return False
        key = chunk.ljust(ROOM_BYTES)
        place = sum(map(int.__mul__, _WORDS.unpack(key), FACTORS)) % (1 << 64) >> 64 - PLACES_BITS
        begin, table = place * PLACE_BYTES, self._table
        end = begin + PLACE_BYTES
        table[begin:end] = _LINE.pack(ids, len(ids), key) + table[begin:end - LINE]
        return True


def _memory(size: int) -> mmap.mmap:
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _address(memory: mmap.mmap) -> int:
    return np.frombuffer(memory, dtype=np.uint8).ctypes.data


def _emit_look_up(a: Assembler, memory: dict[str, int], end: bytes) -> None:
    """As `KnownChunks.look_up`: RDI points at the data, RSI and RDX are the offsets; RAX becomes
    where the ids end, or the offset's complement.

    RDI: this chunk, RCX: its length, RSI: where the text ends, R8: the data, R9: the table, RDX:
    where its ids go, RBP: room for a line, RBX: 32 ones, K1: bytes that are looked at, ZMM1:
    spaces.
    """
    chunk, hit, passed, done, full, missing = map(a.fresh, (
        "chunk", "hit", "passed", "done", "full", "missing"))
    numbers = {**memory, "spaces": int.from_bytes(b" " * 8, "little"),
               **{f"factor.{place}": factor for place, factor in enumerate(FACTORS)}}
    block = a.constant(struct.pack(f"<{len(numbers)}Q", *numbers.values()))
    number = {name: block + 8 * place for place, name in enumerate(numbers)}

    a.align()
    a.label(_LOOK_UP)
    _emit_begin(a, number)
    a.label(chunk)
    a.cmp(RDI, RSI)
    a.jge(done)
    _emit_length(a)
    a.cmp(RCX, 0)
    a.je(passed)
    a.cmp(RCX, CHUNK_BYTES)
    a.jg(missing)
    _emit_place(a, number)
    for line in range(PLACE_LINES):
        if line:
            a.add(R10, LINE)
        _emit_is_equal(a)
        a.je(hit)
    a.jmp(missing)
    a.label(hit)
    a.vmovups_to(at(RDX), ZMM[2])
    a.movsxd(RAX, at(R10, IDS_BYTES))
    a.add(RDX, RAX)
    a.cmp(RDX, number["limit"])
    a.jg(full)
    a.label(passed)
    a.lea(RDI, at(RDI, 1, RCX))
    a.jmp(chunk)
    a.label(done)
    a.vmovups(ZMM[2], a.constant(end.ljust(LINE, b"\0")))
    a.vmovups_to(at(RDX), ZMM[2])
    a.mov(RAX, RDX)
    a.sub(RAX, number["zero"])
    a.pop(RBP, RBX)
    a.ret()
    a.label(full)
    a.mov(RDI, RSI)
    a.label(missing)
    a.mov(RAX, RDI)
    a.sub(RAX, R8)
    a.xor(RAX, -1)
    a.pop(RBP, RBX)
    a.ret()


def _emit_begin(a: Assembler, number: dict[str, Mem]) -> None:
    """From the arguments to what all chunks find in the registers."""
    a.push(RBX, RBP)
    for offset in (RSI, RDX):   # only their lower halves are given
        a.shl(offset, 32)
        a.shr(offset, 32)
    a.mov(R8, RDI)
    a.add(RDI, RSI)
    a.lea(RSI, at(R8, 0, RDX))
    a.mov(RDX, number["first"])
    a.mov(R9, number["table"])
    a.mov(RBP, number["room"])
    a.mov(RBX, -1)
    a.shr(RBX, _CHUNK_AT)
    a.vpbroadcastd(ZMM[1], number["spaces"])


def _emit_length(a: Assembler) -> None:
    """RCX becomes the number of bytes up to a space or the text's end, or 64 where it is more."""
    last = a.fresh("last")
    # Nothing behind the text is read: bytes that a mask leaves out raise no fault.
    a.mov(RCX, RSI)
    a.sub(RCX, RDI)
    a.mov(RAX, LINE)
    a.cmp(RCX, RAX)
    a.cmovg(RCX, RAX)
    a.mov(RAX, -1)
    a.bzhi(RAX, RAX, RCX)
    a.kmovq(K1, RAX)
    a.vmovdqu8(ZMM[0], at(RDI), mask=K1, zero=True)
    a.vpcmpeqb(K2, ZMM[0], ZMM[1])
    a.kmovq_from(RAX, K2)
    a.cmp(RAX, 0)
    a.je(last)
    a.bsf(RCX, RAX)
    a.label(last)


def _emit_place(a: Assembler, number: dict[str, Mem]) -> None:
    """ZMM0 becomes the chunk as it lies in a line, R10 its first line."""
    a.mov(RAX, -1)
    a.bzhi(RAX, RAX, RCX)
    a.shl(RAX, _CHUNK_AT)
    a.kmovq(K1, RAX)
    a.vmovups(ZMM[0], ZMM[1])
    a.vmovdqu8(ZMM[0], at(RDI, -_CHUNK_AT), mask=K1)
    a.vmovups_to(at(RBP), ZMM[0])
    for word in range(len(FACTORS)):
        target = R11 if word else R10
        a.mov(target, at(RBP, _CHUNK_AT + 8 * word))
        a.imul(target, number[f"factor.{word}"])
        if word:
            a.add(R10, R11)
    a.shr(R10, 64 - PLACES_BITS)
    a.shl(R10, PLACE_BYTES.bit_length() - 1)
    a.add(R10, R9)


def _emit_is_equal(a: Assembler) -> None:
    """Loads a line into ZMM2 and compares its chunk with that in ZMM0; "equal" for the jump that
    follows."""
    a.vmovups(ZMM[2], at(R10))
    a.vpcmpeqb(K2, ZMM[0], ZMM[2])
    a.kmovq_from(RAX, K2)
    a.shr(RAX, _CHUNK_AT)
    a.cmp(RAX, RBX)
