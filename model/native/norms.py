"""LayerNorm of float32 rows, with the codes of its output where products of integers follow."""

from __future__ import annotations

import struct
from typing import NamedTuple

from model.native.arguments import Fields
from model.native.assembler import Assembler
from model.native.codes import (SPARE, VALUES, Coding, emit_codes, emit_coding_start, emit_largest,
                                emit_largest_start, emit_reaches)
from model.native.columns import Columns, across, fold, groups_of_rows, spread_rows, sweep
from model.native.operands import R8, RBX, RCX, RSI, ZMM, Zmm

X, GAIN, SHIFT = R8, RSI, RBX  # this row of the output; the norm's weight and bias
# Of the rows that are worked on at once.
SUMS = (ZMM[0:4], ZMM[4:8], ZMM[8:12], ZMM[12:16])
MEAN, RECIPROCAL = ZMM[20:24], ZMM[24:28]  # of minus the standard deviation


class Norm(NamedTuple):
    """A norm over `width` columns; `coding` is how its output becomes codes, or None."""

    width: int
    eps: float
    coding: Coding | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The fields: addresses of float32 [width] twice, float32 [N, width]; those of coding."""
        return ("gain", "shift", "x") + (self.coding.names if self.coding else ())


def emit_norm_rows(a: Assembler, label: str, fields: Fields, norm: Norm, stride: int) -> None:
    """A finish routine: x = (v - mean) / sqrt(variance + eps) · gain + shift of wide rows v that
    are `stride` bytes apart and may be those of x; with a coding also codes and reaches of x.

    A row that holds a NaN or an infinity becomes NaN as a whole.
    """
    coding = norm.coding
    strides = {RCX: stride, X: 4 * norm.width, **(coding.strides if coding else {})}
    a.align()
    a.label(label)
    a.push(RBX)
    if coding:
        emit_coding_start(a, fields, coding)
    a.imul(X, RSI, 4 * norm.width)
    a.add(X, fields.of("x"))
    a.mov(GAIN, fields.of("gain"))
    a.mov(SHIFT, fields.of("shift"))

    def rows(count: int) -> None:
        _emit_means(a, norm.width, stride, count)
        _emit_deviations(a, norm, stride, count)
        _emit_normalised(a, norm, stride, count)
        if coding:
            emit_reaches(a, coding, count)
            emit_codes(a, coding, count, X, 4 * norm.width)

    groups_of_rows(a, norm.width, strides, rows)
    a.pop(RBX)
    a.ret()


def _emit_means(a: Assembler, width: int, stride: int, count: int) -> None:
    _emit_zero_sums(a, count)

    def add(columns: Columns, _: int) -> None:
        for row in range(count):
            part = SUMS[row][columns.number % 4]
            a.vaddps(part, part, columns.floats(RCX, row * stride))

    sweep(a, width, add)
    total = _emit_totals(a, count)
    # Divided, so that the mean of equal columns is what they are.
    a.vdivps(total, total, a.number(width))
    spread_rows(a, MEAN[:count], total)


def _emit_deviations(a: Assembler, norm: Norm, stride: int, count: int) -> None:
    _emit_zero_sums(a, count)

    def add(columns: Columns, _: int) -> None:
        for row, value in enumerate(VALUES[:count]):
            part = SUMS[row][columns.number % 4]
            a.vsubps(value, MEAN[row], columns.floats(RCX, row * stride))
            a.vfmadd231ps(part, value, value)
            # The next rows; those of x are better not fetched before they are written.
            a.prefetcht0(columns.floats(RCX, (count + row) * stride))

    sweep(a, norm.width, add)
    total = _emit_totals(a, count)
    a.vmulps(total, total, a.number(1 / norm.width))
    a.vaddps(total, total, a.number(norm.eps))
    a.vsqrtps(total, total)
    a.vbroadcastss(SPARE, a.constant(struct.pack("<f", -1.0)))
    a.vdivps(SPARE, SPARE, total)
    spread_rows(a, RECIPROCAL[:count], SPARE)


def _emit_normalised(a: Assembler, norm: Norm, stride: int, count: int) -> None:
    """Writes x and, with a coding, finds the largest of it."""
    coding, values = norm.coding, VALUES[:count]
    gain, shift = SUMS[3][:2]
    if coding:
        emit_largest_start(a, coding, count)

    def write(columns: Columns, _: int) -> None:
        a.vmovups(gain, columns.floats(GAIN))
        a.vmovups(shift, columns.floats(SHIFT))
        for row, value in enumerate(values):
            a.vsubps(value, MEAN[row], columns.floats(RCX, row * stride))
            a.vmulps(value, value, RECIPROCAL[row])
            a.vfmadd213ps(value, gain, shift)
            a.vmovups_to(columns.floats(X, row * 4 * norm.width), value)
            if coding:
                emit_largest(a, coding, columns, row, value)

    sweep(a, norm.width, write)


def _emit_zero_sums(a: Assembler, count: int) -> None:
    for parts in SUMS[:count]:
        for part in parts:
            a.vpxord(part, part, part)


def _emit_totals(a: Assembler, count: int) -> Zmm:
    for parts in SUMS[:count]:
        fold(a.vaddps, parts)
    return across(a, a.vaddps, [parts[0] for parts in SUMS[:count]], SPARE)
