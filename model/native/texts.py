"""Kernel that begins a batch: from each text's ids to where its rows are and what they add."""

from __future__ import annotations

from typing import NamedTuple

from model.native.arguments import Fields
from model.native.assembler import Assembler
from model.native.operands import (R8, R9, R10, R11, R12, RAX, RBP, RBX, RCX, RDX, RSI, at)

# Addresses, int64: ids of all tokens; of each text its length and how many of its tokens are of the
# first segment; how many texts and tokens there are; and what is made: each text's first token,
# each token's row of the table of places.
TEXTS = Fields("ids", "lengths", "splits", "texts", "tokens", "starts", "where")


class Places(NamedTuple):
    """`vocab` words; places of a second segment begin `segment_step` rows after the first's (0:
    there is none). Where there is a `pad_id`, padding inside a text is at the place of that number,
    and the first other token at the next."""

    vocab: int
    segment_step: int
    pad_id: int | None


def emit_texts(a: Assembler, label: str, places: Places) -> None:
    """The fields are TEXTS. An id that no word has ends the batch: there are no texts and no tokens
    then, and nothing for the kernels that follow.

    RCX: texts left, R8, R9, R10: this text's length, split and start, R11: its first token; RSI,
    RDX: this token's id and place, R12, RBP: where ids of the text and of its first segment end,
    RBX: the next place.
    """
    text, token, ended, stranger, done = map(a.fresh, ("text", "token", "ended", "stranger",
                                                       "done"))
    a.align()
    a.label(label)
    a.push(RBX, RBP, R12)
    a.mov(RCX, TEXTS.of("texts"))
    a.mov(RCX, at(RCX))
    a.cmp(RCX, 0)
    a.jle(done)
    for register, name in ((RSI, "ids"), (RDX, "where"), (R8, "lengths"), (R9, "splits"),
                           (R10, "starts")):
        a.mov(register, TEXTS.of(name))
    a.xor(R11, R11)
    a.label(text)
    a.mov(at(R10), R11)
    a.mov(R12, at(R8))
    a.add(R11, R12)
    a.lea(R12, at(RSI, 0, R12, 8))
    a.mov(RBP, at(R9))
    a.lea(RBP, at(RSI, 0, RBP, 8))
    a.mov(RBX, 0 if places.pad_id is None else places.pad_id + 1)
    a.label(token)
    a.cmp(RSI, R12)
    a.jge(ended)
    _emit_token(a, places, stranger)
    a.add(RSI, 8)
    a.add(RDX, 8)
    a.jmp(token)
    a.label(ended)
    for register in (R8, R9, R10):
        a.add(register, 8)
    a.sub(RCX, 1)
    a.jg(text)
    a.jmp(done)
    a.label(stranger)
    for name in ("texts", "tokens"):
        a.mov(RAX, TEXTS.of(name))
        a.mov(at(RAX), 0)
    a.label(done)
    a.pop(R12, RBP, RBX)
    a.ret()


def _emit_token(a: Assembler, places: Places, stranger: str) -> None:
    """One token's place, if its id is a word's."""
    padding, placed = a.fresh("padding"), a.fresh("placed")
    a.mov(RAX, at(RSI))
    a.cmp(RAX, places.vocab)
    a.jge(stranger)
    a.cmp(RAX, 0)
    a.jl(stranger)
    if places.segment_step:
        same = a.fresh("same")
        a.cmp(RSI, RBP)
        a.jne(same)
        a.add(RBX, places.segment_step)
        a.label(same)
    if places.pad_id is not None:
        a.cmp(RAX, places.pad_id)
        a.je(padding)
    a.mov(at(RDX), RBX)
    a.add(RBX, 1)
    if places.pad_id is not None:
        a.jmp(placed)
        a.label(padding)
        a.mov(at(RDX), places.pad_id)
        a.label(placed)
