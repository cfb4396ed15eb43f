"""The hyperbolic tangent of vectors that a kernel has in registers."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

from model.native.assembler import Assembler
from model.native.exponential import emit_powers_of_two
from model.native.operands import Zmm

FARTHEST = -64.0  # a power of two that is nothing beside 1


class Tanh:
    """sign(x) · (1 - e) / (1 + e) with e = exp(-2 |x|): 1e-7 from the true value. NaN stays NaN."""

    constants, temporaries = 0, 4

    def load(self, a: Assembler, registers: Sequence[Zmm]) -> None:
        """Nothing: heads are small, and memory has the constants."""

    def apply(self, a: Assembler, values: Sequence[Zmm], temporaries: Sequence[Zmm]) -> None:
        """Each x of `values` becomes tanh(x)."""
        for x in values:
            self._apply(a, x, temporaries)

    def _apply(self, a: Assembler, x: Zmm, temporaries: Sequence[Zmm]) -> None:
        power, below, *free = temporaries[:self.temporaries]
        a.vandps(power, x, a.constant(struct.pack("<I", 0x7fffffff)).to_all)
        a.vmulps(power, power, a.number(-2 * math.log2(math.e)))
        a.vbroadcastss(below, a.number(FARTHEST))
        a.vmaxps(power, below, power)  # in this order NaN stays
        emit_powers_of_two(a, [power], free)
        a.vaddps(below, power, a.number(1.0))
        a.vbroadcastss(free[0], a.number(1.0))
        a.vsubps(power, free[0], power)
        a.vdivps(power, power, below)
        a.vandps(x, x, a.constant(struct.pack("<I", 0x80000000)).to_all)
        a.vorps(x, x, power)
