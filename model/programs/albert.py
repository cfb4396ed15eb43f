"""ALBERT for CPU cores: BERT's layers used again and again, behind embeddings of their own size."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from model.families.albert import layers
from model.native.outline import Outline
from model.programs.ends import Embeddings, Head, place_and_segment_rows
from model.programs.parts import key_masks
from model.programs.post_norm import Encoder
from model.programs.weights import Weights


class Albert(nn.Module):
    """The whole network: packed tokens in, logits out; its arguments are packing.Packed's."""

    def __init__(self, weights: Weights, settings: dict[str, Any], labels: int) -> None:
        super().__init__()
        here = "albert.embeddings."
        self.embed = Embeddings(weights, here, place_and_segment_rows(weights, here))
        self.positions: int = settings["max_position_embeddings"]
        self.project = weights.product("albert.encoder.embedding_hidden_mapping_in")
        self.encoder = Encoder(weights, layers(settings), settings)
        self.head = Head(weights, "albert.pooler", "classifier", "tanh", labels)

    def forward(self, ids: Tensor, places: Tensor, segments: Tensor, first: Tensor,
                groups: list[tuple[int, int]], gather: Tensor, mask: Tensor,
                scatter: Tensor) -> Tensor:
        x = self.project(self.embed(ids, places + segments * self.positions))  # [N, D]
        return self.head(self.encoder(x, groups, gather, key_masks(mask, groups), first, scatter))


def outline(settings: dict[str, Any]) -> Outline:
    """The same for machine code."""
    return Outline("albert.embeddings.", layers(settings), "albert.pooler", "classifier", "tanh",
                   projection="albert.encoder.embedding_hidden_mapping_in")
