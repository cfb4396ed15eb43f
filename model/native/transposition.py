"""Columns of up to 16 rows, made in registers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from model.native.assembler import Assembler
from model.native.operands import Mem, Zmm

QUARTER = 4  # float32 lanes of 128 bits, which most shuffles do not leave


def column_lane(row: int, rows: int) -> int:
    """In which lane of its column a row lies that emit_columns was given with `rows` in all."""
    return row + QUARTER if QUARTER < rows <= 2 * QUARTER and row >= QUARTER else row


def emit_columns(a: Assembler, rows: Sequence[Mem], spare: list[Zmm]) -> Iterator[tuple[int, Zmm]]:
    """(column, its register) of the 16 columns of 16 float32 of `rows` (4, 8, 12 or 16 of them),
    emitted step by step. Where a row lies is column_lane's; other lanes repeat some row.

    Registers are taken from `spare`, 17 for 16 rows at first, 14, 11, 7 for fewer; the caller puts
    a column's back when it has no more use for it, or has 17 in any case.

    Fours of rows are turned within quarters of a register first; then the quarters are dealt out.
    That is 24, 32, 48 or 64 shuffles: the fewer the rows, the fewer. Only one port of a core
    shuffles, so columns are best used as they come.
    """
    fours = [_turned(a, rows[first:first + QUARTER], spare)
             for first in range(0, len(rows), QUARTER)]
    for column in range(QUARTER):
        dealt = _dealt(a, [four[column] for four in fours], spare)
        for quarter, register in enumerate(dealt):
            yield QUARTER * quarter + column, register


def _turned(a: Assembler, rows: Sequence[Mem], spare: list[Zmm]) -> list[Zmm]:
    """Register k: in quarter q, column 4·q + k of the four rows."""
    first, second, third, fourth, low = (spare.pop(0) for _ in range(5))
    for register, row in zip((first, second, third, fourth), rows):
        a.vmovups(register, row)
    a.vunpcklps(low, first, second)
    a.vunpckhps(first, first, second)
    a.vunpcklps(second, third, fourth)
    a.vunpckhps(third, third, fourth)
    a.vunpcklpd(fourth, low, second)
    a.vunpckhpd(low, low, second)
    a.vunpcklpd(second, first, third)
    a.vunpckhpd(first, first, third)
    spare.append(third)
    return [fourth, low, second, first]


def _dealt(a: Assembler, parts: Sequence[Zmm], spare: list[Zmm]) -> list[Zmm]:
    """Register q: quarter q of each of the parts, one after the other."""
    if len(parts) <= 2:
        results = [spare.pop(0) for _ in range(QUARTER - 1)] + [parts[0]]
        for quarter, result in enumerate(results):
            a.vshuff32x4(result, parts[0], parts[-1], 0x55 * quarter)
        spare.extend(parts[1:])
        return results
    free = spare.pop(0)
    a.vshuff32x4(free, parts[0], parts[1], 0x44)          # quarters 0 1 of both
    a.vshuff32x4(parts[0], parts[0], parts[1], 0xee)      # quarters 2 3 of both
    if len(parts) == 3:
        last = spare.pop(0)
        sources = [(parts[1], free, 0x08), (free, free, 0x5d), (last, parts[0], 0xa8),
                   (parts[0], parts[0], 0xfd)]
        for result, pair, choice in sources:
            a.vshuff32x4(result, pair, parts[2], choice)
        spare.append(parts[2])
    else:
        a.vshuff32x4(parts[1], parts[2], parts[3], 0x44)
        a.vshuff32x4(parts[2], parts[2], parts[3], 0xee)
        sources = [(parts[3], free, parts[1], 0x88), (free, free, parts[1], 0xdd),
                   (parts[1], parts[0], parts[2], 0x88), (parts[0], parts[0], parts[2], 0xdd)]
        for result, pair, other, choice in sources:
            a.vshuff32x4(result, pair, other, choice)
        spare.append(parts[2])
    return [result for result, *_ in sources]
