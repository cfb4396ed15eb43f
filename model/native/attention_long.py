"""Attention of one text of any length: 16 queries at a time, with their scores in scratch."""

from __future__ import annotations

from model.native.assembler import Assembler
from model.native.attention_bias import emit_head_biases, head_bias
from model.native.attention_rows import LANES, Attention, emit_choice, emit_weighted, pieces
from model.native.attention_terms import (PLACE_KEY, PLACE_QUERY, emit_head_terms,
                                          emit_next_part, query_terms)
from model.native.exponential import emit_powers_of_two
from model.native.operands import (K1, R8, R9, R10, R11, R12, R13, R14, R15, RAX, RBP, RCX, RDX,
                                   RSI, ZMM, Mem, Zmm, at)
from model.native.transposition import emit_columns

TOGETHER = 8  # keys whose scores are summed at once: enough to keep both multipliers busy
STEP = 4      # keys whose exponentials are made at once


def emit_long(a: Assembler, shape: Attention, following: str) -> None:
    """All heads of the text that R12, RSI, RDX, RCX, R9 and RBP tell (see attention.py), then on to
    `following`. R10: heads left, R13: rows left; RSI and R9 move through the rows."""
    head, rows, done = a.fresh("head"), a.fresh("rows"), a.fresh("done")
    routines = {count: a.fresh("weighted") for count in sorted(
        {count for some in range(1, LANES + 1) for _, count in pieces(some, shape.vectors)})}
    a.align()
    a.mov(R10, shape.heads)
    a.label(head)
    a.push(RSI, R9)
    a.mov(R13, R12)
    a.label(rows)
    _emit_scores(a, shape)
    _emit_weights(a, shape)
    emit_choice(a, R13, 1, LANES, lambda count: _emit_results(a, shape, count, routines, done))
    a.label(done)
    a.add(RSI, 4 * LANES * shape.query_stride)
    a.sub(R13, LANES)
    a.jg(rows)
    a.pop(R9, RSI)
    for register in (RSI, RDX, RCX, R9):
        a.add(register, 4 * shape.width)
    a.sub(R10, 1)
    a.jg(head)
    a.jmp(following)
    for count, routine in routines.items():
        a.align()
        a.label(routine)
        emit_weighted(a, shape, range(count), 0)
        a.ret()


def _emit_scores(a: Assembler, shape: Attention) -> None:
    """Scores of 16 queries from RSI on, a vector for each key, to scratch.

    The 16 columns of a part of the queries stay in registers while all keys go by; sums rest in
    scratch between the parts, and K1 lets none of what lies there into the first part, if these are
    no biases.
    R11: parts left, R15: the part's keys.
    """
    part = a.fresh("part")
    if shape.has_biases:
        _emit_biases(a, shape)
    if shape.has_terms:  # RCX: see attention_terms.query_terms
        a.push(RCX)
        emit_head_terms(a, shape, RCX)
        a.mov(R15, R13)
        a.shl(R15, 2)
        a.sub(RCX, R15)
    a.mov(R15, RDX)
    a.mov(R11, -1 if shape.has_biases else 0)
    a.kmovw(K1, R11)
    a.mov(R11, shape.vectors)
    a.label(part)
    queries = [at(RSI, 4 * shape.query_stride * row) for row in range(LANES)]
    columns = dict(emit_columns(a, queries, list(ZMM[:17])))
    a.mov(RAX, RBP)
    a.mov(R8, R15)
    a.mov(R14, R12)
    free = [zmm for zmm in ZMM if zmm not in columns.values()]
    together = TOGETHER
    while together:
        again, enough = a.fresh("again"), a.fresh("enough")
        a.label(again)
        a.cmp(R14, together)
        a.jl(enough)
        scores, spare = free[:together], free[together:]
        for key, score in enumerate(scores):
            a.vmovups(score, at(RAX, 4 * LANES * key), mask=K1, zero=True)
        for place, column in columns.items():
            for key, score in enumerate(scores):
                number = at(R8, 4 * (shape.key_value_stride * key + place))
                if shape.has_terms:
                    _emit_terms(a, shape, score, column, number, spare[key], key, place)
                else:
                    a.vfmadd231ps(score, column, number.to_all)
        for key, score in enumerate(scores):
            a.vmovups_to(at(RAX, 4 * LANES * key), score)
        a.add(RAX, 4 * LANES * together)
        a.add(R8, 4 * shape.key_value_stride * together)
        a.sub(R14, together)
        if together == TOGETHER:
            a.jmp(again)
        a.label(enough)
        together //= 2
    a.mov(R14, -1)
    a.kmovw(K1, R14)
    a.add(RSI, 4 * LANES)
    a.add(R15, 4 * LANES)
    if shape.has_terms:
        emit_next_part(a, shape, RCX)
    a.sub(R11, 1)
    a.jg(part)
    if shape.has_terms:
        a.pop(RCX)
    a.sub(RSI, 4 * LANES * shape.vectors)


def _emit_terms(a: Assembler, shape: Attention, score: Zmm, column: Zmm, number: Mem,
                spread: Zmm, key: int, place: int) -> None:
    """All terms that one number of a key has in its score."""
    a.vbroadcastss(spread, number)
    a.vfmadd231ps(score, column, spread)
    a.vfmadd231ps(score, column, query_terms(shape, RCX, R14, key, PLACE_KEY, place))
    a.vfmadd231ps(score, spread, query_terms(shape, RCX, R14, key, PLACE_QUERY, place))


def _emit_biases(a: Assembler, shape: Attention) -> None:
    """Biases of 16 queries, of which the first is the text's R12 - R13, for each key to scratch.
    R8: those of the next key, R15: the first query."""
    emit_head_biases(a, shape, R8)
    a.mov(R15, R12)
    a.sub(R15, R13)
    a.lea(R8, at(R8, 0, R15, 4))

    def move(count: int) -> None:
        for key, biases in enumerate(ZMM[:count]):
            a.vmovups(biases, head_bias(shape, R8, key))
            a.vmovups_to(at(RAX, 4 * LANES * key), biases)
        a.sub(R8, 4 * count)

    _emit_over_keys(a, move)


def _emit_weights(a: Assembler, shape: Attention) -> None:
    """Scores in scratch become powers, and after the last of them come the inverse sums."""
    bests, totals, values = ZMM[0:STEP], ZMM[4:4 + STEP], ZMM[8:8 + STEP]
    scale, free = ZMM[12], ZMM[14:14 + 2 * STEP]
    for best in bests:
        a.vmovups(best, at(RBP))

    def take_best(count: int) -> None:
        for key in range(count):
            a.vmaxps(bests[key], bests[key], at(RAX, 4 * LANES * key))

    def take_powers(count: int) -> None:
        for key, value in enumerate(values[:count]):
            a.vmovups(value, at(RAX, 4 * LANES * key))
        for value in values[:count]:
            a.vsubps(value, value, bests[0])  # first, see attention._emit_weights
            a.vmulps(value, value, scale)
        emit_powers_of_two(a, values[:count], free)
        for key, (value, total) in enumerate(zip(values[:count], totals)):
            a.vaddps(total, total, value)
            a.vmovups_to(at(RAX, 4 * LANES * key), value)

    _emit_over_keys(a, take_best)
    for first, second in ((0, 1), (2, 3), (0, 2)):
        a.vmaxps(bests[first], bests[first], bests[second])
    a.vbroadcastss(scale, a.number(shape.scale))
    for total in totals:
        a.vpxord(total, total, total)
    _emit_over_keys(a, take_powers)
    for first, second in ((0, 1), (2, 3), (0, 2)):
        a.vaddps(totals[first], totals[first], totals[second])
    a.vbroadcastss(scale, a.number(1.0))
    a.vdivps(scale, scale, totals[0])
    a.vmovups_to(at(RAX), scale)


def _emit_over_keys(a: Assembler, emit) -> None:
    """`emit(count)` for STEP keys as often as there are so many, then for one at a time.
    RAX: the scores, R14: keys left."""
    a.mov(RAX, RBP)
    a.mov(R14, R12)
    for count in (STEP, 1):
        again, enough = a.fresh("again"), a.fresh("enough")
        a.label(again)
        a.cmp(R14, count)
        a.jl(enough)
        emit(count)
        a.add(RAX, 4 * LANES * count)
        a.sub(R14, count)
        a.jmp(again)
        a.label(enough)


def _emit_results(a: Assembler, shape: Attention, rows: int, routines: dict[int, str],
                  done: str) -> None:
    """`rows` rows of out from R9 on, which moves past them."""
    for first, count in pieces(rows, shape.vectors):
        a.lea(RAX, at(RBP, 4 * first))
        a.mov(R8, RCX)
        a.mov(R14, R12)
        a.call(routines[count])
        a.add(R9, 4 * shape.out_stride * count)
    a.jmp(done)
