"""MPNet for CPU cores: BERT's layers, with one bias of relative positions in all of them.

Tensor letters: N tokens, H heads, L padded places of a text, P the largest L, D hidden.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from model.families.mpnet import LAYER, buckets
from model.native.outline import Biases, Outline
from model.programs.ends import Embeddings, Head, positions_past_padding
from model.programs.packing import KEY_STEP
from model.programs.parts import key_masks
from model.programs.post_norm import Encoder
from model.programs.weights import Weights


class RelativeBias(nn.Module):
    """Packed's mask with the bias of relative positions added, for each group."""

    def __init__(self, weights: Weights, positions: int) -> None:
        super().__init__()
        last = positions + KEY_STEP
        rows = torch.from_numpy(buckets(np.arange(-last, last + 1)))
        biases = weights.image.widened("mpnet.encoder.relative_attention_bias.weight")
        self.biases = biases[rows].t().contiguous()                         # [H, 2P + 1]
        self.last: int = last

    def forward(self, mask: Tensor, groups: list[tuple[int, int]]) -> list[Tensor]:
        masks: list[Tensor] = []
        for hidden, (texts, length) in zip(key_masks(mask, groups), groups):
            # Row L - 1 - q of the windows begins with the distance 0 - q.
            near = self.biases.narrow(1, self.last + 1 - length, 2 * length - 1)
            masks.append(near.unfold(1, length, 1).flip(1) + hidden)        # [texts, H, L, L]
        return masks


class MPNet(nn.Module):
    """The whole network: packed tokens in, logits out; its arguments are packing.Packed's."""

    def __init__(self, weights: Weights, settings: dict[str, Any], labels: int) -> None:
        super().__init__()
        here = "mpnet.embeddings."
        self.embed = Embeddings(weights, here,
                                weights.image.widened(here + "position_embeddings.weight"))
        self.pad_id: int = settings["pad_id"]
        self.bias = RelativeBias(weights, settings["max_position_embeddings"])
        self.encoder = Encoder(weights, [LAYER.at(f"mpnet.encoder.layer.{layer}.")
                                         for layer in range(settings["layers"])], settings)
        self.head = Head(weights, "classifier.dense", "classifier.out_proj", "tanh", labels)

    def forward(self, ids: Tensor, places: Tensor, segments: Tensor, first: Tensor,
                groups: list[tuple[int, int]], gather: Tensor, mask: Tensor,
                scatter: Tensor) -> Tensor:
        x = self.embed(ids, positions_past_padding(ids, places, self.pad_id))  # [N, D]
        return self.head(self.encoder(x, groups, gather, self.bias(mask, groups), first, scatter))


def outline(settings: dict[str, Any]) -> Outline:
    """The same for machine code."""
    return Outline("mpnet.embeddings.", [LAYER.at(f"mpnet.encoder.layer.{layer}.")
                                         for layer in range(settings["layers"])],
                   "classifier.dense", "classifier.out_proj", "tanh", has_segments=False,
                   pad_id=settings["pad_id"],
                   relative=Biases("mpnet.encoder.relative_attention_bias", buckets))
