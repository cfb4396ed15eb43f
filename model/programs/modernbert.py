"""ModernBERT for CPU cores: packed tokens, rotated positions, local attention in most layers.

Tensor letters: B texts, N tokens, Q padded places, D hidden, H heads, I intermediate, C classes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from model.families.modernbert import GLOBAL, LOCAL, angles
from model.programs.nearby import LocalAttention
from model.programs.parts import PlainNorm, activate, attend, attend_first, key_masks
from model.programs.weights import VECTOR, Weights


class Layer(nn.Module):
    """A layer that normalises before each of its halves; sums stay float32 in every precision."""

    def __init__(self, weights: Weights, layer: int, settings: dict[str, Any]) -> None:
        super().__init__()
        here = f"model.layers.{layer}."
        self.norm_attention = weights.norm(here + "attn_norm", PlainNorm) if layer else None
        self.query_key_value = weights.product(here + "attn.Wqkv")
        self.project = weights.product(here + "attn.Wo", may_overwrite=True)
        self.norm_feed_forward = weights.norm(here + "mlp_norm", PlainNorm)
        self.widen = weights.product(here + "mlp.Wi")
        self.narrow = weights.product(here + "mlp.Wo", fill_inputs=True, may_overwrite=True)
        self.heads: int = settings["heads"]
        self.attend_near = LocalAttention(settings["heads"], settings["reach"])
        self.is_local: bool = settings["attention"][layer] == LOCAL
        self.activation: str = settings["activation"]
        self.missing: int = -settings["intermediate"] % VECTOR
        self.dtype: torch.dtype = weights.plan.dtype

    def forward(self, x: Tensor, groups: list[tuple[int, int]], gather: Tensor,
                masks: list[Tensor], scatter: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        y = self.looked_up(x, cosines, sines)                               # [N, 3D]
        if self.is_local:
            mixed = self.attend_near(y, groups, gather, masks, scatter)
        else:
            mixed = attend(y, self.heads, groups, gather, masks, scatter)
        return self.after(mixed, x)                                         # [N, D]

    @torch.jit.export
    def first(self, x: Tensor, groups: list[tuple[int, int]], gather: Tensor,
              masks: list[Tensor], first: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        """The layer for the first token of each text only: [B, D]."""
        y = self.looked_up(x, cosines, sines)                               # [N, 3D]
        queries = y.index_select(0, first).narrow(1, 0, x.size(1))
        y = y.narrow(1, x.size(1), 2 * x.size(1))
        if self.is_local:
            mixed = self.attend_near.first(queries, y, groups, gather, masks)
        else:
            mixed = attend_first(queries, y, self.heads, groups, gather, masks)
        return self.after(mixed, x.index_select(0, first))

    def looked_up(self, x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        """Queries, keys and values [N, 3D]; numbers i and i + size/2 of a head's queries and keys
        are turned as a pair."""
        y = x
        if self.norm_attention is not None:
            y = self.norm_attention(x)
        y = self.query_key_value(y.to(self.dtype))
        half = x.size(1) // self.heads // 2
        turning = y.view(x.size(0), 3, self.heads, 2 * half).narrow(1, 0, 2)
        first, second = turning.narrow(3, 0, half), turning.narrow(3, half, half)
        turned = first * cosines - second * sines                           # [N, 2, H, D/2H]
        second.mul_(cosines).add_(first * sines)
        first.copy_(turned)
        return y

    def after(self, mixed: Tensor, x: Tensor) -> Tensor:
        x = x + self.project(mixed)                                         # [N, D]
        inner, gate = self.widen(self.norm_feed_forward(x).to(self.dtype)).chunk(2, 1)
        if self.missing:
            inner = nn.functional.pad(inner, (0, self.missing))
            gate = nn.functional.pad(gate, (0, self.missing))
        return x + self.narrow(activate(inner, self.activation) * gate)


class Rotation(nn.Module):
    """The cosine and sine of each place's angles, for one kind of attention."""

    def __init__(self, settings: dict[str, Any], kind: str, dtype: torch.dtype) -> None:
        super().__init__()
        size = settings["hidden_size"] // settings["heads"]
        turns = angles(np.arange(settings["max_position_embeddings"]), size,
                       settings["thetas"][kind])
        self.cosines = torch.from_numpy(np.cos(turns)).to(dtype)            # [P, D/2H]
        self.sines = torch.from_numpy(np.sin(turns)).to(dtype)

    def forward(self, places: Tensor) -> tuple[Tensor, Tensor]:
        return (self.cosines.index_select(0, places)[:, None, None],
                self.sines.index_select(0, places)[:, None, None])          # [N, 1, 1, D/2H]


class Head(nn.Module):
    """classifier(norm(activation(dense(x)))), in fp32: few rows cost nothing."""

    def __init__(self, weights: Weights, settings: dict[str, Any], labels: int) -> None:
        super().__init__()
        self.dense = weights.product("head.dense", fill_outputs=True, kind="fp32")
        self.norm = weights.norm("head.norm", PlainNorm)
        self.classify = weights.product("classifier", fill_outputs=True, kind="fp32")
        self.activation: str = settings["head_activation"]
        self.labels: int = labels

    def forward(self, x: Tensor) -> Tensor:
        y = activate(self.dense(x), self.activation).narrow(1, 0, x.size(1))
        return self.classify(self.norm(y))[:, :self.labels]                 # [B, C]


class ModernBert(nn.Module):
    """The whole network: packed tokens in, logits out; its arguments are packing.Packed's."""

    def __init__(self, weights: Weights, settings: dict[str, Any], labels: int) -> None:
        super().__init__()
        self.words = weights.image.stored("model.embeddings.tok_embeddings.weight")
        self.norm = weights.norm("model.embeddings.norm", PlainNorm)
        self.near = LocalAttention(settings["heads"], settings["reach"])
        self.dtype: torch.dtype = weights.plan.dtype
        self.rotate_all = Rotation(settings, GLOBAL, self.dtype)
        self.rotate_near = Rotation(settings, LOCAL, self.dtype)
        layers = [Layer(weights, layer, settings) for layer in range(settings["layers"])]
        self.last = layers.pop() if settings["pooling"] == "cls" else None
        self.layers = nn.ModuleList(layers)
        self.norm_final = weights.norm("model.final_norm", PlainNorm)
        self.head = Head(weights, settings, labels)

    def forward(self, ids: Tensor, places: Tensor, segments: Tensor, first: Tensor,
                groups: list[tuple[int, int]], gather: Tensor, mask: Tensor,
                scatter: Tensor) -> Tensor:
        x = self.norm(nn.functional.embedding(ids, self.words).float())     # [N, D]
        padding = mask
        mask = mask.to(self.dtype)
        masks_all = key_masks(mask, groups)
        masks_near = self.near.masks(places, mask, groups, gather)
        turns_all, turns_near = self.rotate_all(places), self.rotate_near(places)
        for layer in self.layers:
            masks, (cosines, sines) = masks_all, turns_all
            if layer.is_local:
                masks, (cosines, sines) = masks_near, turns_near
            x = layer(x, groups, gather, masks, scatter, cosines, sines)
        if self.last is not None:
            masks, (cosines, sines) = masks_all, turns_all
            if self.last.is_local:
                masks, (cosines, sines) = masks_near, turns_near
            x = self.last.first(x, groups, gather, masks, first, cosines, sines)
            return self.head(self.norm_final(x))
        return self.head(_means(self.norm_final(x), groups, gather, padding, first.size(0)))


def _means(x: Tensor, groups: list[tuple[int, int]], gather: Tensor, mask: Tensor,
           rows: int) -> Tensor:
    """The mean of each text's tokens x [N, D]: [B, D], with zeros below the texts."""
    padded = x.index_select(0, gather)                                      # [Q, D]
    is_token = (mask == 0).float()
    means: list[Tensor] = []
    begin = 0
    for texts, length in groups:
        for _ in range(texts):  # each alone: a sum's order could depend on its company
            counted = is_token.narrow(0, begin, length)[:, None]
            means.append((padded.narrow(0, begin, length) * counted).sum(0) / counted.sum())
            begin += length
    for _ in range(rows - len(means)):
        means.append(torch.zeros_like(means[0]))
    return torch.stack(means)
