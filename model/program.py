"""What an engine runs: the shape of a program, whichever family it is of."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np


class Row(NamedTuple):
    """One text as token ids, specials included.

    `ids` is an integer array of one dimension, at least one id long and at most the model's
    max_tokens; the first `split` of them are of segment 0, the rest of segment 1.
    """

    ids: np.ndarray
    split: int


class Texts(Sequence[Row]):
    """Rows whose ids lie one after the other in one array, as a message brings them: `ids`, an
    integer array of one dimension, with `sizes` and `splits` of the texts."""

    __slots__ = ("ids", "sizes", "splits")

    def __init__(self, ids: np.ndarray, sizes: list[int], splits: list[int]) -> None:
        self.ids, self.sizes, self.splits = ids, sizes, splits

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Texts:
        """One row or more, side by side."""
        return cls(np.concatenate([row.ids for row in rows]), [len(row.ids) for row in rows],
                   [row.split for row in rows])

    def __len__(self) -> int:
        return len(self.sizes)

    def __iter__(self) -> Iterator[Row]:
        ends = itertools.accumulate(self.sizes)
        return (Row(self.ids[end - size:end], split)
                for end, size, split in zip(ends, self.sizes, self.splits))

    def __getitem__(self, place: Any) -> Any:
        return list(self)[place]


class Program(Protocol):
    """One model, ready to run in this process on one thread.

    A program may also have `run_packed(texts, body)`, which makes of a batch's bytes, as
    native/packed.py tells, what `run` makes of its rows, float32 in bytes; or None, where it leaves
    the batch to `run`.
    """

    token_cap: int
    """More tokens than this in one batch add latency and no speed: advice for the scheduler."""

    facts: dict[str, Any]
    """JSON-able: "precision", "kernels" by layer class, and "is_invariant", which is false where a
    kernel of this machine did not keep every bit. With them another process builds its twin."""

    def run(self, rows: Sequence[Row]) -> np.ndarray:
        """Logits, float32 [B, C], in the order of the rows.

        A row's logits do not depend on its company, not by a bit.
        """

    def warm(self) -> None:
        """Makes every first call that would be slow, so that `run` never stalls later."""

    def idle(self) -> None:
        """Gives memory back that only the next batch will want; for a moment without work."""

    def costs(self) -> list[tuple[int, int, float]]:
        """(texts, tokens, milliseconds) of a few batches, measured now in under a second."""
