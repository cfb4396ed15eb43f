"""Attention of one query of one text: what the last layer needs where first tokens decide."""

from __future__ import annotations

from collections.abc import Callable

from model.native.assembler import Assembler
from model.native.attention_bias import emit_head_biases, head_bias
from model.native.attention_rows import LANES, Attention
from model.native.attention_terms import PLACE_KEY, PLACE_QUERY, emit_head_terms, key_terms
from model.native.exponential import emit_powers_of_two
from model.native.operands import (K1, R8, R9, R10, R11, R12, R13, R14, R15, RAX, RBP, RCX, RDX,
                                   RSI, ZMM, Zmm, at)

QUAD = 4
BEST, TOTAL, SCALE = ZMM[28:31]


def emit_first(a: Assembler, shape: Attention) -> None:
    """All heads of the text that R12, RSI, RDX, RCX, R9 and RBP tell (see attention.py).

    Scores have keys in their lanes: products of 16 keys with the query are added up crosswise.
    R10: heads left, R15: ones, from which masks are cut.
    """
    head = a.fresh("head")
    a.mov(R15, -1)
    a.mov(R10, shape.heads)
    a.label(head)
    _emit_scores(a, shape)
    _emit_weights(a, shape)
    _emit_result(a, shape)
    for register in (RSI, RDX, RCX, R9):
        a.add(register, 4 * shape.width)
    a.sub(R10, 1)
    a.jg(head)


def _emit_scores(a: Assembler, shape: Attention) -> None:
    """Scores to scratch, and the greatest in all lanes of BEST. R8: keys, R11: their biases or
    terms."""
    again, ready = a.fresh("again"), a.fresh("ready")
    query = ZMM[:shape.vectors]
    for vector, register in enumerate(query):
        a.vmovups(register, at(RSI, 4 * LANES * vector))
    a.vbroadcastss(BEST, a.number(float("-inf")))
    a.mov(RAX, RBP)
    a.mov(R8, RDX)
    a.mov(R14, R12)
    if shape.has_biases:
        emit_head_biases(a, shape, R11)
    if shape.has_terms:
        emit_head_terms(a, shape, R11)
    a.label(again)
    _emit_mask(a)
    for quads in range(1, LANES // QUAD + 1):
        more = a.fresh("more")
        if quads < LANES // QUAD:
            a.cmp(R14, QUAD * quads)
            a.jg(more)
        scores = _emit_products(a, shape, query, QUAD * quads)
        if shape.has_biases:
            a.vaddps(scores, scores, head_bias(shape, R11, 0))
        a.vmaxps(BEST, BEST, scores, mask=K1)
        a.vmovups_to(at(RAX), scores)
        if quads < LANES // QUAD:
            a.jmp(ready)
            a.label(more)
    if shape.has_biases:
        a.add(R11, 4 * LANES)
    if shape.has_terms:
        a.add(R11, 4 * LANES * 2 * shape.width)
    a.add(RAX, 4 * LANES)
    a.add(R8, 4 * LANES * shape.key_value_stride)
    a.sub(R14, LANES)
    a.jg(again)
    a.label(ready)
    _emit_across(a, a.vmaxps, BEST)


def _emit_mask(a: Assembler) -> None:
    """K1: the lanes that have keys, of which R14 are left."""
    a.mov(R13, LANES)
    a.cmp(R13, R14)
    a.cmovg(R13, R14)
    a.bzhi(R13, R15, R13)
    a.kmovw(K1, R13)


def _emit_products(a: Assembler, shape: Attention, query: tuple[Zmm, ...], keys: int) -> Zmm:
    """The products of the query with 4, 8, 12 or 16 keys from R8 on, in lanes 0 to `keys` - 1."""
    low, sums = ZMM[8], ZMM[9:9 + keys]
    for key, total in enumerate(sums):
        row = 4 * shape.key_value_stride * key
        if shape.has_terms:
            _emit_terms(a, shape, query, total, key)
            continue
        a.vmulps(total, query[0], at(R8, row))
        for vector in range(1, shape.vectors):
            a.vfmadd231ps(total, query[vector], at(R8, row + 4 * LANES * vector))

    def add(first: Zmm, second: Zmm, lower: Callable, upper: Callable) -> Zmm:
        lower(low, first, second)
        upper(first, first, second)
        a.vaddps(first, first, low)
        return first

    def even(target: Zmm, first: Zmm, second: Zmm) -> None:
        a.vshuff32x4(target, first, second, 0x88)

    def odd(target: Zmm, first: Zmm, second: Zmm) -> None:
        a.vshuff32x4(target, first, second, 0xdd)

    for lower, upper in ((a.vunpcklps, a.vunpckhps), (a.vunpcklpd, a.vunpckhpd),
                         (even, odd), (even, odd)):
        if len(sums) % 2:
            sums = (*sums, sums[-1])
        sums = tuple(add(first, second, lower, upper)
                     for first, second in zip(sums[::2], sums[1::2]))
    return sums[0]


def _emit_terms(a: Assembler, shape: Attention, query: tuple[Zmm, ...], total: Zmm,
                key: int) -> None:
    """All terms of a key's score, which share their factors:
    (query + place_query) · key + query · place_key."""
    factor = ZMM[25 + key % 3]
    a.vpxord(total, total, total)
    for vector, asked in enumerate(query):
        a.vaddps(factor, asked, key_terms(shape, R11, key, PLACE_QUERY, vector))
        a.vfmadd231ps(total, factor,
                      at(R8, 4 * (shape.key_value_stride * key + LANES * vector)))
        a.vfmadd231ps(total, asked, key_terms(shape, R11, key, PLACE_KEY, vector))


def _emit_weights(a: Assembler, shape: Attention) -> None:
    """Scores in scratch become powers, their sum is in all lanes of TOTAL."""
    again, (power, *free) = a.fresh("again"), ZMM[:3]
    a.vbroadcastss(SCALE, a.number(shape.scale))
    a.vpxord(TOTAL, TOTAL, TOTAL)
    a.mov(RAX, RBP)
    a.mov(R14, R12)
    a.label(again)
    _emit_mask(a)
    a.vmovups(power, at(RAX))
    a.vsubps(power, power, BEST)  # first, see attention._emit_weights
    a.vmulps(power, power, SCALE)
    emit_powers_of_two(a, [power], free)
    a.vaddps(TOTAL, TOTAL, power, mask=K1)
    a.vmovups_to(at(RAX), power)
    a.add(RAX, 4 * LANES)
    a.sub(R14, LANES)
    a.jg(again)
    _emit_across(a, a.vaddps, TOTAL)


def _emit_across(a: Assembler, operation: Callable[[Zmm, Zmm, Zmm], None], value: Zmm) -> None:
    """All lanes of `value` become the sum, or what else `operation` makes, of all its lanes."""
    turned = ZMM[0]
    for turn in (0x4e, 0xb1):
        a.vshuff32x4(turned, value, value, turn)
        operation(value, value, turned)
    for turn in (0x4e, 0xb1):
        a.vpermilps(turned, value, turn)
        operation(value, value, turned)


def _emit_result(a: Assembler, shape: Attention) -> None:
    """The row of out at R9. Sums of every second, fourth or eighth key run side by side where one
    alone would wait for itself. R8: values."""
    vectors = shape.vectors
    side_by_side = max(1, 8 // vectors)
    sums = [ZMM[place:place + vectors] for place in range(0, vectors * side_by_side, vectors)]
    inverse, weights = ZMM[16], ZMM[17:17 + side_by_side]
    a.vbroadcastss(inverse, a.number(1.0))
    a.vdivps(inverse, inverse, TOTAL)
    for totals in sums:
        for total in totals:
            a.vpxord(total, total, total)
    a.mov(RAX, RBP)
    a.mov(R8, RCX)
    a.mov(R14, R12)
    for count in sorted({side_by_side, 1}, reverse=True):
        again, enough = a.fresh("again"), a.fresh("enough")
        a.label(again)
        a.cmp(R14, count)
        a.jl(enough)
        for key, (weight, totals) in enumerate(zip(weights[:count], sums)):
            a.vbroadcastss(weight, at(RAX, 4 * key))
            for vector, total in enumerate(totals):
                place = 4 * (shape.key_value_stride * key + LANES * vector)
                a.vfmadd231ps(total, weight, at(R8, place))
        a.add(RAX, 4 * count)
        a.add(R8, 4 * shape.key_value_stride * count)
        a.sub(R14, count)
        a.jmp(again)
        a.label(enough)
    while len(sums) > 1:
        for first, second in zip(sums[::2], sums[1::2]):
            for total, other in zip(first, second):
                a.vaddps(total, total, other)
        sums = sums[::2]
    for vector, total in enumerate(sums[0]):
        a.vmulps(total, total, inverse)
        a.vmovups_to(at(R9, 4 * LANES * vector), total)
