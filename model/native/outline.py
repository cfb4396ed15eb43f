"""What a network is made of, as far as machine code goes: encoders of BERT's kind (pure)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from model.families.shapes import LayerNames


class Biases(NamedTuple):
    """Biases of scores by how far a key is behind the query: the table's row `rows(distances)`
    (int64 both) has one for each head."""

    table: str
    rows: Callable[[np.ndarray], np.ndarray]


class Terms(NamedTuple):
    """Scores of queries and of keys with the table's row `rows(distances)` (int64 both), of how far
    the query is behind the key: as the layer's own products make keys and queries of it. `norm` is
    a LayerNorm of the table, or empty."""

    table: str
    norm: str
    rows: Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Outline:
    """An encoder that normalises after each half of a layer, and a head over each first token.

    `embeddings` is the prefix of the tables of words, (with `has_places`) positions and (with
    `has_segments`, never without places) token types, and of their LayerNorm. Positions count from
    0, or where `pad_id` is one, from pad_id + 1 over all that is not padding, which is itself at
    pad_id. `projection` is the product between embeddings that have a width of their own and the
    layers, or empty. `layers` are in the order in which they are used, and one may come back; their
    attention knows distances if `relative` tells how. The head is out(activation(dense(x))).
    """

    embeddings: str
    layers: Sequence[LayerNames]
    dense: str
    out: str
    head_activation: str
    has_places: bool = True
    has_segments: bool = True
    pad_id: int | None = None
    projection: str = ""
    relative: Biases | Terms | None = None

    @property
    def is_last_shared(self) -> bool:
        """Whether the last layer has been used before."""
        return self.layers[-1] in self.layers[:-1]
