"""How texts become the input of a graph: one array of numbers a launch, filled on the host.

The input of a shape (B texts of L tokens) is int32: ids [B·L], rows of the table of places and
segments [B·L], true lengths [B]. Empty places hold a text of one token, so no row of attention is
without a key.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from model.device.ladder import Shape
from model.program import Row


def size(shape: Shape) -> int:
    """How many numbers the input of a shape has."""
    return 2 * shape.tokens + shape.batch


def fill(into: np.ndarray, shape: Shape, rows: Sequence[Row], positions: int) -> None:
    """Writes at most `shape.batch` texts, none longer than `shape.length`, into int32 `into`
    [size(shape)]; `positions` is how many places the table has for each segment."""
    lengths = np.ones(shape.batch, dtype=np.int32)
    splits = np.ones(shape.batch, dtype=np.int32)
    lengths[:len(rows)] = [len(row.ids) for row in rows]
    splits[:len(rows)] = [row.split for row in rows]
    columns = np.arange(shape.length, dtype=np.int32)
    is_text = columns < lengths[:, None]                                    # [B, L]
    ids = into[:shape.tokens].reshape(shape.batch, shape.length)
    ids.fill(0)
    if rows:
        texts = is_text[:len(rows)]
        ids[:len(rows)][texts] = np.concatenate([row.ids for row in rows])
    places = into[shape.tokens:2 * shape.tokens].reshape(shape.batch, shape.length)
    places[:] = columns
    places += positions * (is_text & (columns >= splits[:, None]))
    into[2 * shape.tokens:size(shape)] = lengths


def check(rows: Sequence[Row], vocab: int, max_tokens: int) -> None:
    """Raises ValueError for what would be an address out of bounds: on a device it ends the
    process."""
    for row in rows:
        tokens = len(row.ids)
        if not 1 <= tokens <= max_tokens:
            raise ValueError(f"a text has {tokens} tokens, the model takes 1 to {max_tokens}")
        if not 0 <= row.split <= tokens:
            raise ValueError(f"a text of {tokens} tokens is split at {row.split}")
        if row.ids.max() >= vocab or row.ids.min() < 0:
            raise ValueError(f"a text has a token id outside the model's vocabulary of {vocab}")
