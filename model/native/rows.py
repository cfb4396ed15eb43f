"""Kernels that bring rows to the finish routines: embeddings, attention's rows, first rows."""

from __future__ import annotations

from model.native.arguments import Fields
from model.native.assembler import Assembler
from model.native.columns import Columns, codes_stride, sweep
from model.native.operands import (R8, R9, R10, R11, R12, R13, RBX, RBP, RCX, RDX, RSI, ZMM, Gpr,
                                   at)

BLOCK = 32  # rows that a finish routine takes at once
AHEAD = 4   # rows whose words are fetched before they are needed; more gained nothing

# Addresses: tables float32 [V, H] and [P, H], int64 [N] twice, of the count of rows N, float32 rows
# [N, H].
EMBED = ("words", "places", "ids", "where", "rows", "x")
FINISH_ALL = ("rows",)
# Addresses: int64 [B], of the count of texts B, float32 [N, H], float32 [B, H].
FIRSTS = ("starts", "texts", "x", "x_first")


def emit_embed(a: Assembler, label: str, fields: Fields, width: int, stride: int,
               finish: str) -> None:
    """Rows x, `stride` bytes apart, become words[ids[r]] + places[where[r]], and are finished by
    the routine `finish`. The fields are EMBED and those of `finish`."""
    size = 4 * width
    a.align()
    a.label(label)
    _emit_blocks_start(a, fields)
    block, row, done = a.fresh("block"), a.fresh("row"), a.fresh("done")
    a.cmp(R12, 0)
    a.jle(done)
    a.label(block)
    _emit_block_size(a)
    a.mov(RSI, fields.of("ids"))
    a.lea(RSI, at(RSI, 0, RBX, 8))      # this row's id
    a.mov(R11, fields.of("where"))
    a.lea(R11, at(R11, 0, RBX, 8))      # this row's place
    a.imul(R8, RBX, stride)
    a.add(R8, fields.of("x"))           # this row
    a.push(R8)
    a.mov(RCX, RDX)                     # rows left in the block
    a.label(row)
    # An id beyond the last row may be anything: fetching ahead never faults.
    for target, number, table, stands in ((R13, RSI, "words", AHEAD), (R9, RSI, "words", 0),
                                          (R10, R11, "places", 0)):
        a.imul(target, at(number, 8 * stands), size)
        a.add(target, fields.of(table))

    def add(columns: Columns, _: int) -> None:
        a.prefetcht1(columns.floats(R13))
        a.vmovups(ZMM[0], columns.floats(R9))
        a.vaddps(ZMM[0], ZMM[0], columns.floats(R10))
        a.vmovups_to(columns.floats(R8), ZMM[0])

    sweep(a, width, add)
    a.add(RSI, 8)
    a.add(R11, 8)
    a.add(R8, stride)
    a.sub(RCX, 1)
    a.jg(row)
    a.mov(RSI, RBX)
    a.pop(RCX)
    a.call(finish)
    _emit_next_block(a, block)
    a.label(done)
    _emit_blocks_end(a)


def emit_finish_all(a: Assembler, label: str, fields: Fields, source: str, stride: int,
                    finish: str) -> None:
    """Finishes all rows of the float32 array in the field `source`, `stride` bytes apart.

    The fields are FINISH_ALL, `source` and those of `finish`.
    """
    a.align()
    a.label(label)
    _emit_blocks_start(a, fields)
    block, done = a.fresh("block"), a.fresh("done")
    a.cmp(R12, 0)
    a.jle(done)
    a.label(block)
    _emit_block_size(a)
    a.mov(RSI, RBX)
    a.imul(RCX, RBX, stride)
    a.add(RCX, fields.of(source))
    a.call(finish)
    _emit_next_block(a, block)
    a.label(done)
    _emit_blocks_end(a)


def emit_firsts(a: Assembler, label: str, fields: Fields, width: int, stride: int) -> None:
    """Row starts[b] of x to row b of x_first for every text b, `stride` bytes from row to row; the
    fields are FIRSTS."""
    a.align()
    a.label(label)
    again, done = a.fresh("text"), a.fresh("done")
    a.mov(RCX, fields.of("texts"))
    a.mov(RCX, at(RCX))                 # texts left
    a.cmp(RCX, 0)
    a.jle(done)
    a.mov(RSI, fields.of("starts"))     # this text's start
    a.mov(R8, fields.of("x_first"))     # its row there
    a.label(again)
    a.imul(R11, at(RSI), stride)
    a.add(R11, fields.of("x"))

    def move(columns: Columns, _: int) -> None:
        a.vmovups(ZMM[0], columns.floats(R11))
        a.vmovups_to(columns.floats(R8), ZMM[0])

    sweep(a, width, move)
    a.add(R8, stride)
    a.add(RSI, 8)
    a.sub(RCX, 1)
    a.jg(again)
    a.label(done)
    a.ret()


def _emit_blocks_start(a: Assembler, fields: Fields) -> None:
    """RBX is the first row of a block, R12 how many rows are left, RBP a whole block."""
    a.push(RBX, RBP, R12, R13)
    a.mov(R12, fields.of("rows"))
    a.mov(R12, at(R12))
    a.xor(RBX, RBX)
    a.mov(RBP, BLOCK)


def _emit_block_size(a: Assembler) -> None:
    """RDX becomes the rows of this block."""
    a.mov(RDX, R12)
    a.cmp(RDX, BLOCK)
    a.cmovg(RDX, RBP)


def _emit_next_block(a: Assembler, block: str) -> None:
    a.add(RBX, BLOCK)
    a.sub(R12, BLOCK)
    a.jg(block)


def _emit_blocks_end(a: Assembler) -> None:
    a.pop(R13, R12, RBP, RBX)
    a.ret()
