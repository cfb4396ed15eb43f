"""Encoders of BERT's kind: layers that normalise after attention and after the feed-forward.

Tensor letters: B texts, N tokens, D hidden, H heads, I intermediate, L padded places of a text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from model.families.shapes import LayerNames
from model.programs.parts import LEAST, activate, attend, attend_first
from model.programs.weights import Weights


class AfterAttention(nn.Module):
    """What follows attention in a layer: projection, intermediate, output."""

    def __init__(self, weights: Weights, names: LayerNames, settings: dict[str, Any]) -> None:
        super().__init__()
        self.activation: str = settings["activation"]
        self.project = weights.product(names.project, may_overwrite=True)
        self.norm_attention = weights.norm(names.norm_attention)
        self.widen = weights.product(names.widen, fill_outputs=True)
        self.narrow = weights.product(names.narrow, fill_inputs=True,
                                      least=LEAST[self.activation], may_overwrite=True)
        self.norm_output = weights.norm(names.norm_output)

    def forward(self, mixed: Tensor, x: Tensor) -> Tensor:
        x = self.norm_attention(x, self.project(mixed))                     # [N, D]
        inner = activate(self.widen(x), self.activation)                    # [N, I]
        return self.norm_output(x, self.narrow(inner))                      # [N, D]


class Layer(nn.Module):
    """A layer for all tokens."""

    def __init__(self, weights: Weights, names: LayerNames, settings: dict[str, Any]) -> None:
        super().__init__()
        self.query_key_value = weights.product(names.query, names.key, names.value)
        self.after = AfterAttention(weights, names, settings)
        self.heads: int = settings["heads"]

    def forward(self, x: Tensor, groups: list[tuple[int, int]], gather: Tensor,
                masks: list[Tensor], scatter: Tensor) -> Tensor:
        y = self.query_key_value(x)                                         # [N, 3D]
        return self.after(attend(y, self.heads, groups, gather, masks, scatter), x)


class LastLayer(nn.Module):
    """The last layer: keys and values of all tokens, the rest for the first of each text only.

    Exact, for the head reads nothing else.
    """

    def __init__(self, weights: Weights, names: LayerNames, settings: dict[str, Any]) -> None:
        super().__init__()
        self.query = weights.product(names.query)
        self.key_value = weights.product(names.key, names.value)
        self.after = AfterAttention(weights, names, settings)
        self.heads: int = settings["heads"]

    def forward(self, x: Tensor, groups: list[tuple[int, int]], gather: Tensor,
                masks: list[Tensor], first: Tensor) -> Tensor:
        y = self.key_value(x)                                               # [N, 2D]
        x = x.index_select(0, first)                                        # [B, D]
        return self.after(attend_first(self.query(x), y, self.heads, groups, gather, masks), x)


class LayerAsLast(nn.Module):
    """A layer that is used elsewhere too, for the first token of each text only: it makes the
    queries of all tokens, for its products are that layer's."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, groups: list[tuple[int, int]], gather: Tensor,
                masks: list[Tensor], first: Tensor) -> Tensor:
        hidden = x.size(1)
        y = self.layer.query_key_value(x)                                   # [N, 3D]
        queries = y.index_select(0, first).narrow(1, 0, hidden)             # [B, D]
        mixed = attend_first(queries, y.narrow(1, hidden, 2 * hidden), self.layer.heads, groups,
                             gather, masks)
        return self.layer.after(mixed, x.index_select(0, first))            # [B, D]


class Encoder(nn.Module):
    """All layers, in the order of their names; one that is named again is the same module."""

    def __init__(self, weights: Weights, layers: Sequence[LayerNames],
                 settings: dict[str, Any]) -> None:
        super().__init__()
        made = {names: Layer(weights, names, settings) for names in dict.fromkeys(layers[:-1])}
        self.layers = nn.ModuleList(made[names] for names in layers[:-1])
        self.last = LayerAsLast(made[layers[-1]]) if layers[-1] in made \
            else LastLayer(weights, layers[-1], settings)
        self.dtype: torch.dtype = weights.plan.dtype

    def forward(self, x: Tensor, groups: list[tuple[int, int]], gather: Tensor,
                masks: list[Tensor], first: Tensor, scatter: Tensor) -> Tensor:
        """x [N, D] → the first token of each text, [B, D]. `masks` is one for each group, to be
        added to its scores: float32 [texts, 1 or H, 1 or L, L]."""
        masks = [mask.to(self.dtype) for mask in masks]
        for layer in self.layers:
            x = layer(x, groups, gather, masks, scatter)
        return self.last(x, groups, gather, masks, first)
