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
from model.native.columns import Columns, across, codes_stride, fold, pairs_of_rows, sweep
from model.native.operands import R9, R10, R11, RCX, RSI, ZMM, Gpr, Zmm, at

TWO_SIDED_STEPS, TWO_SIDED_REACH = 127.0, 1e-10
ABOVE, BELOW = 238, 16  # one-sided steps above zero and below

CODES, REACHES, FACTORS = R9, R10, R11  # this row's codes and reach; the factors
MAGNITUDE, ORDER, ZERO_POINT = ZMM[31], ZMM[30], ZMM[29]
SPARE = ZMM[28]
# Of the first row of a pair and of the second.
LARGEST = (ZMM[0:4], ZMM[4:8])
LEAST = (ZMM[16:18], ZMM[18:20])
INVERSE = (ZMM[20], ZMM[21])


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

    @property
    def strides(self) -> dict[Gpr, int]:
        return {CODES: codes_stride(self.width), REACHES: 4}


def emit_quantise_rows(a: Assembler, label: str, fields: Fields, coding: Coding,
                       stride: int) -> None:
    """A finish routine: codes and reaches of wide rows that are `stride` bytes apart.

    RCX is this row, RDX how many are left, RAX a column.
    """
    a.align()
    a.label(label)
    emit_coding_start(a, fields, coding)

    def rows(count: int) -> None:
        emit_largest_start(a, coding, count)

        def measure(columns: Columns, _: int) -> None:
            for row in range(count):
                value = ZMM[8 + row]
                a.vmovups(value, columns.floats(RCX, row * stride))
                emit_largest(a, coding, columns, row, value)

        sweep(a, coding.width, measure)
        for row in range(count):
            emit_reach(a, coding, row)
        emit_codes(a, coding, count, RCX, stride)

    pairs_of_rows(a, {RCX: stride, **coding.strides}, rows)
    a.ret()


def emit_coding_start(a: Assembler, fields: Fields, coding: Coding) -> None:
    """Constants, and pointers to what belongs to row RSI."""
    a.imul(CODES, RSI, codes_stride(coding.width))
    a.add(CODES, fields.of("codes"))
    a.mov(REACHES, fields.of("reaches"))
    a.lea(REACHES, at(REACHES, 0, RSI, 4))
    if coding.has_factors:
        a.mov(FACTORS, fields.of("factors"))
    a.vpbroadcastd(MAGNITUDE, a.constant(struct.pack("<I", 0x7fffffff)))
    # Packing takes a quarter of each of four vectors in turn; this puts them in a line.
    places = np.arange(16)
    a.vmovups(ORDER, a.constant((places % 4 * 4 + places // 4).astype("<i4").tobytes()))
    zero_point = bytes([BELOW, 0]) * 2 if coding.least < 0 else bytes([128]) * 4
    a.vpbroadcastd(ZERO_POINT, a.constant(zero_point))


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
    part = LARGEST[row][columns.number % 4]
    a.vpmaxsd(part, part, value)


def emit_reach(a: Assembler, coding: Coding, row: int) -> None:
    """Stores the reach of a row and makes what its values are to be multiplied with."""
    largest, inverse = LARGEST[row][0], INVERSE[row]
    fold(a.vpmaxsd, LARGEST[row])
    if coding.has_floor:
        fold(a.vminps, LEAST[row])
        a.vmulps(LEAST[row][0], LEAST[row][0], a.number(ABOVE / -BELOW))
        a.vpmaxsd(largest, largest, LEAST[row][0])
    across(a, a.vpmaxsd, largest, SPARE)
    a.vmovss_to(at(REACHES, 4 * row), largest)
    a.vpbroadcastd(inverse, a.constant(struct.pack("<f", coding.steps)))
    a.vdivss(inverse, inverse, largest)
    a.vbroadcastss(inverse, inverse)


def emit_codes(a: Assembler, coding: Coding, count: int, source: Gpr, stride: int) -> None:
    """Codes of `count` rows that begin at `source`, `stride` bytes apart."""
    def encode(columns: Columns, vectors: int) -> None:
        for row in range(count):
            values = ZMM[8:8 + vectors]
            for number, value in enumerate(values, columns.number):
                part = columns._replace(number=number)
                if coding.has_factors:
                    a.vmovups(value, part.floats(source, row * stride))
                    a.vmulps(value, value, part.floats(FACTORS))
                    a.vmulps(value, value, INVERSE[row])
                else:
                    a.vmulps(value, INVERSE[row], part.floats(source, row * stride))
                a.vcvtps2dq(value, value)
            _emit_packed(a, coding)
            a.vmovups_to(columns.codes(CODES, row * codes_stride(coding.width)), ZMM[8])

    sweep(a, coding.width, encode, step=4)


def _emit_packed(a: Assembler, coding: Coding) -> None:
    """ZMM8 to ZMM11, integers, to bytes of ZMM8."""
    a.vpackssdw(ZMM[8], ZMM[8], ZMM[9])
    a.vpackssdw(ZMM[10], ZMM[10], ZMM[11])
    if coding.least < 0:
        a.vpaddw(ZMM[8], ZMM[8], ZERO_POINT)
        a.vpaddw(ZMM[10], ZMM[10], ZERO_POINT)
        a.vpackuswb(ZMM[8], ZMM[8], ZMM[10])
    else:
        a.vpacksswb(ZMM[8], ZMM[8], ZMM[10])
        a.vpxord(ZMM[8], ZMM[8], ZERO_POINT)
    a.vpermd(ZMM[8], ORDER, ZMM[8])
