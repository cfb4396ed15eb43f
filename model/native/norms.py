"""LayerNorm of float32 rows, with the codes of its output where products of integers follow."""

from __future__ import annotations

import struct
from typing import NamedTuple

from model.native.arguments import Fields
from model.native.assembler import Assembler
from model.native.codes import (ORDER, REACHES, SPARE, VALUES, Coding, emit_codes,
                                emit_coding_start, emit_largest, emit_largest_start, emit_reaches,
                                load_order)
from model.native.columns import Columns, across, fold, sweep
from model.native.groups import FIRST, emit_groups, emit_step, emit_step_of_statistics, statistic
from model.native.operands import RBX, RCX, RSI, ZMM

GAIN, SHIFT = RSI, RBX  # the norm's weight and bias
# Of the four rows that are worked on at once.
SUMS = (ZMM[0:4], ZMM[4:8], ZMM[8:12], ZMM[12:16])
MEAN = RECIPROCAL = ZMM[24:28]  # of minus the standard deviation
MEANS, RECIPROCALS, REACHED = range(3)
STATISTICS = 3


class Norm(NamedTuple):
    """A norm over `width` columns; `coding` is how its output becomes codes, or None."""

    width: int
    eps: float
    coding: Coding | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The fields: addresses of float32 [width] twice; those of coding."""
        return ("gain", "shift") + (self.coding.names if self.coding else ())


def emit_norm_rows(a: Assembler, label: str, fields: Fields, norm: Norm, stride: int) -> None:
    """A finish routine: rows v, `stride` bytes apart, become (v - mean) / sqrt(variance + eps) ·
    gain + shift; with a coding also codes and reaches of that.

    A row that holds a NaN or an infinity becomes NaN as a whole.

    RCX is this row, RDX how many are left, RAX a column.
    """
    coding = norm.coding

    def start() -> None:
        if coding:
            emit_coding_start(a, fields, coding)
        load_order(a)
        a.mov(GAIN, fields.of("gain"))
        a.mov(SHIFT, fields.of("shift"))

    def group() -> None:
        _emit_means(a, norm.width, stride)
        a.mov(RCX, FIRST)
        _emit_deviations(a, norm, stride)
        a.mov(RCX, FIRST)
        _emit_normalised(a, norm, stride)
        if coding:
            a.mov(RCX, FIRST)
            emit_codes(a, coding, REACHED, stride)

    a.align()
    a.label(label)
    emit_groups(a, norm.width, STATISTICS, start, group)


def _emit_means(a: Assembler, width: int, stride: int) -> None:
    def take_sums(count: int) -> None:
        _emit_zero_sums(a, count)

        def add(columns: Columns, _: int) -> None:
            for row, parts in enumerate(SUMS[:count]):
                part = parts[columns.number % 4]
                a.vaddps(part, part, columns.floats(RCX, row * stride))

        sweep(a, width, add)
        _emit_totals(a, MEANS, count)

    def divide() -> None:
        # Divided, so that the mean of equal columns is what they are.
        a.vmovups(SPARE, statistic(MEANS))
        a.vdivps(SPARE, SPARE, a.number(width))
        a.vmovups_to(statistic(MEANS), SPARE)

    emit_step(a, {RCX: stride}, take_sums)
    emit_step_of_statistics(a, divide)


def _emit_deviations(a: Assembler, norm: Norm, stride: int) -> None:
    """Each v becomes mean - v."""
    def take_squares(count: int) -> None:
        _emit_zero_sums(a, count)
        for row, mean in enumerate(MEAN[:count]):
            a.vbroadcastss(mean, statistic(MEANS, row))

        def add(columns: Columns, _: int) -> None:
            for row, value in enumerate(VALUES[:count]):
                part = SUMS[row][columns.number % 4]
                a.vsubps(value, MEAN[row], columns.floats(RCX, row * stride))
                a.vmovups_to(columns.floats(RCX, row * stride), value)
                a.vfmadd231ps(part, value, value)

        sweep(a, norm.width, add)
        _emit_totals(a, RECIPROCALS, count)

    def invert() -> None:
        total, one = SUMS[0][:2]
        a.vmovups(total, statistic(RECIPROCALS))
        a.vmulps(total, total, a.number(1 / norm.width))
        a.vaddps(total, total, a.number(norm.eps))
        a.vsqrtps(total, total)
        a.vbroadcastss(one, a.constant(struct.pack("<f", -1.0)))
        a.vdivps(one, one, total)
        a.vmovups_to(statistic(RECIPROCALS), one)

    emit_step(a, {RCX: stride}, take_squares)
    emit_step_of_statistics(a, invert)


def _emit_normalised(a: Assembler, norm: Norm, stride: int) -> None:
    """Deviations become the results; with a coding, writes their reaches."""
    coding = norm.coding
    gain, shift = SUMS[3][:2]

    def write_rows(count: int) -> None:
        if coding:
            emit_largest_start(a, coding, count)
        for row, reciprocal in enumerate(RECIPROCAL[:count]):
            a.vbroadcastss(reciprocal, statistic(RECIPROCALS, row))

        def write(columns: Columns, _: int) -> None:
            a.vmovups(gain, columns.floats(GAIN))
            a.vmovups(shift, columns.floats(SHIFT))
            for row, value in enumerate(VALUES[:count]):
                a.vmulps(value, RECIPROCAL[row], columns.floats(RCX, row * stride))
                a.vfmadd213ps(value, gain, shift)
                a.vmovups_to(columns.floats(RCX, row * stride), value)
                if coding:
                    emit_largest(a, coding, columns, row, value)

        sweep(a, norm.width, write)
        if coding:
            emit_reaches(a, coding, REACHED, count)

    emit_step(a, {RCX: stride, **({REACHES: 4} if coding else {})}, write_rows)


def _emit_zero_sums(a: Assembler, count: int) -> None:
    for parts in SUMS[:count]:
        for part in parts:
            a.vpxord(part, part, part)


def _emit_totals(a: Assembler, number: int, count: int) -> None:
    """The sums of four rows, or one, to their places in a statistic."""
    for parts in SUMS[:count]:
        fold(a.vaddps, parts)
    total = across(a, a.vaddps, [parts[0] for parts in SUMS[:count]], SPARE)
    if count > 1:
        a.vpermd(total, ORDER, total)
    a.vmovups_to(statistic(number), total)
