"""ELECTRA for CPU cores: BERT's layers behind embeddings of their own size."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from model.families.shapes import BERT_LAYER
from model.native.outline import Outline
from model.programs.ends import Embeddings, Head, place_and_segment_rows
from model.programs.parts import key_masks
from model.programs.post_norm import Encoder
from model.programs.weights import Weights


class Electra(nn.Module):
    """The whole network: packed tokens in, logits out; its arguments are packing.Packed's."""

    def __init__(self, weights: Weights, settings: dict[str, Any], labels: int) -> None:
        super().__init__()
        here = "electra.embeddings."
        self.embed = Embeddings(weights, here, place_and_segment_rows(weights, here))
        self.positions: int = settings["max_position_embeddings"]
        self.project = weights.product("electra.embeddings_project") \
            if settings["embedding_size"] != settings["hidden_size"] else nn.Identity()
        self.encoder = Encoder(weights, [BERT_LAYER.at(f"electra.encoder.layer.{layer}.")
                                         for layer in range(settings["layers"])], settings)
        self.head = Head(weights, "classifier.dense", "classifier.out_proj", "gelu", labels)

    def forward(self, ids: Tensor, places: Tensor, segments: Tensor, first: Tensor,
                groups: list[tuple[int, int]], gather: Tensor, mask: Tensor,
                scatter: Tensor) -> Tensor:
        x = self.project(self.embed(ids, places + segments * self.positions))  # [N, D]
        return self.head(self.encoder(x, groups, gather, key_masks(mask, groups), first, scatter))


def outline(settings: dict[str, Any]) -> Outline:
    """The same for machine code."""
    is_projected = settings["embedding_size"] != settings["hidden_size"]
    return Outline("electra.embeddings.", [BERT_LAYER.at(f"electra.encoder.layer.{layer}.")
                                           for layer in range(settings["layers"])],
                   "classifier.dense", "classifier.out_proj", "gelu",
                   projection="electra.embeddings_project" if is_projected else "")
