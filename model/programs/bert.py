"""BERT for CPU cores: packed tokens, padding in attention only, a last layer for [CLS] alone.

Tensor letters: B texts, N tokens, D hidden, I intermediate, C classes; the arrays of a call are
model.programs.packing.Packed's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from model.programs.image import Image
from model.programs.parts import LEAST, activate, attend, attend_first
from model.programs.plan import Plan
from model.programs.running import PackedProgram
from model.programs.script import settle
from model.programs.weights import Weights


class AfterAttention(nn.Module):
    """What follows attention in a layer: projection, intermediate, output."""

    def __init__(self, weights: Weights, here: str, activation: str) -> None:
        super().__init__()
        self.project = weights.product(here + "attention.output.dense", may_overwrite=True)
        self.norm_attention = weights.norm(here + "attention.output.LayerNorm")
        self.widen = weights.product(here + "intermediate.dense", fill_outputs=True)
        self.narrow = weights.product(here + "output.dense", fill_inputs=True,
                                      least=LEAST[activation], may_overwrite=True)
        self.norm_output = weights.norm(here + "output.LayerNorm")
        self.activation: str = activation

    def forward(self, mixed: Tensor, x: Tensor) -> Tensor:
        x = self.norm_attention(x, self.project(mixed))                     # [N, D]
        inner = activate(self.widen(x), self.activation)                    # [N, I]
        return self.norm_output(x, self.narrow(inner))                      # [N, D]


class Layer(nn.Module):
    """A layer for all tokens."""

    def __init__(self, weights: Weights, layer: int, settings: dict[str, Any]) -> None:
        super().__init__()
        here = f"bert.encoder.layer.{layer}."
        self.query_key_value = weights.product(*(f"{here}attention.self.{name}"
                                                 for name in ("query", "key", "value")))
        self.after = AfterAttention(weights, here, settings["activation"])
        self.heads: int = settings["heads"]

    def forward(self, x: Tensor, groups: list[tuple[int, int]], gather: Tensor, mask: Tensor,
                scatter: Tensor) -> Tensor:
        y = self.query_key_value(x)                                         # [N, 3D]
        return self.after(attend(y, self.heads, groups, gather, mask, scatter), x)


class LastLayer(nn.Module):
    """The last layer: keys and values of all tokens, the rest for the first of each text only.

    Exact, for the head reads nothing else.
    """

    def __init__(self, weights: Weights, layer: int, settings: dict[str, Any]) -> None:
        super().__init__()
        here = f"bert.encoder.layer.{layer}."
        self.query = weights.product(here + "attention.self.query")
        self.key_value = weights.product(here + "attention.self.key", here + "attention.self.value")
        self.after = AfterAttention(weights, here, settings["activation"])
        self.heads: int = settings["heads"]

    def forward(self, x: Tensor, groups: list[tuple[int, int]], gather: Tensor, mask: Tensor,
                first: Tensor) -> Tensor:
        y = self.key_value(x)                                               # [N, 2D]
        x = x.index_select(0, first)                                        # [B, D]
        return self.after(attend_first(self.query(x), y, self.heads, groups, gather, mask), x)


class Classifier(nn.Module):
    """The whole network: packed tokens in, logits out."""

    def __init__(self, weights: Weights, settings: dict[str, Any], labels: int) -> None:
        super().__init__()
        table = "bert.embeddings."
        self.words = weights.image.stored(table + "word_embeddings.weight")
        places = weights.image.widened(table + "position_embeddings.weight")
        segments = weights.image.widened(table + "token_type_embeddings.weight")
        # One look-up for place and segment: row segment * positions + place.
        self.places = (segments[:, None] + places[None]).flatten(0, 1)
        self.positions: int = len(places)
        self.norm = weights.norm(table + "LayerNorm")
        last = settings["layers"] - 1
        self.layers = nn.ModuleList(Layer(weights, layer, settings) for layer in range(last))
        self.last = LastLayer(weights, last, settings)
        # The head has few rows: it costs nothing in fp32.
        self.pool = weights.product("bert.pooler.dense", fill_outputs=True, kind="fp32")
        self.classify = weights.product("classifier", fill_outputs=True, fill_inputs=True,
                                        kind="fp32")
        self.labels: int = labels
        self.dtype: torch.dtype = weights.plan.dtype

    def forward(self, ids: Tensor, places: Tensor, segments: Tensor, first: Tensor,
                groups: list[tuple[int, int]], gather: Tensor, mask: Tensor,
                scatter: Tensor) -> Tensor:
        x = self.norm(nn.functional.embedding(places + segments * self.positions, self.places),
                      nn.functional.embedding(ids, self.words).float())     # [N, D]
        x, mask = x.to(self.dtype), mask.to(self.dtype)
        for layer in self.layers:
            x = layer(x, groups, gather, mask, scatter)
        x = self.last(x, groups, gather, mask, first).float()               # [B, D]
        logits = self.classify(torch.tanh(self.pool(x)))
        return logits[:, :self.labels]                                      # [B, C]


def bert_program(card: dict[str, Any], image: Image, plan: Plan) -> PackedProgram:
    """The program of a prepared BERT."""
    settle()
    settings = card["settings"]
    with torch.inference_mode():
        weights = Weights(image, plan, settings["layer_norm_eps"])
        network = plan.compiled(Classifier(weights, settings, len(card["labels"])))
    return PackedProgram(card, plan, network)
