"""Kernels at both ends of a batch that comes and goes as bytes: a message's rows in, logits out.

A body is, of each text, the size of its ids in bytes, uint32, then of each how many tokens are of
the first segment, uint32, then the ids of all, uint16 or uint32.
"""

from __future__ import annotations

from typing import NamedTuple

from model.native.arguments import Fields
from model.native.assembler import Assembler
from model.native.columns import LANES, VECTOR, Columns, sweep
from model.native.operands import (K1, R8, R9, R10, R11, RAX, RBX, RCX, RDX, RSI, RSP, ZMM, Gpr,
                                   at)

# Addresses: the body and, int64, its bytes; how many texts there are; what is made: each text's
# length and how many of its tokens are of the first segment, all tokens' ids, how many those are.
UNPACK = Fields("body", "bytes", "texts", "lengths", "splits", "ids", "tokens")
# Addresses: float32 rows of logits; those without gaps, which are made; of the count of texts.
PACK = Fields("logits", "packed", "texts", "tokens")


class Limits(NamedTuple):
    """What a batch may hold: ids of `id_bytes` (2 or 4), texts of up to `longest` tokens, `most`
    tokens in all, and only texts of one segment where it `refuses_pairs`."""

    id_bytes: int
    longest: int
    most: int
    refuses_pairs: bool


def emit_unpack(a: Assembler, label: str, limits: Limits) -> None:
    """The fields are UNPACK. A body that is not sound, or holds what it may not, ends the batch:
    there are no texts and no tokens then.

    RCX: texts left, RSI, R10: this text's size and split, R8, R9: its length and split as they are
    written, R11: bytes of ids so far, RDX: bytes of all ids.
    """
    text, token, strange, done = map(a.fresh, ("text", "token", "strange", "done"))
    shift = limits.id_bytes.bit_length() - 1
    a.align()
    a.label(label)
    a.push(RBX)
    for register, name in ((RCX, "texts"), (RDX, "bytes")):
        a.mov(register, UNPACK.of(name))
        a.mov(register, at(register))
    a.cmp(RCX, 0)
    a.jle(strange)
    a.cmp(RCX, limits.most)
    a.jg(strange)
    a.mov(RAX, RCX)
    a.shl(RAX, 3)
    a.sub(RDX, RAX)
    a.jle(strange)
    a.mov(RSI, UNPACK.of("body"))
    a.lea(R10, at(RSI, 0, RCX, 4))
    a.mov(R8, UNPACK.of("lengths"))
    a.mov(R9, UNPACK.of("splits"))
    a.xor(R11, R11)
    a.label(text)
    a.movsxd(RAX, at(RSI))
    a.cmp(RAX, 0)
    a.jle(strange)
    a.cmp(RAX, limits.longest * limits.id_bytes)
    a.jg(strange)
    a.add(R11, RAX)
    a.mov(RBX, RAX)
    a.and_(RBX, limits.id_bytes - 1)
    a.jne(strange)
    a.shr(RAX, shift)
    a.mov(at(R8), RAX)
    a.movsxd(RBX, at(R10))
    a.mov(at(R9), RBX)
    if limits.refuses_pairs:
        a.cmp(RBX, RAX)
        a.jl(strange)
    for register, step in ((RSI, 4), (R10, 4), (R8, 8), (R9, 8)):
        a.add(register, step)
    a.sub(RCX, 1)
    a.jg(text)
    a.cmp(R11, RDX)
    a.jne(strange)
    a.shr(R11, shift)
    a.cmp(R11, limits.most)
    a.jg(strange)
    a.mov(RAX, UNPACK.of("tokens"))
    a.mov(at(RAX), R11)
    a.mov(R8, UNPACK.of("ids"))
    a.label(token)                  # R10 is where ids begin
    (a.movzx if limits.id_bytes == 2 else a.movsxd)(RAX, at(R10))
    a.mov(at(R8), RAX)
    a.add(R10, limits.id_bytes)
    a.add(R8, 8)
    a.sub(R11, 1)
    a.jg(token)
    a.jmp(done)
    a.label(strange)
    _emit_end(a, UNPACK, RAX)
    a.label(done)
    a.pop(RBX)
    a.ret()


def emit_pack(a: Assembler, label: str, labels: int, stride: int) -> None:
    """Rows of logits, `labels` each and `stride` bytes apart, side by side; the fields are PACK.
    Where one is not finite, no texts are left.

    RCX: texts left, RSI, RDX: this text's logits there and here, ZMM0 gathers what is no number of
    the products with zero.
    """
    text, done = a.fresh("text"), a.fresh("done")
    strange, zero, value = ZMM[:3]
    a.align()
    a.label(label)
    a.mov(RCX, PACK.of("texts"))
    a.mov(RCX, at(RCX))
    a.cmp(RCX, 0)
    a.jle(done)
    a.mov(RSI, PACK.of("logits"))
    a.mov(RDX, PACK.of("packed"))
    a.mov(RAX, (1 << labels % LANES) - 1)
    a.kmovw(K1, RAX)
    for register in (strange, zero):
        a.vpxord(register, register, register)
    a.label(text)

    def move(columns: Columns, _: int) -> None:
        a.vmovups(value, columns.floats(RSI))
        a.vfmadd231ps(strange, value, zero)
        a.vmovups_to(columns.floats(RDX), value)

    whole = labels // LANES
    sweep(a, whole * LANES, move)
    if labels % LANES:
        a.vmovups(value, at(RSI, VECTOR * whole), mask=K1, zero=True)
        a.vfmadd231ps(strange, value, zero)
        a.vmovups_to(at(RDX, VECTOR * whole), value, mask=K1)
    a.add(RSI, stride)
    a.add(RDX, 4 * labels)
    a.sub(RCX, 1)
    a.jg(text)
    a.sub(RSP, VECTOR)
    a.vmovups_to(at(RSP), strange)
    a.xor(RAX, RAX)
    for place in range(0, VECTOR, 8):
        a.or_(RAX, at(RSP, place))
    a.add(RSP, VECTOR)
    a.cmp(RAX, 0)
    a.je(done)
    _emit_end(a, PACK, RAX)
    a.label(done)
    a.ret()


def _emit_end(a: Assembler, fields: Fields, free: Gpr) -> None:
    for name in ("texts", "tokens"):
        a.mov(free, fields.of(name))
        a.mov(at(free), 0)
