"""Element-wise activations of vectors that a kernel has in registers.

The smooth ones are g(x) = x · s(x) with s(x) + s(-x) = 1. So g(x) - relu(x) = -|x| · s(-|x|): it is
even and dies out, and one code serves all of them with another table: 31 cubics in |x|, and nothing
where |x| is large. A number's piece is told by the upper bits of |x| + `start`, so pieces double
their width at each power of two: they are narrow near 0, where the functions bend.

Of all float32 errors are at most 6e-7 ("gelu", "gelu_tanh"), 2e-6 ("quick_gelu"), 4e-6 ("silu").
NaN stays NaN, infinity stays, what lies beyond the pieces is exactly that of relu, and 0 gives 0.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from model.native.assembler import Assembler
from model.native.operands import K1, K2, K3, K4, Zmm
from model.native.tanh import Tanh

PIECES = 32
# Squares would take five cycles a vector in place of six, with errors of 8e-6 to 3e-5.
DEGREE = 3
# Of a float32 this leaves sign, exponent and 4 bits; tables are looked up with the lowest 5.
DROPPED_BITS = 19
MASKS = K1, K2, K3, K4
ABOVE = 6              # vcmpps: not less and not equal, hence true for NaN
SMALLER_SIZE = 0b1010  # vrangeps: the operand nearer to 0, without its sign


class Smooth(NamedTuple):
    """s at minus a positive number, and what is added to |x| to find its piece: more makes pieces
    wider and reaches farther (measured: the largest error is the least there)."""

    share: Callable[[float], float]
    start: float


def _logistic_below(y: float) -> float:
    return 1 / (1 + math.exp(y))


SMOOTH = {
    "gelu": Smooth(lambda t: math.erfc(t / math.sqrt(2)) / 2, 1.875),
    "gelu_tanh": Smooth(
        lambda t: _logistic_below(math.sqrt(8 / math.pi) * (t + 0.044715 * t ** 3)), 1.875),
    "quick_gelu": Smooth(lambda t: _logistic_below(1.702 * t), 3.375),
    "silu": Smooth(_logistic_below, 5.5),
}


HERE = frozenset((*SMOOTH, "relu", "tanh"))


def piece_edges(start: float) -> np.ndarray:
    """Where pieces begin and end on the axis of |x|: float64 [PIECES + 1], from 0 on."""
    first = int(np.float32(start).view(np.int32)) >> DROPPED_BITS
    steps = np.arange(first, first + PIECES + 1, dtype=np.int32) << DROPPED_BITS
    return steps.view(np.float32).astype(np.float64) - start


def fit(smooth: Smooth) -> np.ndarray:
    """The table: float32 [DEGREE + 1, PIECES], powers of |x| from the zeroth, pieces by the lowest
    bits of |x| + start. The last piece is 0; the first has no constant, so that 0 gives 0."""
    edges = piece_edges(smooth.start)[:-1]
    table = np.zeros((PIECES, DEGREE + 1))
    table[1:-1] = _interpolate(smooth.share, edges[1:-1], edges[2:], DEGREE + 1, 0)
    table[0, 1:] = _interpolate(smooth.share, edges[:1], edges[1:2], DEGREE, 1)[0]
    first = int(np.float32(smooth.start).view(np.int32)) >> DROPPED_BITS
    return np.roll(table, first % PIECES, axis=0).T.astype(np.float32)


def _interpolate(share: Callable[[float], float], low: np.ndarray, high: np.ndarray, terms: int,
                 power: int) -> np.ndarray:
    """-t · s(-t) as so many terms from t ** power on, for each piece from low to high: the same at
    Chebyshev's nodes, which is nearly the best that there is. float64 [pieces, terms]."""
    nodes = np.cos(np.pi * (np.arange(terms) + 0.5) / terms)
    t = ((low + high) / 2)[:, None] + ((high - low) / 2)[:, None] * nodes   # [pieces, terms]
    values = np.array([-one * share(one) for one in t.flat]).reshape(t.shape)
    powers = t[..., None] ** np.arange(power, power + terms)                # [pieces, nodes, terms]
    return np.linalg.solve(powers, values[..., None])[..., 0]


def activation_of(name: str) -> Activation | Tanh:
    """The code of an activation by its name in model.programs.parts; KeyError for one that is not
    written here (HERE has all names)."""
    return Tanh() if name == "tanh" else Activation(name)


class Activation:
    """The code of one activation, by its name in model.programs.parts.

    The caller calls `load` once, outside its loop, and `apply` for vectors; it keeps the
    `constants` registers in between and lends `temporaries` registers for each vector of an apply:
    5 and 4, or 1 and 0 for "relu". The smooth ones are 12 operations of the two vector ports, six
    cycles, of which each waits for the one before: vectors are worked on side by side.
    """

    def __init__(self, name: str) -> None:
        """Raises KeyError for an activation that is not written here."""
        self._smooth = None if name == "relu" else SMOOTH[name]
        self.constants = 1 if self._smooth is None else 2 + DEGREE
        self.temporaries = 0 if self._smooth is None else 4
        self._registers: Sequence[Zmm] = ()

    def load(self, a: Assembler, registers: Sequence[Zmm]) -> None:
        """Zero, and of each power's table the lower half."""
        self._registers = registers[:self.constants]
        a.vpxord(registers[0], registers[0], registers[0])
        if self._smooth is None:
            return
        table = fit(self._smooth)
        limit = piece_edges(self._smooth.start)[-2]
        self._limit = a.number(limit)
        self._start = a.number(self._smooth.start)
        self._shift = a.constant(struct.pack("<i", DROPPED_BITS)).to_all
        # Upper halves come out of memory as fast (measured), and leave registers to the caller.
        self._upper = [a.constant(row[PIECES // 2:].tobytes()) for row in table]
        for register, row in zip(self._registers[1:], table):
            a.vmovups(register, a.constant(row[:PIECES // 2].tobytes()))

    def apply(self, a: Assembler, values: Sequence[Zmm], temporaries: Sequence[Zmm]) -> None:
        """Each x of `values` becomes g(x)."""
        zero, *lower = self._registers
        if self._smooth is None:
            for x in values:
                a.vmaxps(x, zero, x)  # in this order NaN stays
            return
        size, piece, y, term = (temporaries[place::4][:len(values)] for place in range(4))
        for own, x in zip(size, values):
            a.vrangeps(own, x, self._limit, SMALLER_SIZE)
        for own, of in zip(piece, size):
            a.vaddps(own, of, self._start)
        for own in piece:
            a.vpsrlvd(own, own, self._shift)
        for own, of in zip(y, piece):
            a.vmovups(own, of)
            a.vpermi2ps(own, lower[DEGREE], self._upper[DEGREE])
        for power in range(DEGREE - 1, -1, -1):
            if not power:
                term = piece  # the last look-up may overwrite it
            for own, of in zip(term, piece):
                if power:
                    a.vmovups(own, of)
                a.vpermi2ps(own, lower[power], self._upper[power])
            for own, at_size, added in zip(y, size, term):
                a.vfmadd213ps(own, at_size, added)
        # x + y where x is above 0 or NaN, else y, which is never -0: that is relu(x) + y, whose
        # maximum would crowd the one port that still multiplies where tiles are at work.
        for mask, x in zip(MASKS, values):
            a.vcmpps(mask, x, zero, ABOVE)
        for mask, x, added in zip(MASKS, values, y):
            a.vaddps(added, added, x, mask=mask)
            a.vmovups(x, added)
