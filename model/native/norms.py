"""LayerNorm of float32 rows, with the codes of its output where products of integers follow."""

from __future__ import annotations

import struct
from typing import NamedTuple

from model.native.arguments import Fields
from model.native.assembler import Assembler
from model.native.codes import (Coding, emit_codes, emit_coding_start, emit_largest,
                                emit_largest_start, emit_reach)
from model.native.columns import Columns, across, fold, pairs_of_rows, sweep
from model.native.operands import R8, RBX, RCX, RSI, ZMM

X, GAIN, SHIFT = R8, RSI, RBX  # this row of the output; the norm's weight and bias
# Of the first row of a pair and of the second.
SUMS = (ZMM[0:4], ZMM[4:8])
MEAN = (ZMM[22], ZMM[23])
RECIPROCAL = (ZMM[24], ZMM[25])  # of minus the standard deviation
SPARE = ZMM[28]


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
            for row in range(count):
                emit_reach(a, coding, row)
            emit_codes(a, coding, count, X, 4 * norm.width)

    pairs_of_rows(a, strides, rows)
    a.pop(RBX)
    a.ret()


def _emit_means(a: Assembler, width: int, stride: int, count: int) -> None:
    _emit_zero_sums(a, count)

    def add(columns: Columns, _: int) -> None:
        for row in range(count):
            part = SUMS[row][columns.number % 4]
            a.vaddps(part, part, columns.floats(RCX, row * stride))

    sweep(a, width, add)
    for row in range(count):
        _emit_total(a, row)
        # Divided, so that the mean of equal columns is what they are.
        a.vbroadcastss(MEAN[row], a.constant(struct.pack("<f", width)))
        a.vdivss(MEAN[row], SUMS[row][0], MEAN[row])
        a.vbroadcastss(MEAN[row], MEAN[row])


def _emit_deviations(a: Assembler, norm: Norm, stride: int, count: int) -> None:
    _emit_zero_sums(a, count)

    def add(columns: Columns, _: int) -> None:
        for row in range(count):
            value, part = ZMM[8 + row], SUMS[row][columns.number % 4]
            a.vsubps(value, MEAN[row], columns.floats(RCX, row * stride))
            a.vfmadd231ps(part, value, value)

    sweep(a, norm.width, add)
    for row in range(count):
        _emit_total(a, row)
        total, reciprocal = SUMS[row][0], RECIPROCAL[row]
        a.vmulps(total, total, a.number(1 / norm.width))
        a.vaddps(total, total, a.number(norm.eps))
        # Of one lane: a division of all takes three times as long.
        a.vsqrtss(total, total, total)
        a.vbroadcastss(reciprocal, a.constant(struct.pack("<f", -1.0)))
        a.vdivss(reciprocal, reciprocal, total)
        a.vbroadcastss(reciprocal, reciprocal)


def _emit_normalised(a: Assembler, norm: Norm, stride: int, count: int) -> None:
    """Writes x and, with a coding, finds the largest of it."""
    coding = norm.coding
    if coding:
        emit_largest_start(a, coding, count)

    def write(columns: Columns, _: int) -> None:
        gain, shift, values = ZMM[12], ZMM[13], ZMM[8:8 + count]
        a.vmovups(gain, columns.floats(GAIN))
        a.vmovups(shift, columns.floats(SHIFT))
        for row, value in enumerate(values):
            a.vsubps(value, MEAN[row], columns.floats(RCX, row * stride))
        for row, value in enumerate(values):
            a.vmulps(value, value, RECIPROCAL[row])
            a.vfmadd213ps(value, gain, shift)
            a.vmovups_to(columns.floats(X, row * 4 * norm.width), value)
            if coding:
                emit_largest(a, coding, columns, row, value)

    sweep(a, norm.width, write)


def _emit_zero_sums(a: Assembler, count: int) -> None:
    for row in range(count):
        for part in SUMS[row]:
            a.vpxord(part, part, part)


def _emit_total(a: Assembler, row: int) -> None:
    fold(a.vaddps, SUMS[row])
    across(a, a.vaddps, SUMS[row][0], SPARE)
