"""DeBERTa-v2 for CPU cores: BERT's layers around attention that knows distances.

Tensor letters: B texts, N tokens, D hidden.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from model.families.deberta_v2 import LAYER, TERMS, relative_rows
from model.native.outline import Outline, Terms
from model.programs.distances import DistanceAttention, distance_rows, distance_table
from model.programs.ends import Embeddings, Head
from model.programs.parts import activate
from model.programs.post_norm import AfterAttention
from model.programs.weights import VECTOR, Weights


class Layer(nn.Module):
    """A layer for all tokens."""

    def __init__(self, weights: Weights, here: str, settings: dict[str, Any],
                 table: Tensor) -> None:
        super().__init__()
        names = LAYER.at(here)
        self.query_key_value = weights.product(names.query, names.key, names.value)
        self.attend = DistanceAttention(weights, here, settings, table)
        self.after = AfterAttention(weights, names, settings)

    def forward(self, x: Tensor, groups: list[tuple[int, int]], gather: Tensor, mask: Tensor,
                scatter: Tensor, rows: Tensor) -> Tensor:
        mixed = self.attend(self.query_key_value(x), groups, gather, mask, scatter, rows)
        return self.after(mixed, x)                                         # [N, D]


class LastLayer(nn.Module):
    """The last layer: keys and values of all tokens, the rest for the first of each text only."""

    def __init__(self, weights: Weights, here: str, settings: dict[str, Any],
                 table: Tensor) -> None:
        super().__init__()
        names = LAYER.at(here)
        self.query = weights.product(names.query)
        self.key_value = weights.product(names.key, names.value)
        self.attend = DistanceAttention(weights, here, settings, table)
        self.after = AfterAttention(weights, names, settings)

    def forward(self, x: Tensor, groups: list[tuple[int, int]], gather: Tensor, mask: Tensor,
                first: Tensor, rows: Tensor) -> Tensor:
        y = self.key_value(x)                                               # [N, 2D]
        x = x.index_select(0, first)                                        # [B, D]
        return self.after(self.attend.first(self.query(x), y, groups, gather, mask, rows), x)


class Convolution(nn.Module):
    """activation(convolution along each text), as one product over each token's neighbourhood; in
    fp32, for it is one of dozens and its weight is stored in three dimensions."""

    def __init__(self, weights: Weights, settings: dict[str, Any]) -> None:
        super().__init__()
        name, groups = "deberta.encoder.conv.conv", settings["kernel_groups"]
        stored = weights.image.widened(name + ".weight")                    # [D, D/G, width]
        self.hidden: int = len(stored)
        self.reach: int = settings["kernel"] // 2
        self.activation: str = settings["kernel_activation"]
        parts = stored.unflatten(0, (groups, -1)).permute(3, 0, 1, 2)       # [width, G, D/G, D/G]
        weight = torch.cat([torch.block_diag(*part) for part in parts], 1)  # [D, width * D]
        missing = -self.hidden % VECTOR
        self.product = weights.plan.product(
            (name,), nn.functional.pad(weight, (0, 0, 0, missing)),
            nn.functional.pad(weights.image.widened(name + ".bias"), (0, missing)),
            kind="fp32")
        self.dtype: torch.dtype = weights.plan.dtype

    def forward(self, x: Tensor, places: Tensor) -> Tensor:
        tokens = torch.arange(x.size(0))
        around: list[Tensor] = []
        for offset in range(-self.reach, self.reach + 1):
            there = (tokens + offset).clamp(0, x.size(0) - 1)
            is_same_text = places.index_select(0, there) == places + offset
            around.append(x.index_select(0, there) * is_same_text[:, None])
        found = activate(self.product(torch.cat(around, 1).float()), self.activation)
        return found[:, :self.hidden].to(self.dtype)                        # [N, D]


class DebertaV2(nn.Module):
    """The whole network: packed tokens in, logits out; its arguments are packing.Packed's."""

    def __init__(self, weights: Weights, settings: dict[str, Any], labels: int) -> None:
        super().__init__()
        here, hidden = "deberta.embeddings.", settings["hidden_size"]
        places = segments = torch.zeros(1, hidden)
        if settings["absolute_positions"]:
            places = weights.image.widened(here + "position_embeddings.weight")
        if settings["type_vocab_size"]:
            segments = weights.image.widened(here + "token_type_embeddings.weight")
        self.place_step: int = 1 if len(places) > 1 else 0
        self.segment_step: int = len(places) if len(segments) > 1 else 0
        self.embed = Embeddings(weights, here, (segments[:, None] + places[None]).flatten(0, 1))
        table, last = distance_table(weights, settings), settings["layers"] - 1
        self.rows = distance_rows(settings)
        self.layers = nn.ModuleList(
            Layer(weights, f"deberta.encoder.layer.{layer}.", settings, table)
            for layer in range(last))
        self.last = LastLayer(weights, f"deberta.encoder.layer.{last}.", settings, table)
        self.convolve = Convolution(weights, settings) if settings["kernel"] else None
        self.norm = weights.norm("deberta.encoder.conv.LayerNorm") if settings["kernel"] else None
        self.head = Head(weights, "pooler.dense", "classifier", settings["head_activation"],
                         labels)
        self.dtype: torch.dtype = weights.plan.dtype

    def forward(self, ids: Tensor, places: Tensor, segments: Tensor, first: Tensor,
                groups: list[tuple[int, int]], gather: Tensor, mask: Tensor,
                scatter: Tensor) -> Tensor:
        x = self.embed(ids, places * self.place_step + segments * self.segment_step)  # [N, D]
        embeddings, mask = x, mask.to(self.dtype)
        for number, layer in enumerate(self.layers):
            x = layer(x, groups, gather, mask, scatter, self.rows)
            if number == 0 and self.convolve is not None and self.norm is not None:
                x = self.norm(x, self.convolve(embeddings, places))
        x = self.last(x, groups, gather, mask, first, self.rows)            # [B, D]
        if len(self.layers) == 0 and self.convolve is not None and self.norm is not None:
            x = self.norm(x, self.convolve(embeddings, places).index_select(0, first))
        return self.head(x)


def outline(settings: dict[str, Any]) -> Outline | None:
    """The same for machine code; None where it is not that of DeBERTa-v3."""
    relative = settings["relative"]
    if settings["kernel"] or settings["type_vocab_size"] or not relative["span"] \
            or not relative["is_shared"] or settings["terms"] != list(TERMS):
        return None
    return Outline("deberta.embeddings.", [LAYER.at(f"deberta.encoder.layer.{layer}.")
                                           for layer in range(settings["layers"])],
                   "pooler.dense", "classifier", settings["head_activation"],
                   has_places=settings["absolute_positions"], has_segments=False,
                   relative=Terms("deberta.encoder.rel_embeddings",
                                  "deberta.encoder.LayerNorm" if relative["is_normed"] else "",
                                  partial(relative_rows, relative=relative)))
