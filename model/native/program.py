"""Batches through machine code: checks, fills the inputs, runs the tape, takes the logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from model.native.network import Network
from model.native.outline import Outline
from model.program import Row
from model.programs.costs import costs, filler
from model.programs.packing import cut

MOST_ROWS = 512  # more in one call gain nothing
WARM_LENGTHS = (1, 17, 33)


def most_rows(max_tokens: int) -> int:
    """How many tokens a network must take at once where a text has so many."""
    return max(MOST_ROWS, max_tokens)


class NativeProgram:
    """A model.program.Program whose whole network is one call of machine code."""

    def __init__(self, card: dict[str, Any], precision: str, network: Network, outline: Outline
                 ) -> None:
        self.facts = {"precision": precision, "kernels": network.kernels, "is_invariant": True}
        self._network, self._inputs = network, network.inputs
        self._labels = len(card["labels"])
        self._vocab = network.vocab
        self._max_tokens: int = card["max_tokens"]
        self.token_cap = most_rows(self._max_tokens)
        self._pad_id = outline.pad_id
        first = 0 if outline.pad_id is None else outline.pad_id + 1
        self._places = np.arange(first, first + self._max_tokens)
        self._segment_step = network.segment_step if outline.pad_id is None else 0
        self._takes_pairs = len(network.places) > network.segment_step

    def run(self, rows: Sequence[Row]) -> np.ndarray:
        found = [self._run(part) for part in cut(rows, self.token_cap)]
        if len(found) == 1:
            return found[0]
        return np.concatenate([np.empty((0, self._labels), dtype=np.float32), *found])

    def warm(self) -> None:
        """Touches all memory that a batch uses; there is nothing to compile."""
        for length in WARM_LENGTHS:
            self.run([filler(min(length, self._max_tokens))])
        longest = filler(self._max_tokens)
        self.run([longest] * (self.token_cap // self._max_tokens))

    def idle(self) -> None:
        """Nothing: memory does not grow with what has been computed."""

    def costs(self) -> list[tuple[int, int, float]]:
        return costs(self, self._max_tokens)

    def _run(self, rows: Sequence[Row]) -> np.ndarray:
        """Logits, float32 [B, C], of texts that go into one call."""
        self._fill(rows)
        self._network.tape.run()
        return self._network.logits[:len(rows), :self._labels].copy()

    def _fill(self, rows: Sequence[Row]) -> None:
        """Raises ValueError for what would make machine code read past its tables, or what other
        batches left behind."""
        given = self._inputs
        begin, step = 0, self._segment_step
        sizes = [len(row.ids) for row in rows]
        if max(sizes) > self._max_tokens:
            raise ValueError(f"a text has {max(sizes)} tokens, the model takes "
                             f"{self._max_tokens}")
        if min(sizes) == 0:
            raise ValueError("a text has no tokens, the model takes 1 or more")
        tokens = sum(sizes)
        ids, where = given.ids[:tokens], given.where[:tokens]
        np.concatenate([row.ids for row in rows], out=ids, casting="same_kind")
        np.concatenate([self._places[:size] for size in sizes], out=where)
        unsigned = ids.view(np.uint64)  # then one below zero is very large
        largest = unsigned.argmax()     # max() and a comparison with its scalar are slower
        if unsigned.item(largest) >= self._vocab:
            raise ValueError(f"a text has the token id {ids[largest]}, the model's vocabulary "
                             f"ends before {self._vocab}")
        given.tokens[0], given.texts[0] = tokens, len(rows)
        given.lengths[:len(rows)] = sizes
        for text, (row, size) in enumerate(zip(rows, sizes)):
            given.starts[text] = begin
            if step and row.split < size:
                if not self._takes_pairs:
                    raise ValueError("a text is a pair, the model takes none")
                where[begin + row.split:begin + size] += step
            begin += size
        if self._pad_id is not None and (ids == self._pad_id).any():
            self._pass_over_padding(sizes)

    def _pass_over_padding(self, sizes: Sequence[int]) -> None:
        """Padding that a text holds is at the place pad_id and does not count."""
        begin = 0
        for size in sizes:
            counts = self._inputs.ids[begin:begin + size] != self._pad_id
            self._inputs.where[begin:begin + size] = np.cumsum(counts) * counts + self._pad_id
            begin += size
