"""Sums of products for a block of rows and a group of columns.

Weights of a group lie step by step of 64 bytes of inputs, each step as two tiles of 16 columns; a
tile is 16 rows of 4 bytes by 16 columns, which is what AMX and VNNI multiply with; 4 bytes are four
8-bit numbers, or one float32. Sums of integers are exact, whichever unit computes them; those of
float32 are added up in the order of the inputs, one by one. No unit looks at the number of rows.

Where nothing else is said, R14 points at the block's inputs, R15 at the group's weights, RSP at the
sums, int32 or float32 [32, 32], and R13 is the number of rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Protocol

from model.native.assembler import Assembler
from model.native.operands import (R13, R14, R15, RAX, RBP, RBX, RCX, RDX, RSI, RSP, TMM, ZMM, Mem,
                                   Tile, at)

ROWS = 32        # of a block, and columns of a group: two tiles each
TILE = 16        # rows of a tile, and 32-bit numbers of a vector
STEP = 64        # bytes of a tile's row: what inputs are filled up to
TILE_BYTES = TILE * STEP
GROUP_BYTES = 2 * TILE_BYTES  # of the weights of a step
SUMS_STRIDE = 4 * ROWS
SUMS_BYTES = ROWS * SUMS_STRIDE


class Sums(Protocol):
    """Emits one unit's code. It may use RAX, RCX, RDX, RSI and all vectors."""

    works_alone: bool
    """Whether the unit goes on while the core does something else: then a group's sums can be
    computed while those of the group before are completed."""

    def begin(self) -> None:
        """Once in a call of the kernel; it may keep things in RBX and RBP."""

    def compute(self) -> None:
        """The sums of the block's rows, or of the first 16 by a unit that works alone; those past
        the block's may be anything."""


class AmxSums:
    """Tiles of 16 by 16 sums: the unit multiplies 16 rows of 64 bytes in 16 cycles.
    The caller of the kernel has loaded the palette (tiles.py).

    RBX holds the distance of rows of inputs, RBP that of rows of weights.
    """

    works_alone = True

    def __init__(self, a: Assembler, steps: int, stride: int) -> None:
        self._a, self._steps, self._stride = a, steps, stride

    def begin(self) -> None:
        self._a.mov(RBX, self._stride)
        self._a.mov(RBP, STEP)

    def compute(self) -> None:
        for instruction in self.instructions(1):
            instruction()
        self.store(1)

    def instructions(self, tiles: int) -> list[Callable[[], None]]:
        """What computes the sums of so many tiles of rows, each emitting one instruction."""
        a, found = self._a, []
        sums, codes, weights = TMM[0:4], TMM[4:6], TMM[6:8]

        def add(emit: Callable[..., None], *operands: Tile | Mem) -> None:
            found.append(functools.partial(emit, *operands))

        for step in range(self._steps):
            for half in range(2):
                add(a.tileloadd, weights[half],
                    at(R15, step * GROUP_BYTES + half * TILE_BYTES, RBP))
            for tile in range(tiles):
                add(a.tileloadd, codes[tile],
                    at(R14, tile * TILE * self._stride + step * STEP, RBX))
                for half in range(2):
                    if not step:
                        add(a.tilezero, sums[2 * tile + half])
                    add(a.tdpbusd, sums[2 * tile + half], codes[tile], weights[half])
        return found

    def store(self, tiles: int) -> None:
        """The sums of so many tiles of rows to memory."""
        a = self._a
        a.mov(RAX, SUMS_STRIDE)
        for tile in range(tiles):
            for half in range(2):
                a.tilestored(at(RSP, tile * TILE * SUMS_STRIDE + half * STEP, RAX),
                             TMM[2 * tile + half])


class VectorSums:
    """Vectors of 16 sums: 8 rows by 32 columns stay in registers."""

    ROWS = 8
    works_alone = False

    def __init__(self, a: Assembler, steps: int, stride: int, broadcast: str, multiply: str
                 ) -> None:
        self._a, self._steps, self._stride = a, steps, stride
        self._broadcast, self._multiply = getattr(a, broadcast), getattr(a, multiply)

    def begin(self) -> None:
        pass

    def compute(self) -> None:
        """RSI points at the rows' inputs, RDX at their sums, RAX at the weights and RCX counts
        steps; the stack holds the rows left."""
        a, stride = self._a, self._stride
        sums, weights, one_input = ZMM[0:2 * self.ROWS], ZMM[16:18], ZMM[18]
        rows, step = a.fresh("rows"), a.fresh("step")
        a.mov(RSI, R14)
        a.mov(RDX, RSP)
        a.push(R13)
        a.label(rows)
        for register in sums:
            a.vpxord(register, register, register)
        a.mov(RAX, R15)
        a.mov(RCX, self._steps)
        a.label(step)
        for place in range(TILE):
            for half in range(2):
                a.vmovups(weights[half], at(RAX, place * STEP + half * TILE_BYTES))
            for row in range(self.ROWS):
                self._broadcast(one_input, at(RSI, row * stride + 4 * place))
                for half in range(2):
                    self._multiply(sums[2 * row + half], one_input, weights[half])
        a.add(RSI, STEP)
        a.add(RAX, GROUP_BYTES)
        a.sub(RCX, 1)
        a.jg(step)
        for place, register in enumerate(sums):
            a.vmovups_to(at(RDX, place * STEP), register)
        a.add(RSI, self.ROWS * stride - self._steps * STEP)
        a.add(RDX, self.ROWS * SUMS_STRIDE)
        a.sub(at(RSP), self.ROWS)
        a.jg(rows)
        a.pop(RAX)


def sums_of(unit: str, a: Assembler, steps: int, stride: int) -> Sums:
    """The code of a unit: "amx" or "vnni" for 8 bits, "avx512" for float32. Rows of inputs lie
    `stride` bytes from each other."""
    if unit == "amx":
        return AmxSums(a, steps, stride)
    return VectorSums(a, steps, stride, *(("vpbroadcastd", "vpdpbusd") if unit == "vnni"
                                          else ("vbroadcastss", "vfmadd231ps")))
