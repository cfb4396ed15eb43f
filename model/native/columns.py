"""Walks over rows of float32 columns: two rows at once, sixteen columns a vector.

Two rows are worked on together because their sums and divisions wait for different things, and
what belongs to columns is read once for both. A row's own sequence of operations is the same in a
pair and alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from model.native.assembler import Assembler
from model.native.operands import RAX, RDX, Gpr, Mem, Zmm, at

LANES = 16    # float32 in a vector
VECTOR = 64   # bytes of a vector
ROUND = 8     # vectors in a round of a loop over columns
# What swaps halves, quarters, pairs and neighbours of a vector, for vshuff32x4 and vpermilps.
SWAP_OUTER, SWAP_INNER = 0x4e, 0xb1


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


def pairs_of_rows(a: Assembler, strides: dict[Gpr, int], body: Callable[[int], None]) -> None:
    """Calls body(2), and body(1) for a last row alone, RDX being how many rows there are; each
    pointer in `strides` moves on by so many bytes a row. `body` keeps RDX and the pointers."""
    again, last, done = a.fresh("pair"), a.fresh("last"), a.fresh("done")
    a.cmp(RDX, 2)
    a.jl(last)
    a.label(again)
    body(2)
    for pointer, stride in strides.items():
        a.add(pointer, 2 * stride)
    a.sub(RDX, 2)
    a.cmp(RDX, 2)
    a.jge(again)
    a.label(last)
    a.cmp(RDX, 1)
    a.jl(done)
    body(1)
    a.label(done)


def fold(combine: Callable[..., None], parts: tuple[Zmm, ...]) -> None:
    """Combines four or two vectors into the first of them."""
    for near, far in zip(parts[::2], parts[1::2]):
        combine(near, near, far)
    if len(parts) > 2:
        fold(combine, parts[::2])


def across(a: Assembler, combine: Callable[..., None], vector: Zmm, spare: Zmm) -> None:
    """Combines all lanes of a vector; each lane then holds the same. `combine` is commutative."""
    for swap in (SWAP_OUTER, SWAP_INNER):
        a.vshuff32x4(spare, vector, vector, swap)
        combine(vector, vector, spare)
    for swap in (SWAP_OUTER, SWAP_INNER):
        a.vpermilps(spare, vector, swap)
        combine(vector, vector, spare)
