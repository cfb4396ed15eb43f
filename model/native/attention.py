"""Attention over packed texts, float32: softmax(Q·Kᵀ / √d)·V of each text and head by itself.

Scores are made 16 queries at a time, one vector a key with the queries in its lanes: then greatest
scores and sums need no shuffles, and no lane needs a mask. Texts of up to SHORT tokens keep all
their scores in registers; each such length has code of its own. Longer texts, and programs that ask
with first tokens only, are attention_long's and attention_first's.

A row depends on nothing but its text: every sum has an order that the text's length tells.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from model.native.assembler import Assembler
from model.native.attention_bias import emit_head_biases, head_bias
from model.native.attention_first import emit_first
from model.native.attention_long import emit_long
from model.native.attention_rows import (ATTENTION, LANES, Attention, emit_choice,
                                         emit_weighted, pieces, scratch_floats)
from model.native.exponential import emit_powers_of_two
from model.native.operands import (R8, R9, R10, R11, R12, R13, R14, R15, RAX, RBP, RBX, RCX, RDI,
                                   RDX, RSI, ZMM, Zmm, at)
from model.native.transposition import column_lane, emit_columns

__all__ = ["ATTENTION", "Attention", "emit_attention", "scratch_floats"]

SHORT = 15  # the transposition takes 17 of 32 registers
KEPT = (RBX, RBP, R12, R13, R14, R15)


def emit_attention(a: Assembler, label: str, shape: Attention) -> None:
    """The kernel `label` of the fields shape.fields.

    RBX: 8 · text, R12: its tokens, RSI, RDX, RCX, R9: its first rows of queries, keys, values and
    out, RBP: scratch.
    """
    text, done = a.fresh("text"), a.fresh("done")
    following = a.fresh("following")
    a.label(label)
    a.push(*KEPT)
    a.mov(RBP, ATTENTION.of("scratch"))
    a.mov(RBX, 0)
    a.label(text)
    a.mov(RAX, ATTENTION.of("texts"))
    a.mov(RAX, at(RAX))
    a.shl(RAX, 3)
    a.cmp(RBX, RAX)
    a.jge(done)
    _emit_places(a, shape)
    a.cmp(R12, 0)
    a.jle(following)
    if shape.one_query:
        emit_first(a, shape)
    elif shape.has_terms:
        emit_long(a, shape, following)
    else:
        emit_choice(a, R12, 1, SHORT + 1, lambda keys: _emit_text(a, shape, keys, following))
    a.label(following)
    a.add(RBX, 8)
    a.jmp(text)
    a.label(done)
    a.pop(*reversed(KEPT))
    a.ret()


def _emit_places(a: Assembler, shape: Attention) -> None:
    """Where the text's rows begin."""
    a.mov(RAX, ATTENTION.of("lengths"))
    a.mov(R12, at(RAX, index=RBX))
    a.mov(RAX, ATTENTION.of("starts"))
    a.mov(RAX, at(RAX, index=RBX))
    a.imul(RDX, RAX, 4 * shape.key_value_stride)
    a.mov(RCX, RDX)
    a.add(RDX, ATTENTION.of("keys"))
    a.add(RCX, ATTENTION.of("values"))
    if shape.one_query:
        a.imul(RSI, RBX, shape.query_stride // 2)
        a.imul(R9, RBX, shape.out_stride // 2)
    else:
        a.imul(RSI, RAX, 4 * shape.query_stride)
        a.imul(R9, RAX, 4 * shape.out_stride)
    a.add(RSI, ATTENTION.of("queries"))
    a.add(R9, ATTENTION.of("out"))


def _emit_text(a: Assembler, shape: Attention, keys: int, following: str) -> None:
    if keys > SHORT:
        emit_long(a, shape, following)
    else:
        _emit_short_weights(a, shape, keys)
        _emit_short_results(a, shape, keys)
        a.jmp(following)


def _emit_short_weights(a: Assembler, shape: Attention, keys: int) -> None:
    """The weights of all heads to scratch, for each head a vector for each key.

    Heads are independent, so the core computes one's exponentials while it begins the next; this
    is why results wait for a loop of their own.

    RAX: scratch, RSI, RDX, RCX: queries, keys and values from here on (values are only fetched
    early), R10: heads left, R11: 16s of width left.
    """
    head, part = a.fresh("head"), a.fresh("part")
    free, scores = ZMM[:32 - keys], ZMM[32 - keys:]
    a.align()
    a.mov(RAX, RBP)
    a.mov(R10, shape.heads)
    a.label(head)
    rows = -(-keys // 4) * 4
    if shape.has_biases:
        _emit_short_biases(a, shape, scores, rows)
    else:
        for score in scores:
            a.vpxord(score, score, score)
    a.mov(R11, shape.vectors)
    a.label(part)
    places = [at(RSI, 4 * shape.query_stride * row) for row in range(rows)]
    spare = list(free)
    # As many rows as this text has are asked for of what comes after it: most of the next text.
    coming = [at(base, 4 * stride * (keys + row)) for row in range(keys) for base, stride in (
        (RSI, shape.query_stride), (RDX, shape.key_value_stride), (RCX, shape.key_value_stride))]
    for turn, (place, column) in enumerate(emit_columns(a, places, spare)):
        for line in coming[turn::LANES]:
            a.prefetcht1(line)
        for key, score in enumerate(scores):
            a.vfmadd231ps(score, column,
                          at(RDX, 4 * (shape.key_value_stride * key + place)).to_all)
        spare.append(column)
    for register in (RSI, RDX, RCX):
        a.add(register, 4 * LANES)
    a.sub(R11, 1)
    a.jg(part)
    _emit_weights(a, scores, free, shape.scale)
    a.add(RAX, 4 * LANES * (keys + 1))
    a.sub(R10, 1)
    a.jg(head)


def _emit_short_biases(a: Assembler, shape: Attention, scores: tuple[Zmm, ...], rows: int) -> None:
    """Scores become their biases; queries are in the lanes that emit_columns gives them. R8: the
    head's biases."""
    emit_head_biases(a, shape, R8)
    lanes = [column_lane(row, rows) for row in range(rows)]
    order = ZMM[0]
    if lanes != list(range(rows)):
        queries = np.zeros(LANES, dtype="<i4")
        queries[lanes] = range(rows)
        a.vmovups(order, a.constant(queries.tobytes()))
    for key, score in enumerate(scores):
        biases = head_bias(shape, R8, key)
        if lanes == list(range(rows)):
            a.vmovups(score, biases)
        else:
            a.vpermps(score, order, biases)


def _emit_weights(a: Assembler, scores: tuple[Zmm, ...], free: tuple[Zmm, ...],
                  scale: float) -> None:
    """Scores become powers, lane by lane, and go to RAX; after the last come the inverse sums."""
    best, inverse, *_ = free
    _emit_pairwise(a, a.vmaxps, scores, free)
    for score in scores:  # less the best first: a product's rounding may be more than all powers
        a.vsubps(score, score, best)
        a.vmulps(score, score, a.number(scale))
    emit_powers_of_two(a, scores, free)
    for key, score in enumerate(scores):
        a.vmovups_to(at(RAX, 4 * LANES * key), score)
    _emit_pairwise(a, a.vaddps, scores, free)
    a.vbroadcastss(inverse, a.number(1.0))
    a.vdivps(inverse, inverse, best)
    a.vmovups_to(at(RAX, 4 * LANES * len(scores)), inverse)


def _emit_pairwise(a: Assembler, operation: Callable[[Zmm, Zmm, Zmm], None],
                   values: tuple[Zmm, ...], free: tuple[Zmm, ...]) -> None:
    """All values in one, in free[0]: neighbours first, then neighbours of those."""
    if len(values) == 1:
        a.vmovups(free[0], values[0])
    while len(values) > 1:
        half = len(values) // 2
        for target, first, second in zip(free, values[::2], values[1::2]):
            operation(target, first, second)
        values = (*free[:half], *values[2 * half:])


def _emit_short_results(a: Assembler, shape: Attention, keys: int) -> None:
    """RAX: weights, RCX, R9: values and out from here on, R10: heads left."""
    head = a.fresh("head")
    rows = -(-keys // 4) * 4
    a.sub(RCX, 4 * shape.width * shape.heads)
    a.mov(RAX, RBP)
    a.mov(R10, shape.heads)
    a.label(head)
    for first, count in pieces(keys, shape.vectors):
        a.mov(R8, RCX)
        a.mov(R14, keys)
        lanes = [column_lane(row, rows) for row in range(first, first + count)]
        emit_weighted(a, shape, lanes, first)
        a.sub(RAX, 4 * LANES * keys)
    a.add(RAX, 4 * LANES * (keys + 1))
    a.add(RCX, 4 * shape.width)
    a.add(R9, 4 * shape.width)
    a.sub(R10, 1)
    a.jg(head)
