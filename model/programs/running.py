"""Batches through a compiled network: checks, cuts, packs, warms, measures.

A network is a compiled module that takes the arrays of packing.Packed by name and gives logits,
float32 [B, C] with B filled up or not.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from model.program import Row
from model.programs.packing import Packed, cut, pack
from model.programs.plan import Plan
from model.programs.script import give_back_memory

ARRAYS = ("ids", "places", "segments", "first", "gather", "mask", "scatter")
COST_POINTS = ((1, 16), (4, 16), (1, 64), (8, 16), (8, 32), (1, 256), (16, 16), (16, 32))
COST_BUDGET_S = 0.6
COST_REPEATS = 3


class PackedProgram:
    """A model.program.Program over packed tokens. A call takes as many tokens as the kernels take
    rows: more gains nothing, and memory grows with it."""

    def __init__(self, card: dict[str, Any], plan: Plan, network: Any) -> None:
        self.plan = plan
        self._network = network
        self._labels = len(card["labels"])
        self._vocab: int = card["vocab_size"]
        self._max_tokens: int = card["max_tokens"]
        self.token_cap = plan.rows[-1]

    @property
    def facts(self) -> dict[str, Any]:
        return self.plan.facts

    def run(self, rows: Sequence[Row]) -> np.ndarray:
        longest = max((len(row.ids) for row in rows), default=0)
        if longest > self._max_tokens:  # a place past the table would be another segment's
            raise ValueError(f"a text has {longest} tokens, the model takes {self._max_tokens}")
        logits = np.empty((len(rows), self._labels), dtype=np.float32)
        begin = 0
        with torch.inference_mode():
            for part in cut(rows, self.token_cap):
                packed = pack(part, self.plan.fill)
                if packed.ids.max() >= self._vocab:  # torch would tell in a page of text
                    raise ValueError(f"a text has the token id {packed.ids.max()}, the model's "
                                     f"vocabulary ends before {self._vocab}")
                logits[begin + packed.order] = self._call(packed)[:len(part)]
                begin += len(part)
        return logits

    def warm(self) -> None:
        """Has what is built for each number of rows built, compiles by the first call, and touches
        by a few more shapes what else is set up only once."""
        self.plan.warm()
        longest = min(self._max_tokens, 48)
        for sizes in ((longest,), (2,), (1, longest, longest), (2, 3, 2, longest, longest)):
            self.run([_filler(size) for size in sizes])

    def idle(self) -> None:
        give_back_memory()

    def costs(self) -> list[tuple[int, int, float]]:
        points, begin = [], time.monotonic()
        for texts, length in COST_POINTS:
            rows = [_filler(min(length, self._max_tokens))] * texts
            took = []
            for _ in range(COST_REPEATS):
                start = time.perf_counter()
                self.run(rows)
                took.append(time.perf_counter() - start)
                if time.monotonic() - begin > COST_BUDGET_S / 2:
                    break
            points.append((texts, sum(len(row.ids) for row in rows), min(took) * 1e3))
            if time.monotonic() - begin > COST_BUDGET_S / 2:
                break
        return points

    def _call(self, packed: Packed) -> np.ndarray:
        arrays = {name: torch.from_numpy(getattr(packed, name)) for name in ARRAYS}
        return self._network(groups=list(zip(packed.counts, packed.lengths)), **arrays).numpy()


def _filler(length: int) -> Row:
    return Row(np.zeros(length, dtype=np.int64), length)
