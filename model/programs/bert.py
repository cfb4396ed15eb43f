"""BERT for CPU cores: packed tokens, padding in attention only, a last layer for [CLS] alone."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from model.families.shapes import BERT_LAYER
from model.native.outline import Outline
from model.programs.ends import Embeddings, Head, place_and_segment_rows
from model.programs.parts import key_masks
from model.programs.post_norm import Encoder
from model.programs.weights import Weights


class Bert(nn.Module):
    """The whole network: packed tokens in, logits out; its arguments are packing.Packed's."""

    def __init__(self, weights: Weights, settings: dict[str, Any], labels: int) -> None:
        super().__init__()
        here = "bert.embeddings."
        self.embed = Embeddings(weights, here, place_and_segment_rows(weights, here))
        self.positions: int = settings["max_position_embeddings"]
        self.encoder = Encoder(weights, [BERT_LAYER.at(f"bert.encoder.layer.{layer}.")
                                         for layer in range(settings["layers"])], settings)
        self.head = Head(weights, "bert.pooler.dense", "classifier", "tanh", labels)

    def forward(self, ids: Tensor, places: Tensor, segments: Tensor, first: Tensor,
                groups: list[tuple[int, int]], gather: Tensor, mask: Tensor,
                scatter: Tensor) -> Tensor:
        x = self.embed(ids, places + segments * self.positions)             # [N, D]
        return self.head(self.encoder(x, groups, gather, key_masks(mask, groups), first, scatter))


def outline(settings: dict[str, Any]) -> Outline:
    """The same for machine code."""
    return Outline("bert.embeddings.", [BERT_LAYER.at(f"bert.encoder.layer.{layer}.")
                                        for layer in range(settings["layers"])],
                   "bert.pooler.dense", "classifier", "tanh")
