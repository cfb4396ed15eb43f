"""What attention reads of relative positions, made of an outline and weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from model.families.shapes import LayerNames
from model.native.attention_bias import bias_distances
from model.native.attention_terms import terms_of
from model.native.memory import aligned
from model.native.outline import Biases, Outline, Terms
from model.native.weights import Weights


class Positions:
    """Makes the fields of attention that tell of relative positions."""

    def __init__(self, weights: Weights, outline: Outline, settings: dict[str, Any]) -> None:
        self._weights, self._relative = weights, outline.relative
        self._heads = settings["heads"]
        self._width = settings["hidden_size"] // settings["heads"]
        self._longest = settings["max_position_embeddings"]
        self._table = np.empty(0)
        self._biases: dict[bool, np.ndarray] = {}
        if isinstance(self._relative, Biases):
            self._biases = {one_query: self._biases_of(self._relative, one_query)
                            for one_query in (False, True)}
        if isinstance(self._relative, Terms):
            self._table = weights.table(f"{self._relative.table}.weight")
            if self._relative.norm:
                self._table = weights.normalised(self._table, self._relative.norm,
                                                 settings["layer_norm_eps"])

    def words(self, names: LayerNames, one_query: bool) -> dict[str, np.ndarray]:
        """By field, for the layer of these names."""
        if isinstance(self._relative, Biases):
            return {"biases": self._biases[one_query]}
        if isinstance(self._relative, Terms):
            return {"terms": self._terms_of(self._relative, names, one_query)}
        return {}

    def _biases_of(self, relative: Biases, one_query: bool) -> np.ndarray:
        """float32 [heads, distances]."""
        table = self._weights.table(f"{relative.table}.weight")
        near = table[relative.rows(bias_distances(self._longest, one_query))]
        return aligned(near.T * np.float32(math.sqrt(self._width)))

    def _terms_of(self, relative: Terms, names: LayerNames, one_query: bool) -> np.ndarray:
        near = relative.rows(-bias_distances(self._longest, one_query))
        key, query = (self._weights.transformed(self._table, name)[near].reshape(
            len(near), self._heads, self._width) for name in (names.key, names.query))
        return terms_of(key, query, self._longest, one_query)
