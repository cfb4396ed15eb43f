"""2 to the power of float32 numbers in registers."""

from __future__ import annotations

from collections.abc import Sequence

from model.native.assembler import Assembler
from model.native.operands import Zmm

# 2^f - 1 for 0 <= f < 1, from f^6 down to f: a fit of least relative error, 2e-9 of 2^f (Lawson's
# weights, our own).
POWERS = (0.00021612917771562934, 0.0012467845808714628, 0.009675451554358006,
          0.055485282093286514, 0.2402293086051941, 0.6931470632553101)
ABOVE_FLOOR = 9  # vreduceps: what is above the next lower integer, and no complaint about the rest


def emit_powers_of_two(a: Assembler, values: Sequence[Zmm], free: Sequence[Zmm]) -> None:
    """Each of `values` becomes 2 to its power, within 1.3 ulp; far below 2^-149 it becomes 0.

    Infinities come out as NaN, so that an overflow is not taken for a number. Takes two `free`
    registers for each value; where there are fewer, values wait for each other.

    Worked example: -1.75 is -2 + 0.25; 2^0.25 of the polynomial is scaled by 2^-2: 0.2973.
    """
    together = len(free) // 2
    for first in range(0, len(values), together):
        group = list(zip(values[first:first + together], free[::2], free[1::2]))
        for value, above, power in group:
            a.vreduceps(above, value, ABOVE_FLOOR)
            a.vbroadcastss(power, a.number(POWERS[0]))
        for factor in (*POWERS[1:], 1.0):
            for _, above, power in group:
                a.vfmadd213ps(power, above, a.number(factor))
        for value, _, power in group:
            a.vscalefps(power, power, value)  # by the integer below; infinities hide what is NaN
        for value, _, power in group:
            a.vfmadd132ps(value, power, a.number(0.0))
