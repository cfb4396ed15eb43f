"""RoBERTa for CPU cores: BERT's layers; positions pass over padding, all tokens are of one type."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from model.families.shapes import BERT_LAYER
from model.native.outline import Outline
from model.programs.ends import Embeddings, Head, place_and_segment_rows, positions_past_padding
from model.programs.parts import key_masks
from model.programs.post_norm import Encoder
from model.programs.weights import Weights


class Roberta(nn.Module):
    """The whole network: packed tokens in, logits out; its arguments are packing.Packed's."""

    def __init__(self, weights: Weights, settings: dict[str, Any], labels: int) -> None:
        super().__init__()
        here = "roberta.embeddings."
        rows = place_and_segment_rows(weights, here)[:settings["max_position_embeddings"]]
        self.embed = Embeddings(weights, here, rows.clone())
        self.pad_id: int = settings["pad_id"]
        self.encoder = Encoder(weights, [BERT_LAYER.at(f"roberta.encoder.layer.{layer}.")
                                         for layer in range(settings["layers"])], settings)
        self.head = Head(weights, "classifier.dense", "classifier.out_proj", "tanh", labels)

    def forward(self, ids: Tensor, places: Tensor, segments: Tensor, first: Tensor,
                groups: list[tuple[int, int]], gather: Tensor, mask: Tensor,
                scatter: Tensor) -> Tensor:
        x = self.embed(ids, positions_past_padding(ids, places, self.pad_id))  # [N, D]
        return self.head(self.encoder(x, groups, gather, key_masks(mask, groups), first, scatter))


def outline(settings: dict[str, Any]) -> Outline:
    """The same for machine code."""
    return Outline("roberta.embeddings.", [BERT_LAYER.at(f"roberta.encoder.layer.{layer}.")
                                           for layer in range(settings["layers"])],
                   "classifier.dense", "classifier.out_proj", "tanh", pad_id=settings["pad_id"])
