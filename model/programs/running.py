"""Batches through a compiled network: checks, cuts, packs, warms, measures.

A network is a compiled module that takes the arrays of packing.Packed by name and gives logits,
float32 [B, C] with B filled up or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from model.program import Row
from model.programs.costs import costs, filler
from model.programs.packing import Packed, cut, pack
from model.programs.plan import Plan
from model.programs.script import give_back_memory

ARRAYS = ("ids", "places", "segments", "first", "gather", "mask", "scatter")
# What a network takes of a text alone of up to so many tokens is kept by length, some 0.5 MB in
# all: packing costs little in a loop, but a quarter of a small model's time between two batches.
KEPT_ALONE = 128


class Alone(NamedTuple):
    """A network's arguments for one text; `ids` is the beginning of those there, to be written."""

    ids: np.ndarray
    arguments: dict[str, Any]


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
        self._alone: dict[int, Alone] = {}

    @property
    def facts(self) -> dict[str, Any]:
        return self.plan.facts

    def run(self, rows: Sequence[Row]) -> np.ndarray:
        rows = list(rows)
        longest = max((len(row.ids) for row in rows), default=0)
        if longest > self._max_tokens:  # a place past the table would be another segment's
            raise ValueError(f"a text has {longest} tokens, the model takes {self._max_tokens}")
        with torch.inference_mode():
            if len(rows) == 1 and longest <= KEPT_ALONE and rows[0].split == longest:
                return self._run_alone(rows[0].ids)
            found = [np.empty((0, self._labels), dtype=np.float32)] if not rows else []
            for part in cut(rows, self.token_cap):
                packed = pack(part, self.plan.fill)
                found.append(self._call(_arguments(packed)).take(packed.ranks, 0))
        return found[0] if len(found) == 1 else np.concatenate(found)

    def warm(self) -> None:
        """Has what is built for each number of rows built, compiles by the first call, and touches
        by a few more shapes what else is set up only once."""
        self.plan.warm()
        longest = min(self._max_tokens, 48)
        for sizes in ((longest,), (2,), (1, longest, longest), (2, 3, 2, longest, longest)):
            self.run([filler(size) for size in sizes])

    def idle(self) -> None:
        give_back_memory()

    def costs(self) -> list[tuple[int, int, float]]:
        return costs(self, self._max_tokens)

    def _run_alone(self, ids: np.ndarray) -> np.ndarray:
        """Logits, float32 [1, C], of one text of one segment."""
        alone = self._alone.get(len(ids))
        if alone is None:
            packed = pack([filler(len(ids))], self.plan.fill)
            alone = Alone(packed.ids[:len(ids)], _arguments(packed))
            self._alone[len(ids)] = alone
        alone.ids[:] = ids
        return self._call(alone.arguments)[:1]

    def _call(self, arguments: dict[str, Any]) -> np.ndarray:
        try:
            return self._network(**arguments).numpy()
        except (IndexError, RuntimeError):
            largest = int(arguments["ids"].max())
            if largest < self._vocab:
                raise
            # torch tells of it in a page of text
            raise ValueError(f"a text has the token id {largest}, the model's vocabulary ends "
                             f"before {self._vocab}") from None


def _arguments(packed: Packed) -> dict[str, Any]:
    arrays = {name: torch.from_numpy(getattr(packed, name)) for name in ARRAYS}
    return {"groups": list(zip(packed.counts, packed.lengths)), **arrays}
