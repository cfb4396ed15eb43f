"""BERT for graphs: padded texts of one fixed shape in, logits out, nothing that asks the device.

Tensor letters: B texts, L tokens in each, D hidden, H heads, I intermediate, C classes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from model.programs.attention import attention
from model.programs.image import Image
from model.programs.parts import activate


class Product(nn.Module):
    """x times a weight, plus a bias."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.weight, self.bias = weight, bias

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight, self.bias)


class Norm(nn.Module):
    """LayerNorm of x + y."""

    def __init__(self, weight: Tensor, bias: Tensor, eps: float) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = weight, bias, eps

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.layer_norm(x + y, [x.size(1)], self.weight, self.bias, self.eps)


class Layer(nn.Module):
    """A layer; with `firsts` for the first token of each text only, which is all that the head
    reads of the last one."""

    def __init__(self, made: Weights, layer: int, settings: dict[str, Any],
                 firsts: bool) -> None:
        super().__init__()
        here = f"bert.encoder.layer.{layer}."
        self.query_key_value = made.attention_product(layer)
        self.project = made.product(here + "attention.output.dense")
        self.norm_attention = made.norm(here + "attention.output.LayerNorm")
        self.widen = made.product(here + "intermediate.dense")
        self.narrow = made.product(here + "output.dense")
        self.norm_output = made.norm(here + "output.LayerNorm")
        self.attend = made.attention
        self.heads: int = settings["heads"]
        self.activation: str = settings["activation"]
        self.firsts = firsts

    def forward(self, x: Tensor, starts: Tensor, key_starts: Tensor, lengths: Tensor,
                length: int) -> Tensor:
        tokens, hidden = x.size(0), x.size(1)
        y = self.query_key_value(x).view(tokens, 3, self.heads, hidden // self.heads)
        query, key, value = y.unbind(1)                                     # [B·L, H, D/H]
        width = length
        if self.firsts:
            width, starts_used = 1, starts
            query = query.unflatten(0, [-1, length]).select(1, 0)           # [B, H, D/H]
            x = x.unflatten(0, [-1, length]).select(1, 0)                   # [B, D]
        else:
            starts_used = key_starts
        mixed = self.attend(query, key, value, starts_used, key_starts, lengths, width, length)
        x = self.norm_attention(x, self.project(mixed.reshape(x.size(0), hidden)))
        return self.norm_output(x, self.narrow(activate(self.widen(x), self.activation)))


class PaddedBert(nn.Module):
    """The whole network, compiled: one module for all shapes."""

    def __init__(self, made: Weights, settings: dict[str, Any]) -> None:
        super().__init__()
        table = "bert.embeddings."
        self.words = made.tensor(table + "word_embeddings.weight")
        self.places = made.places(table)
        self.norm = made.norm(table + "LayerNorm")
        last = settings["layers"] - 1
        self.layers = nn.ModuleList(Layer(made, layer, settings, layer == last)
                                    for layer in range(last + 1))
        self.pool = made.product("bert.pooler.dense")
        self.classify = made.product("classifier")

    def forward(self, ids: Tensor, places: Tensor, lengths: Tensor, starts: Tensor,
                key_starts: Tensor, length: int) -> Tensor:
        """ids, places: int32 [B·L]; lengths: int32 [B]; starts: 0, 1, 2 … and key_starts: 0, L,
        2L …, int32 [B + 1]. Logits float32 [B, C]."""
        x = self.norm(nn.functional.embedding(ids, self.words),
                      nn.functional.embedding(places, self.places))         # [B·L, D]
        for layer in self.layers:
            x = layer(x, starts, key_starts, lengths, length)
        return self.classify(torch.tanh(self.pool(x))).float()              # [B, C]


class Weights:
    """Makes the parts of the network from an image, in one type, where `place` puts them."""

    def __init__(self, image: Image, settings: dict[str, Any], dtype: torch.dtype,
                 capability: tuple[int, int], place: Any) -> None:
        self._image, self._dtype, self._place = image, dtype, place
        self._eps: float = settings["layer_norm_eps"]
        self.attention = attention(capability, dtype, settings["hidden_size"] // settings["heads"])

    def tensor(self, name: str) -> Tensor:
        return self._place(self._image.stored(name).to(self._dtype))

    def places(self, table: str) -> Tensor:
        """One table for place and segment: row segment * positions + place."""
        places = self._image.widened(table + "position_embeddings.weight")
        segments = self._image.widened(table + "token_type_embeddings.weight")
        return self._place((segments[:, None] + places[None]).flatten(0, 1).to(self._dtype))

    def norm(self, name: str) -> Norm:
        return Norm(self.tensor(name + ".weight"), self.tensor(name + ".bias"), self._eps)

    def product(self, name: str) -> Product:
        return Product(self.tensor(name + ".weight"), self.tensor(name + ".bias"))

    def attention_product(self, layer: int) -> Product:
        """Query, key and value as one product, in that order."""
        names = [f"bert.encoder.layer.{layer}.attention.self.{part}"
                 for part in ("query", "key", "value")]
        return Product(*(self._place(torch.cat([self._image.stored(f"{name}.{kind}")
                                                for name in names]).to(self._dtype))
                         for kind in ("weight", "bias")))
