"""What the kinds of attention share: shapes, fields, and sums of values by weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from model.native.arguments import Fields
from model.native.assembler import Assembler
from model.native.operands import R8, R9, R14, RAX, ZMM, Gpr, at

LANES = 16  # float32 of a vector
SUMS = 24   # registers for sums; the rest hold weights and values

# Addresses: `texts` of an int64 count; `starts` and `lengths` int64 [texts], a text's first row and
# how many; `queries`, `keys`, `values`, `out` float32, row 0, column 0 of head 0; `scratch` float32
# [scratch_floats(shape)]; `biases` float32 [heads, attention_bias.bias_distances]; `terms` as
# attention_terms.terms_of makes them.
ATTENTION = Fields("texts", "starts", "lengths", "queries", "keys", "values", "out", "scratch")
BIASED_ATTENTION = Fields(*ATTENTION.names, "biases")
TERMS_ATTENTION = Fields(*ATTENTION.names, "terms")


@dataclass(frozen=True)
class Attention:
    """`width` of a head is a multiple of 16, 16..128; strides from row to row in float32; `longest`
    is the most tokens of a text. Head h begins at column h · width.

    With `one_query` text b asks once, with row b of queries for row b of out; else all its tokens
    ask, and queries and out have its rows.

    With `has_biases` each product of a query and a key begins with its head's bias for their
    distance, times √width. With `has_terms` it is one of the three that attention_terms tells of,
    and their sum is divided by √(3 · width). A shape has one of them at most.
    """

    heads: int
    width: int
    query_stride: int
    key_value_stride: int
    out_stride: int
    longest: int
    one_query: bool
    has_biases: bool = False
    has_terms: bool = False

    @property
    def fields(self) -> Fields:
        if self.has_terms:
            return TERMS_ATTENTION
        return BIASED_ATTENTION if self.has_biases else ATTENTION

    @property
    def vectors(self) -> int:
        """Vectors of a head's row."""
        return self.width // LANES

    @property
    def scale(self) -> float:
        """What a score takes before 2 is raised to its power."""
        return math.log2(math.e) / math.sqrt(self.width * (3 if self.has_terms else 1))


def scratch_floats(shape: Attention) -> int:
    """float32 that a kernel of this shape needs for itself."""
    return LANES * max(LANES * shape.heads, shape.longest + LANES)


def pieces(rows: int, vectors: int) -> list[tuple[int, int]]:
    """(first, count): rows in equal pieces, or nearly, whose sums fit in registers."""
    count = -(-rows // (SUMS // vectors))
    edges = [rows * piece // count for piece in range(count + 1)]
    return [(first, end - first) for first, end in zip(edges, edges[1:])]


def emit_choice(a: Assembler, number: Gpr, least: int, most: int,
                emit: Callable[[int], None]) -> None:
    """What `emit` emits for the number that is there, from `least` to `most`; greater ones take
    the last. Halves what is left with each comparison; `emit` ends in a jump."""
    if least == most:
        emit(least)
        return
    middle, upper = (least + most + 1) // 2, a.fresh("upper")
    a.cmp(number, middle)
    a.jge(upper)
    emit_choice(a, number, least, middle - 1, emit)
    a.label(upper)
    emit_choice(a, number, middle, most, emit)


def emit_weighted(a: Assembler, shape: Attention, lanes: Sequence[int], row: int) -> None:
    """Rows of out from `row` on: for each of `lanes` the sum of values by that lane's weights,
    times what lies in that lane after the last weights.

    RAX: the first key's weights, R8: its values, R14: keys; all three move to the end. R9: row 0
    of out. Takes all vector registers.
    """
    vectors, key = shape.vectors, a.fresh("key")
    sums = [ZMM[place:place + vectors] for place in range(0, vectors * len(lanes), vectors)]
    free = ZMM[vectors * len(lanes):]
    for total in ZMM[:vectors * len(lanes)]:
        a.vpxord(total, total, total)
    a.label(key)
    weights = [at(RAX, 4 * lane) for lane in lanes]
    values = [at(R8, 4 * LANES * vector) for vector in range(vectors)]
    if vectors == 1:
        a.vmovups(free[0], values[0])
        for (total,), weight in zip(sums, weights):
            a.vfmadd231ps(total, free[0], weight.to_all)
    elif vectors < len(lanes):
        for register, value in zip(free, values):
            a.vmovups(register, value)
        for turn, (totals, weight) in enumerate(zip(sums, weights)):
            spread = free[vectors + turn % (len(free) - vectors)]
            a.vbroadcastss(spread, weight)
            for total, value in zip(totals, free):
                a.vfmadd231ps(total, value, spread)
    else:
        for register, weight in zip(free, weights):
            a.vbroadcastss(register, weight)
        for vector, value in enumerate(values):
            held = free[len(lanes) + vector % (len(free) - len(lanes))]
            a.vmovups(held, value)
            for totals, weight in zip(sums, free):
                a.vfmadd231ps(totals[vector], held, weight)
    a.add(RAX, 4 * LANES)
    a.add(R8, 4 * shape.key_value_stride)
    a.sub(R14, 1)
    a.jg(key)
    for turn, (totals, inverse) in enumerate(zip(sums, weights)):
        factor = free[turn % len(free)]
        a.vbroadcastss(factor, inverse)
        for vector, total in enumerate(totals):
            a.vmulps(total, total, factor)
            a.vmovups_to(at(R9, 4 * (shape.out_stride * (row + turn) + LANES * vector)), total)
