"""What batches cost: a few of them timed."""

from __future__ import annotations

import time

import numpy as np

from model.program import Program, Row

POINTS = ((1, 16), (4, 16), (1, 64), (8, 16), (8, 32), (1, 256), (16, 16), (16, 32))
BUDGET_S = 0.3
REPEATS = 3


def costs(program: Program, max_tokens: int) -> list[tuple[int, int, float]]:
    """model.program.Program.costs of a program that takes so many tokens in a text."""
    points, begin = [], time.monotonic()
    for texts, length in POINTS:
        rows = [filler(min(length, max_tokens))] * texts
        took = []
        for _ in range(REPEATS):
            start = time.perf_counter()
            program.run(rows)
            took.append(time.perf_counter() - start)
            if time.monotonic() - begin > BUDGET_S:
                break
        points.append((texts, sum(len(row.ids) for row in rows), min(took) * 1e3))
        if time.monotonic() - begin > BUDGET_S:
            break
    return points


def filler(length: int) -> Row:
    """A text of so many tokens, as good as any other."""
    return Row(np.zeros(length, dtype=np.int64), length)
