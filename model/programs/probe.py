"""Trying kernels on this machine: do they keep every bit, are they exact, how long do they take?"""

from __future__ import annotations

import functools
import time
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from model.programs.int8 import INT8_KERNELS, QuantisedWeight
from model.programs.products import WIDE_KERNELS

MOST_ROWS = 512    # more in one call gain nothing
# Above FINE_ROWS kernels that build code for each count get coarser ones: each takes 0.2 MB.
FINE_ROWS, COARSE_STEP = 128, 32
FEW_STEPS = (1, 2, 3, 4, 5, 6, 8, 11, 16)  # tried of kernels that are said not to differ
PART_ROWS = 128    # at least so many rows are compared, for a difference may be rare
FEWEST_COUNTS = 4  # a kernel that agrees with itself on fewer row counts does not keep every bit
TURNS = 3          # by so many different numbers of steps, by turns
CALL_ROWS = 32     # rows that could be computed in the time that a call itself takes
TIMED_ROWS = (16, 256)
TIMED_ROUNDS = 9
CLEARLY = 0.85     # of the time of the one before it in the table: noise must not choose
LIMITS = {"int8": 127, "int7": 63}  # largest weight by kind
EXACT = 1e-6       # relative; one saturated pair of sums would be 0.5 away


class Choice(NamedTuple):
    """The kernel for a class of products. `rows` are the row counts among which no product changes
    by a bit, ascending, or () where that is none of them as far as tried."""

    kernel: str
    rows: tuple[int, ...]


@functools.cache
def choose(kind: str, outputs: int, inputs: int) -> Choice:
    """The kernel for products of weights [outputs, inputs] of a kind.

    Of 8-bit kernels the clearly fastest that is exact and keeps every bit; of wider ones the first
    of the table that does. Where none does (no machine seen yet), the last: there answers agree to
    rounding. Raises ArithmeticError where no 8-bit kernel is exact.
    """
    if kind not in LIMITS:
        for name in WIDE_KERNELS[kind]:
            rows = row_counts(make_random(kind, name, outputs, inputs))
            if rows:
                break
        return Choice(name, rows)
    exact = [name for name in INT8_KERNELS if is_exact(kind, name, outputs, inputs)]
    if not exact:
        raise ArithmeticError(f"no kernel of this CPU multiplies {kind[3:]}-bit weights exactly")
    products = [make_random(kind, name, outputs, inputs) for name in exact]
    best, least = Choice(exact[0], ()), float("inf")
    for name, product, took in zip(exact, products, seconds(products)):
        if took < least * CLEARLY:
            rows = row_counts(product)
            if rows:
                best, least = Choice(name, rows), took
    return best


def row_counts(product: RandomProduct) -> tuple[int, ...]:
    """The largest useful set of row counts among which no row's product changes by a bit, wherever
    the row is; () where there is none.

    A kernel that may compute otherwise by the number of rows is tried with each, and may fall into
    several sets (oneDNN in bfloat16 cuts long sums differently). Any other is tried with a few
    counts, which must all agree.
    """
    step = product.kernel.row_step
    every = tuple(range(step, MOST_ROWS + 1, step))
    if product.kernel.builds_by_rows:
        every = tuple(rows for rows in every if rows <= FINE_ROWS or rows % COARSE_STEP == 0)
    if not product.kernel.differs_by_rows:
        expected = product.kernel(product.x)
        tried = (_in_parts(product, count * step) for count in FEW_STEPS)
        return every if all(torch.equal(found, expected[:len(found)]) for found in tried) else ()
    sets: list[tuple[Tensor, list[int]]] = []
    for rows in every:
        found = _in_parts(product, rows)
        for place, (expected, members) in enumerate(sets):
            common = min(len(found), len(expected))
            if torch.equal(found[:common], expected[:common]):
                sets[place] = max(found, expected, key=len), [*members, rows]
                break
        else:
            sets.append((found, [rows]))
    best = min((members for _, members in sets), key=_cost)
    return tuple(best) if len(best) >= min(FEWEST_COUNTS, len(every)) else ()


def filled(rows: int, counts: Sequence[int]) -> int:
    """How many rows to compute for `rows` of them: as many full calls of the largest count as go
    in, and the smallest count that takes the rest."""
    full, rest = divmod(rows, counts[-1])
    return full * counts[-1] + (counts[bisect_left(counts, rest)] if rest else 0)


def is_exact(kind: str, name: str, outputs: int, inputs: int) -> bool:
    """True if an 8-bit kernel does not saturate where every operand is the largest there is."""
    limit = LIMITS[kind]
    values = torch.full((outputs, inputs), limit, dtype=torch.int8)
    values[1::2] = -limit
    product = INT8_KERNELS[name](QuantisedWeight(values, torch.ones(outputs), torch.zeros(outputs)))
    x = torch.full((product.row_step, inputs), 127.0)
    x[1::2] = -127.0
    expected = x.double() @ values.double().t()
    return bool(((product(x) / expected - 1).abs() < EXACT).all())


class RandomProduct(NamedTuple):
    """A product of random weights, and random rows for it, [MOST_ROWS, inputs]."""

    kernel: Any
    x: Tensor


def make_random(kind: str, name: str, outputs: int, inputs: int) -> RandomProduct:
    """A product of random operands; of a wide kind all terms cancel, so that what comes out is the
    rounding of the sums: another order of adding shows in every element, where after rounding to
    bfloat16 it would show in one of ten thousand."""
    weight, bias = _random(outputs, inputs), _random(outputs, 1)[:, 0]
    x = _random(MOST_ROWS, inputs)
    if kind not in LIMITS:
        half = inputs // 2
        order = torch.randperm(half, generator=torch.Generator().manual_seed(inputs))
        weight[:, half:2 * half] = -weight[:, order]
        x[:, half:2 * half] = x[:, order]
        return RandomProduct(WIDE_KERNELS[kind][name](weight, torch.zeros_like(bias)),
                             x.bfloat16() if kind == "bf16" else x)
    values = (weight * 32).round_().clamp_(-LIMITS[kind], LIMITS[kind]).to(torch.int8)
    weights = QuantisedWeight(values, _random(outputs, 2)[:, 1].abs() + 0.01, bias)
    return RandomProduct(INT8_KERNELS[name](weights), x)


def seconds(products: Sequence[RandomProduct]) -> list[float]:
    """What a few and many rows take of each product, the many at a quarter: CPU time, the shortest
    of some tries, which go round, so that a busy moment hits all alike."""
    total = [0.0] * len(products)
    for rows in TIMED_ROWS:
        shortest = [float("inf")] * len(products)
        for _ in range(TIMED_ROUNDS):
            for place, (kernel, x) in enumerate(products):
                x = x[:rows]
                begin = time.thread_time()
                kernel(x)
                shortest[place] = min(shortest[place], time.thread_time() - begin)
        for place, took in enumerate(shortest):
            total[place] += took / (1 if rows == TIMED_ROWS[0] else 4)
    return total


def _in_parts(product: RandomProduct, rows: int) -> Tensor:
    """The products of the first rows, at least PART_ROWS of them, by calls of so many each, in each
    of which they have changed places."""
    calls = -(-PART_ROWS // rows)
    step = product.kernel.row_step
    turn = step * (1 + rows // step % TURNS)
    found = [product.kernel(part.roll(turn, 0)).roll(-turn, 0)
             for part in product.x[:calls * rows].split(rows)]
    return torch.cat(found)


def _cost(counts: list[int]) -> float:
    """Computed rows per row over all numbers of rows alike, where a call costs CALL_ROWS more."""
    return sum((filled(rows, counts) - rows // -counts[-1] * CALL_ROWS) / rows
               for rows in range(1, MOST_ROWS + 1))


def _random(rows: int, columns: int) -> Tensor:
    seeded = torch.Generator().manual_seed(rows * 65537 + columns)
    return torch.randn(rows, columns, generator=seeded)
