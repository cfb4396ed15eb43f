"""Float32 rows to 8-bit codes, each row with its own reach: what products of integers take.

A row's reach is what its largest code stands for. With factors f (one a column), two-sided:
    reach = max(max |x f|, 1e-10),  code = round(x f · 127 / reach) + 128
and one-sided, for rows that are hardly negative (x ≥ least, just below 0):
    reach = max(max x f, least / -16 · 238),  code = round(x f · 238 / reach) + 16
where with factors the reach is also at least min x f · 238 / -16.
A row that holds a NaN or an infinity has a reach that is not finite, hence so are its products.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from model.native.arguments import Fields
from model.native.assembler import Assembler
from model.native.columns import Columns, across, codes_stride, fold, sweep
from model.native.groups import (FIRST, FOUR, emit_groups, emit_step, emit_step_of_statistics,
                                  statistic)
from model.native.operands import K1, R9, R10, R11, RAX, RCX, RSI, ZMM, Zmm, at

TWO_SIDED_STEPS, TWO_SIDED_ZERO, TWO_SIDED_REACH = 127.0, 128, 1e-10
ABOVE, BELOW = 238, 16  # one-sided steps above zero and below

CODES, REACHES, FACTORS = R9, R10, R11  # this row's codes and reach; the factors
MAGNITUDE, ORDER, ZERO_POINT, SPARE = ZMM[28:32]
VALUES = ZMM[16:20]
# Of the rows that are worked on at once.
LARGEST = (ZMM[0:2], ZMM[2:4], ZMM[4:6], ZMM[6:8])
LEAST = (ZMM[20:22], ZMM[22:24], ZMM[24:26], ZMM[26:28])
INVERSE = ZMM[8:12]


class Coding(NamedTuple):
    """How rows of a width become codes; `least` is 0.0 for two-sided ones."""

    width: int
    least: float
    has_factors: bool

    @property
    def names(self) -> tuple[str, ...]:
        """The fields: addresses of uint8 [N, codes_stride], float32 [N] and float32 [width]."""
        return ("codes", "reaches") + (("factors",) if self.has_factors else ())

    @property
    def least_reach(self) -> float:
        return self.least / -BELOW * ABOVE if self.least < 0 else TWO_SIDED_REACH

    @property
    def steps(self) -> float:
        return float(ABOVE) if self.least < 0 else TWO_SIDED_STEPS

    @property
    def has_floor(self) -> bool:
        """Whether what is below zero may decide the reach."""
        return self.least < 0 and self.has_factors


def emit_quantise_rows(a: Assembler, label: str, fields: Fields, coding: Coding,
                       stride: int) -> None:
    """A finish routine: codes and reaches of wide rows that are `stride` bytes apart.

    RCX is this row, RDX how many are left, RAX a column.
    """
    def measure(count: int) -> None:
        emit_largest_start(a, coding, count)

        def take(columns: Columns, _: int) -> None:
            for row, value in enumerate(VALUES[:count]):
                a.vmovups(value, columns.floats(RCX, row * stride))
                emit_largest(a, coding, columns, row, value)

        sweep(a, coding.width, take)
        emit_reaches(a, coding, 0, count)

    def group() -> None:
        emit_step(a, {RCX: stride, REACHES: 4}, measure)
        a.mov(RCX, FIRST)
        emit_codes(a, coding, 0, stride, is_read_on=True)

    a.align()
    a.label(label)
    emit_groups(a, coding.width, 1, lambda: emit_coding_start(a, fields, coding), group)


def emit_coding_start(a: Assembler, fields: Fields, coding: Coding) -> None:
    """Constants, and pointers to what belongs to row RSI."""
    a.imul(CODES, RSI, codes_stride(coding.width))
    a.add(CODES, fields.of("codes"))
    a.mov(REACHES, fields.of("reaches"))
    a.lea(REACHES, at(REACHES, 0, RSI, 4))
    if coding.has_factors:
        a.mov(FACTORS, fields.of("factors"))
    a.vpbroadcastd(MAGNITUDE, a.constant(struct.pack("<I", 0x7fffffff)))
    load_order(a)
    a.mov(RAX, (1 << FOUR) - 1)
    a.kmovw(K1, RAX)
    zero_point = bytes([BELOW, 0]) * 2 if coding.least < 0 else bytes([TWO_SIDED_ZERO]) * 4
    a.vpbroadcastd(ZERO_POINT, a.constant(zero_point))


def load_order(a: Assembler) -> None:
    """ORDER puts in a line what lies in a quarter of a vector after the other in turn."""
    places = np.arange(16)
    a.vmovups(ORDER, a.constant((places % 4 * 4 + places // 4).astype("<i4").tobytes()))


def emit_largest_start(a: Assembler, coding: Coding, count: int) -> None:
    for row in range(count):
        # Floats that are not negative are in the order of their bits.
        a.vpbroadcastd(LARGEST[row][0], a.constant(struct.pack("<f", coding.least_reach)))
        for part in LARGEST[row][1:]:
            a.vpxord(part, part, part)
        for part in LEAST[row] if coding.has_floor else ():
            a.vpxord(part, part, part)


def emit_largest(a: Assembler, coding: Coding, columns: Columns, row: int, value: Zmm) -> None:
    """Takes columns of a row into its largest; overwrites `value`.

    Magnitudes do in one-sided rows too: what is below zero is smaller than the least reach. Their
    bits are compared because a NaN is then above all numbers and stays.
    """
    if coding.has_factors:
        a.vmulps(value, value, columns.floats(FACTORS))
    if coding.has_floor:
        part = LEAST[row][columns.number % 2]
        a.vminps(part, part, value)
    a.vandps(value, value, MAGNITUDE)
    part = LARGEST[row][columns.number % 2]
    a.vpmaxsd(part, part, value)


def emit_reaches(a: Assembler, coding: Coding, number: int, count: int) -> None:
    """Stores the reaches of four rows, or one, also as statistic `number`."""
    for largest, least in zip(LARGEST[:count], LEAST):
        fold(a.vpmaxsd, largest)
        if coding.has_floor:
            fold(a.vminps, least)
            a.vmulps(least[0], least[0], a.number(ABOVE / -BELOW))
            a.vpmaxsd(largest[0], largest[0], least[0])
    reaches = across(a, a.vpmaxsd, [parts[0] for parts in LARGEST[:count]], SPARE)
    if count > 1:
        a.vpermd(reaches, ORDER, reaches)
        a.vmovups_to(at(REACHES), reaches, mask=K1)
    else:
        a.vmovss_to(at(REACHES), reaches)
    a.vmovups_to(statistic(number), reaches)


def emit_codes(a: Assembler, coding: Coding, number: int, stride: int,
               is_read_on: bool = False) -> None:
    """A group's last step: codes of rows from RCX on, `stride` bytes apart, with the reaches in
    statistic `number`; with `is_read_on` the rows after these are needed next."""
    def invert() -> None:
        a.vpbroadcastd(SPARE, a.constant(struct.pack("<f", coding.steps)))
        a.vdivps(SPARE, SPARE, statistic(number))
        a.vmovups_to(statistic(number), SPARE)

    def rows(count: int) -> None:
        for row, inverse in enumerate(INVERSE[:count]):
            a.vbroadcastss(inverse, statistic(number, row))

        def encode(columns: Columns, vectors: int) -> None:
            for row in range(count):
                values = VALUES[:vectors]
                for place, value in enumerate(values, columns.number):
                    part = columns._replace(number=place)
                    if is_read_on:
                        a.prefetcht0(part.floats(RCX, (count + row) * stride))
                    if coding.has_factors:
                        a.vmovups(value, part.floats(RCX, row * stride))
                        a.vmulps(value, value, part.floats(FACTORS))
                        a.vmulps(value, value, INVERSE[row])
                    else:
                        a.vmulps(value, INVERSE[row], part.floats(RCX, row * stride))
                    a.vcvtps2dq(value, value)
                _emit_packed(a, coding)
                a.vmovups_to(columns.codes(CODES, row * codes_stride(coding.width)), VALUES[0])

        sweep(a, coding.width, encode, step=4)

    emit_step_of_statistics(a, invert)
    emit_step(a, {RCX: stride, CODES: codes_stride(coding.width)}, rows)


def _emit_packed(a: Assembler, coding: Coding) -> None:
    """Integers of VALUES to bytes of the first of them."""
    first, second, third, fourth = VALUES
    a.vpackssdw(first, first, second)
    a.vpackssdw(third, third, fourth)
    if coding.least < 0:
        a.vpaddw(first, first, ZERO_POINT)
        a.vpaddw(third, third, ZERO_POINT)
        a.vpackuswb(first, first, third)
    else:
        a.vpacksswb(first, first, third)
        a.vpxord(first, first, ZERO_POINT)
    a.vpermd(first, ORDER, first)
