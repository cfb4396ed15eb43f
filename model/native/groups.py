"""Groups of rows that go through a routine's steps together.

What a step makes of a row as a whole (a sum across it, a division, a root) is waited for long. So
all rows of a group, as many as stay in the core's first cache, take a step before the next one
begins: what is waited for is then another row's. Steps go through a group four rows at a time; what
they make of rows lies on the stack between them, a float32 a row and statistic. A row's own
sequence of operations is the same in any company.
"""

from __future__ import annotations

from collections.abc import Callable

from model.native.assembler import Assembler
from model.native.columns import LANES, VECTOR
from model.native.operands import R12, R13, R14, RAX, RBP, RBX, RCX, RDX, RSP, Gpr, Mem, at

FOUR = 4  # rows at once: a vector of each of their sums is combined across in one go
# A group's rows, at most, and the bytes that they may take: with what is made of them three times
# as much is worked on.
GROUP_ROWS, GROUP_BYTES = 32, 16384
# Of a group; a vector more than rows, as four rows' are written by a whole one.
STATISTIC_BYTES = 4 * (GROUP_ROWS + LANES)
KEPT = (RBX, RBP, R12, R13, R14)
FIRST = R14                       # row of the group
ROWS_LEFT, STATISTICS = R12, RBP  # of the group's step
CALLER = at(RSP)                  # before the statistics


def emit_groups(a: Assembler, width: int, statistics: int, start: Callable[[], None],
                body: Callable[[], None]) -> None:
    """A routine for RDX rows of `width` float32 columns, the first of which is at RCX: `start`
    once, `body` for each group, and the return. `body` finds the group's first row in RCX and
    FIRST, leaves RCX after the last, and keeps RDX, R13, FIRST and the stack. RBX is the
    routine's."""
    group = a.fresh("group")
    a.push(*KEPT)
    a.mov(RAX, RSP)
    a.sub(RSP, VECTOR + STATISTIC_BYTES * statistics)
    a.and_(RSP, -VECTOR)
    a.mov(CALLER, RAX)
    start()
    a.label(group)
    a.mov(FIRST, RCX)
    a.mov(R13, _group_rows(width))
    a.cmp(R13, RDX)
    a.cmovg(R13, RDX)
    body()
    a.sub(RDX, R13)
    a.jg(group)
    a.mov(RSP, CALLER)
    a.pop(*reversed(KEPT))
    a.ret()


def emit_step(a: Assembler, strides: dict[Gpr, int], body: Callable[[int], None]) -> None:
    """`body(4)` for each four rows of the group, then `body(1)` for each that is left; each of the
    pointers in `strides` moves on by so many bytes a row."""
    a.lea(STATISTICS, at(RSP, VECTOR))
    a.mov(ROWS_LEFT, R13)
    for rows in (FOUR, 1):
        again, fewer = a.fresh("again"), a.fresh("fewer")
        a.cmp(ROWS_LEFT, rows)
        a.jl(fewer)
        a.label(again)
        body(rows)
        for pointer, stride in {STATISTICS: 4, **strides}.items():
            a.add(pointer, rows * stride)
        a.sub(ROWS_LEFT, rows)
        a.cmp(ROWS_LEFT, rows)
        a.jge(again)
        a.label(fewer)


def emit_step_of_statistics(a: Assembler, body: Callable[[], None]) -> None:
    """`body` for a vector of statistics, as often as the group has one."""
    again = a.fresh("again")
    a.lea(STATISTICS, at(RSP, VECTOR))
    a.mov(ROWS_LEFT, R13)
    a.label(again)
    body()
    a.add(STATISTICS, VECTOR)
    a.sub(ROWS_LEFT, LANES)
    a.jg(again)


def statistic(number: int, row: int = 0) -> Mem:
    """The statistic of the step's first row, or of another."""
    return at(STATISTICS, STATISTIC_BYTES * number + 4 * row)


def _group_rows(width: int) -> int:
    """A multiple of four."""
    return max(FOUR, min(GROUP_ROWS, GROUP_BYTES // (4 * width) // FOUR * FOUR))
