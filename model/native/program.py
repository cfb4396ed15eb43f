"""Batches through machine code: checks, fills the inputs, runs the tape, takes the logits."""

from __future__ import annotations

import operator
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from model.native.direct import Direct
from model.native.network import Network
from model.native.outline import Outline
from model.native.packed import Limits
from model.program import Row, Texts
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
        # A table of segments that has but one.
        self._refuses_pairs = outline.pad_id is None and network.segment_step > 0 \
            and len(network.places) <= network.segment_step
        self._direct = Direct(network, self._labels, Limits(
            card["id_bytes"], self._max_tokens, self.token_cap, self._refuses_pairs))

    def run(self, rows: Sequence[Row]) -> np.ndarray:
        texts = rows if isinstance(rows, Texts) else Texts.of(rows) if rows else None
        if texts and len(texts.ids) <= self.token_cap:
            return self._run(texts)
        found = [self._run(Texts.of(part)) for part in cut(list(rows), self.token_cap)]
        return np.concatenate([np.empty((0, self._labels), dtype=np.float32), *found])

    def run_packed(self, texts: int, body: bytes) -> bytes | None:
        """What `run` makes of a body as packed.py tells, in bytes; None where something is wrong
        with it or with the logits: `run` says what."""
        return self._direct.run(texts, body)

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

    def _run(self, texts: Texts) -> np.ndarray:
        """Logits, float32 [B, C], of texts that go into one call."""
        self._fill(texts)
        self._network.tape.run()
        if not self._inputs.texts.item():
            raise ValueError(f"a text has the token id {self._stranger(texts)}, the model's "
                             f"vocabulary ends before {self._vocab}")
        return self._network.logits[:len(texts), :self._labels].copy()

    def _fill(self, texts: Texts) -> None:
        """Raises ValueError for what would make machine code write past its tables, or read what
        other batches left behind."""
        given, sizes, splits = self._inputs, texts.sizes, texts.splits
        if max(sizes) > self._max_tokens:
            raise ValueError(f"a text has {max(sizes)} tokens, the model takes "
                             f"{self._max_tokens}")
        if min(sizes) == 0:
            raise ValueError("a text has no tokens, the model takes 1 or more")
        if self._refuses_pairs and any(map(operator.lt, splits, sizes)):
            raise ValueError("a text is a pair, the model takes none")
        tokens, count = len(texts.ids), len(sizes)
        np.copyto(given.ids[:tokens], texts.ids, casting="same_kind")
        write = struct.Struct(f"={count}q").pack_into       # numpy takes long over short lists
        write(given.lengths, 0, *sizes)
        write(given.splits, 0, *splits)
        given.tokens[0], given.texts[0] = tokens, count

    def _stranger(self, texts: Texts) -> int:
        """An id that no word has."""
        return next(number for number in texts.ids.tolist() if not 0 <= number < self._vocab)
