"""How networks begin and end: embeddings of packed tokens, and the head over each text's first.

Tensor letters: B texts, N tokens, P positions, E embedding size, D hidden, C classes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from model.programs.parts import activate
from model.programs.weights import Weights


class Embeddings(nn.Module):
    """LayerNorm(word + row `where` of a table, in which place and segment are added up before)."""

    def __init__(self, weights: Weights, here: str, rows: Tensor) -> None:
        super().__init__()
        self.words = weights.image.stored(here + "word_embeddings.weight")
        self.rows = rows
        self.norm = weights.norm(here + "LayerNorm")
        self.dtype: torch.dtype = weights.plan.dtype

    def forward(self, ids: Tensor, where: Tensor) -> Tensor:
        x = self.norm(nn.functional.embedding(where, self.rows),
                      nn.functional.embedding(ids, self.words).float())
        return x.to(self.dtype)                                             # [N, E]


def place_and_segment_rows(weights: Weights, here: str) -> Tensor:
    """[S * P, E]: row segment * P + place is what both add to a word."""
    places = weights.image.widened(here + "position_embeddings.weight")
    segments = weights.image.widened(here + "token_type_embeddings.weight")
    return (segments[:, None] + places[None]).flatten(0, 1)


def positions_past_padding(ids: Tensor, places: Tensor, pad_id: int) -> Tensor:
    """Positions from pad_id + 1; padding that a text holds has pad_id and does not count.

    Example: a text 0 5 1 9 with pad_id 1 has the positions 2 3 1 4.
    """
    counts = (ids != pad_id).long()
    before = counts.cumsum(0) - counts                                      # in all texts
    begins = torch.arange(ids.size(0)) - places                             # of each token's text
    return (before + 1 - before.index_select(0, begins)) * counts + pad_id


class Head(nn.Module):
    """out(activation(dense(x))) of the first token of each text, in fp32: few rows cost nothing."""

    def __init__(self, weights: Weights, dense: str, out: str, activation: str,
                 labels: int) -> None:
        super().__init__()
        self.dense = weights.product(dense, fill_outputs=True, kind="fp32")
        self.out = weights.product(out, fill_outputs=True, fill_inputs=True, kind="fp32")
        self.activation: str = activation
        self.labels: int = labels

    def forward(self, x: Tensor) -> Tensor:
        return self.out(activate(self.dense(x.float()), self.activation))[:, :self.labels]  # [B, C]
