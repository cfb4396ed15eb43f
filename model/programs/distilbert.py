"""DistilBERT for CPU cores: BERT's layers under other names, without token types."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from model.families.distilbert import LAYER
from model.native.outline import Outline
from model.programs.ends import Embeddings, Head
from model.programs.parts import key_masks
from model.programs.post_norm import Encoder
from model.programs.weights import Weights


class DistilBert(nn.Module):
    """The whole network: packed tokens in, logits out; its arguments are packing.Packed's."""

    def __init__(self, weights: Weights, settings: dict[str, Any], labels: int) -> None:
        super().__init__()
        here = "distilbert.embeddings."
        self.embed = Embeddings(weights, here,
                                weights.image.widened(here + "position_embeddings.weight"))
        self.encoder = Encoder(weights, [LAYER.at(f"distilbert.transformer.layer.{layer}.")
                                         for layer in range(settings["layers"])], settings)
        self.head = Head(weights, "pre_classifier", "classifier", "relu", labels)

    def forward(self, ids: Tensor, places: Tensor, segments: Tensor, first: Tensor,
                groups: list[tuple[int, int]], gather: Tensor, mask: Tensor,
                scatter: Tensor) -> Tensor:
        x = self.embed(ids, places)                                         # [N, D]
        return self.head(self.encoder(x, groups, gather, key_masks(mask, groups), first, scatter))


def outline(settings: dict[str, Any]) -> Outline:
    """The same for machine code."""
    return Outline("distilbert.embeddings.", [LAYER.at(f"distilbert.transformer.layer.{layer}.")
                                              for layer in range(settings["layers"])],
                   "pre_classifier", "classifier", "relu", has_segments=False)
