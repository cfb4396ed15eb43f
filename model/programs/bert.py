"""BERT for CPU cores in fp32: packed tokens, padding in attention only, a last layer for [CLS].

Tensor letters: B texts, N tokens, Q places padded for attention (model.programs.packing), D hidden,
H heads, I intermediate, C classes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from model.program import Row
from model.programs.image import Image
from model.programs.packing import Packed, cut, pack
from model.programs.products import KERNELS, at_least, choose
from model.programs.script import give_back_memory, script, settle

# Element-wise functions take whole vectors and do the rest of an array one by one, in other code:
# no array may have a rest, so widths that they run over are filled up with zeros to a multiple.
VECTOR = 32
# A call takes so many tokens that its widest array has this many bytes, about what the second
# cache holds: more gains nothing, and memory grows with it.
CALL_BYTES = 2 << 20
CALL_TOKENS_LEAST, CALL_TOKENS_MOST = 256, 1024

COST_POINTS = ((1, 16), (4, 16), (1, 64), (8, 16), (8, 32), (1, 256), (16, 16), (16, 32))
COST_BUDGET_S = 0.6
COST_REPEATS = 3


def activate(x: Tensor, name: str) -> Tensor:
    """The activation of the intermediate layer, in place where torch can."""
    if name == "gelu":
        return torch.ops.aten.gelu_(x)
    if name == "gelu_tanh":
        return torch.ops.aten.gelu_(x, approximate="tanh")
    if name == "relu":
        return torch.relu_(x)
    if name == "silu":
        return torch.ops.aten.silu_(x)
    return x * torch.sigmoid(x * 1.702)  # quick_gelu


class Norm(nn.Module):
    """LayerNorm of x + y, where y may be overwritten."""

    def __init__(self, weight: Tensor, bias: Tensor, eps: float) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = weight, bias, eps

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.layer_norm(y.add_(x), [x.size(1)], self.weight, self.bias, self.eps)


class AfterAttention(nn.Module):
    """What follows attention in a layer: projection, intermediate, output."""

    def __init__(self, weights: Weights, layer: int, settings: dict[str, Any]) -> None:
        super().__init__()
        here = f"bert.encoder.layer.{layer}."
        self.project = weights.product(here + "attention.output.dense")
        self.norm_attention = weights.norm(here + "attention.output.LayerNorm")
        self.widen = weights.product(here + "intermediate.dense", fill_outputs=True)
        self.narrow = weights.product(here + "output.dense", fill_inputs=True)
        self.norm_output = weights.norm(here + "output.LayerNorm")
        self.activation: str = settings["activation"]

    def forward(self, mixed: Tensor, x: Tensor) -> Tensor:
        x = self.norm_attention(x, self.project(mixed))                     # [N, D]
        inner = activate(self.widen(x), self.activation)                    # [N, I]
        return self.norm_output(x, self.narrow(inner))                      # [N, D]


class Layer(nn.Module):
    """A layer for all tokens."""

    def __init__(self, weights: Weights, layer: int, settings: dict[str, Any]) -> None:
        super().__init__()
        self.query_key_value = weights.attention_product(layer, ("query", "key", "value"))
        self.after = AfterAttention(weights, layer, settings)
        self.heads: int = settings["heads"]

    def forward(self, x: Tensor, groups: list[tuple[int, int]], gather: Tensor, mask: Tensor,
                scatter: Tensor) -> Tensor:
        heads, size = self.heads, x.size(1) // self.heads
        y = self.query_key_value(x)                                         # [N, 3D]
        mixed: list[Tensor] = []
        begin = 0
        for texts, length in groups:
            places = texts * length
            part = y.index_select(0, gather.narrow(0, begin, places))
            query, key, value = part.view(texts, length, 3, heads, size).permute(
                2, 0, 3, 1, 4).unbind(0)                                    # [b, H, length, D/H]
            found = nn.functional.scaled_dot_product_attention(
                query, key, value, mask.narrow(0, begin, places).view(texts, 1, 1, length))
            mixed.append(found.transpose(1, 2).reshape(places, heads * size))
            begin += places
        return self.after(torch.cat(mixed).index_select(0, scatter), x)     # [N, D]


class LastLayer(nn.Module):
    """The last layer: keys and values of all tokens, the rest for the first of each text only.

    Exact, for the head reads nothing else.
    """

    def __init__(self, weights: Weights, layer: int, settings: dict[str, Any]) -> None:
        super().__init__()
        self.query = weights.attention_product(layer, ("query",))
        self.key_value = weights.attention_product(layer, ("key", "value"))
        self.after = AfterAttention(weights, layer, settings)
        self.heads: int = settings["heads"]

    def forward(self, x: Tensor, groups: list[tuple[int, int]], gather: Tensor, mask: Tensor,
                first: Tensor) -> Tensor:
        heads, size = self.heads, x.size(1) // self.heads
        y = self.key_value(x)                                               # [N, 2D]
        x = at_least(x.index_select(0, first), 4)                           # [B, D], B >= 4
        queries = self.query(x)
        mixed: list[Tensor] = []
        begin, text = 0, 0
        for texts, length in groups:
            places = texts * length
            part = y.index_select(0, gather.narrow(0, begin, places))
            key, value = part.view(texts, length, 2, heads, size).permute(
                2, 0, 3, 1, 4).unbind(0)                                    # [b, H, length, D/H]
            query = queries.narrow(0, text, texts).view(texts, 1, heads, size).transpose(1, 2)
            found = nn.functional.scaled_dot_product_attention(
                query, key, value, mask.narrow(0, begin, places).view(texts, 1, 1, length))
            mixed.append(found.transpose(1, 2).reshape(texts, heads * size))
            begin += places
            text += texts
        return self.after(at_least(torch.cat(mixed), 4), x)                 # [B, D]


class Classifier(nn.Module):
    """The whole network, compiled: packed tokens in, logits out."""

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
        self.pool = weights.product("bert.pooler.dense", fill_outputs=True)
        self.classify = weights.product("classifier", fill_outputs=True, fill_inputs=True)
        self.labels: int = labels

    def forward(self, ids: Tensor, places: Tensor, segments: Tensor, first: Tensor,
                groups: list[tuple[int, int]], gather: Tensor, mask: Tensor,
                scatter: Tensor) -> Tensor:
        x = self.norm(nn.functional.embedding(places + segments * self.positions, self.places),
                      nn.functional.embedding(ids, self.words).float())     # [N, D]
        for layer in self.layers:
            x = layer(x, groups, gather, mask, scatter)
        x = self.last(x, groups, gather, mask, first)                       # [B, D]
        logits = self.classify(torch.tanh(self.pool(x)))
        return logits[:first.size(0), :self.labels]                         # [B, C]


class Weights:
    """Makes the parts of a network from an image, all products with one kernel."""

    def __init__(self, image: Image, kernel: str, eps: float) -> None:
        self.image = image
        self._kernel = KERNELS[kernel]
        self._eps = eps

    def norm(self, name: str) -> Norm:
        return Norm(self.image.widened(name + ".weight"), self.image.widened(name + ".bias"),
                    self._eps)

    def product(self, name: str, fill_outputs: bool = False,
                fill_inputs: bool = False) -> nn.Module:
        """The product `name`; filled dimensions become multiples of VECTOR with zeros."""
        weight, bias = self.image.widened(name + ".weight"), self.image.widened(name + ".bias")
        outputs, inputs = weight.shape
        more = (-outputs % VECTOR if fill_outputs else 0), (-inputs % VECTOR if fill_inputs else 0)
        if any(more):
            weight = nn.functional.pad(weight, (0, more[1], 0, more[0]))
            bias = nn.functional.pad(bias, (0, more[0]))
        return self._kernel(weight, bias)

    def attention_product(self, layer: int, names: Sequence[str]) -> nn.Module:
        """Several of query, key and value as one product, in that order."""
        names = [f"bert.encoder.layer.{layer}.attention.self.{name}" for name in names]
        return self._kernel(torch.cat([self.image.widened(name + ".weight") for name in names]),
                            torch.cat([self.image.widened(name + ".bias") for name in names]))


class BertProgram:
    """A model.program.Program.

    `kernel` names the products' kernel, `is_invariant` says that it kept every bit when tried.
    """

    def __init__(self, card: dict[str, Any], weights: Any) -> None:
        settle()
        settings, labels = card["settings"], len(card["labels"])
        self._labels = labels
        self._vocab: int = settings["vocab"]
        self._max_tokens: int = card["max_tokens"]
        self.token_cap = min(max(CALL_BYTES // (4 * settings["intermediate"]), CALL_TOKENS_LEAST),
                             CALL_TOKENS_MOST)
        with torch.inference_mode():
            self.kernel, self.is_invariant = choose(_product_shapes(settings, labels))
            made = Weights(Image(weights), self.kernel, settings["layer_norm_eps"])
            self._network = script(Classifier(made, settings, labels))

    def run(self, rows: Sequence[Row]) -> np.ndarray:
        longest = max((len(row.ids) for row in rows), default=0)
        if longest > self._max_tokens:  # a place past the table would be another segment's
            raise ValueError(f"a text has {longest} tokens, the model takes {self._max_tokens}")
        logits = np.empty((len(rows), self._labels), dtype=np.float32)
        begin = 0
        with torch.inference_mode():
            for part in cut(rows, self.token_cap):
                packed = pack(part)
                if packed.ids.max() >= self._vocab:  # torch would tell in a page of text
                    raise ValueError(f"a text has the token id {packed.ids.max()}, the model's "
                                     f"vocabulary ends before {self._vocab}")
                logits[begin + packed.order] = self._call(packed)
                begin += len(part)
        return logits

    def warm(self) -> None:
        """Compiles by the first call; a few more shapes touch what else is set up only once."""
        longest = min(self._max_tokens, 48)
        for sizes in ((longest,), (2,), (1, longest, longest), (2, 3, 2, longest, longest)):
            self.run([_filler(size) for size in sizes])

    def idle(self) -> None:
        give_back_memory()

    def costs(self) -> list[tuple[int, int, float]]:
        points, begin = [], time.monotonic()
        for texts, length in COST_POINTS:
            rows = [_filler(min(length, self._max_tokens))] * texts
            took = []
            for _ in range(COST_REPEATS):
                start = time.perf_counter()
                self.run(rows)
                took.append(time.perf_counter() - start)
                if time.monotonic() - begin > COST_BUDGET_S / 2:
                    break
            points.append((texts, sum(len(row.ids) for row in rows), min(took) * 1e3))
            if time.monotonic() - begin > COST_BUDGET_S / 2:
                break
        return points

    def _call(self, packed: Packed) -> np.ndarray:
        arrays = {name: torch.from_numpy(getattr(packed, name))
                  for name in ("ids", "places", "segments", "first", "gather", "mask", "scatter")}
        return self._network(groups=list(zip(packed.counts, packed.lengths)), **arrays).numpy()


def _filler(length: int) -> Row:
    return Row(np.zeros(length, dtype=np.int64), length)


def _product_shapes(settings: dict[str, Any], labels: int) -> set[tuple[int, int]]:
    """(N, K) of every product as it is made above."""
    hidden = settings["hidden_size"]
    inner, pooled, classes = (size + -size % VECTOR
                              for size in (settings["intermediate"], hidden, labels))
    return {(3 * hidden, hidden), (2 * hidden, hidden), (hidden, hidden), (inner, hidden),
            (hidden, inner), (pooled, hidden), (classes, pooled)}
