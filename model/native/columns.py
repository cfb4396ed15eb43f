"""Walks over the columns of float32 rows, sixteen a vector, and sums across them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from model.native.assembler import Assembler
from model.native.operands import RAX, Gpr, Mem, Zmm, at

LANES = 16    # float32 in a vector
VECTOR = 64   # bytes of a vector
ROUND = 4     # vectors in a round of a loop over columns
# For vshuff32x4, of two operands: first halves, second halves, even quarters, odd quarters.
LOW, HIGH, EVEN, ODD = 0x44, 0xee, 0x88, 0xdd
# For vpermilps, within quarters.
SWAP_PAIRS, SWAP_NEIGHBOURS = 0x4e, 0xb1


class Columns(NamedTuple):
    """Vector `number` of a row, counted from the column in `index` where there is one."""

    number: int
    index: Gpr | None = None

    def floats(self, row: Gpr, offset: int = 0) -> Mem:
        """Where these columns are in the float32 row that begins `offset` bytes after `row`."""
        return at(row, offset + VECTOR * self.number, self.index, 4)

    def codes(self, row: Gpr, offset: int = 0) -> Mem:
        """Where they are in a row of bytes."""
        return at(row, offset + LANES * self.number, self.index, 1)


def codes_stride(width: int) -> int:
    """Bytes from one row of codes to the next: whole vectors."""
    return -(-width // VECTOR) * VECTOR


def sweep(a: Assembler, width: int, body: Callable[[Columns, int], None], step: int = 1) -> None:
    """Calls body(columns, vectors) for every `step` vectors of a row in turn; `vectors` is `step`
    but where the row ends. `step` divides ROUND; RAX counts columns."""
    vectors = width // LANES
    rounds = vectors // ROUND
    if rounds > 1:
        again = a.fresh("columns")
        a.xor(RAX, RAX)
        a.label(again)
        for number in range(0, ROUND, step):
            body(Columns(number, RAX), step)
        a.add(RAX, ROUND * LANES)
        a.cmp(RAX, rounds * ROUND * LANES)
        a.jl(again)
    for number in range(rounds * ROUND if rounds > 1 else 0, vectors, step):
        body(Columns(number), min(step, vectors - number))


def fold(combine: Callable[..., None], parts: Sequence[Zmm]) -> None:
    """Combines vectors, a power of two, into the first of them."""
    for near, far in zip(parts[::2], parts[1::2]):
        combine(near, near, far)
    if len(parts) > 2:
        fold(combine, parts[::2])


def across(a: Assembler, combine: Callable[..., None], rows: Sequence[Zmm], spare: Zmm) -> Zmm:
    """Combines all lanes of each of 4, 2 or 1 vectors, which are overwritten. Quarter r of the
    result holds that of vector r in all its lanes. `combine` is commutative."""
    for near, far in zip(rows[::2], rows[1::2] or rows):
        a.vshuff32x4(spare, near, far, LOW)
        a.vshuff32x4(near, near, far, HIGH)
        combine(near, near, spare)
    total, other = rows[0], rows[-2 if len(rows) > 1 else 0]
    a.vshuff32x4(spare, total, other, EVEN)
    a.vshuff32x4(total, total, other, ODD)
    combine(total, total, spare)
    for swap in (SWAP_PAIRS, SWAP_NEIGHBOURS):
        a.vpermilps(spare, total, swap)
        combine(total, total, spare)
    return total
