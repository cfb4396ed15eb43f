"""Parts that networks of several families are made of: activations, norms, attention.

Tensor letters: B texts, N tokens, Q places padded for attention (model.programs.packing), D hidden,
H heads.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

# What the output of an activation does not fall below (0.0: it has both signs, or is not bounded).
LEAST = {"gelu": -0.17, "gelu_tanh": -0.1701, "quick_gelu": -0.1637, "silu": -0.2785, "relu": -1e-6}


def activate(x: Tensor, name: str) -> Tensor:
    """An activation by its name here, in place where torch can."""
    if name == "gelu":
        return torch.ops.aten.gelu_(x)
    if name == "gelu_tanh":
        return torch.ops.aten.gelu_(x, approximate="tanh")
    if name == "relu":
        return torch.relu_(x)
    if name == "tanh":
        return torch.tanh_(x)
    if name == "silu":
        return torch.ops.aten.silu_(x)
    return x * torch.sigmoid(x * 1.702)  # quick_gelu


class Norm(nn.Module):
    """LayerNorm of x + y, where y may be overwritten; the weights stay float32 in every precision.
    """

    def __init__(self, weight: Tensor, bias: Tensor, eps: float) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = weight, bias, eps

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.layer_norm(y.add_(x), [x.size(1)], self.weight, self.bias, self.eps)


class PlainNorm(Norm):
    """LayerNorm of x alone."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.layer_norm(x, [x.size(1)], self.weight, self.bias, self.eps)


def key_masks(mask: Tensor, groups: list[tuple[int, int]]) -> list[Tensor]:
    """Packed's mask [Q] as one mask for each group, [texts, 1, 1, length], that hides padding."""
    masks: list[Tensor] = []
    begin = 0
    for texts, length in groups:
        masks.append(mask.narrow(0, begin, texts * length).view(texts, 1, 1, length))
        begin += texts * length
    return masks


def fills_its_places(y: Tensor, groups: list[tuple[int, int]]) -> bool:
    """Whether tokens already lie as attention wants them: one text, filled up with tokens that
    nobody reads (and the mask hides) to just as many as it has places."""
    return len(groups) == 1 and groups[0][0] == 1 and groups[0][1] == y.size(0)


def attend(y: Tensor, heads: int, groups: list[tuple[int, int]], gather: Tensor,
           masks: list[Tensor], scatter: Tensor) -> Tensor:
    """Every token looks at its text: queries, keys and values y [N, 3D] → [N, D].

    `groups` is (texts, places of each), `masks` what is added to the scores of each; the other
    arguments are packing.Packed's.
    """
    width = y.size(1) // 3
    is_alone = fills_its_places(y, groups)
    padded = y if is_alone else y.index_select(0, gather)                   # [Q, 3D]
    mixed: list[Tensor] = []
    begin = 0
    for (texts, length), mask in zip(groups, masks):
        places = texts * length
        query, key, value = padded.narrow(0, begin, places).view(
            texts, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4).unbind(0)
        found = nn.functional.scaled_dot_product_attention(                 # [b, H, length, D/H]
            query, key, value, mask)
        mixed.append(found.transpose(1, 2).reshape(places, width))
        begin += places
    if is_alone:
        return mixed[0]
    return (mixed[0] if len(mixed) == 1 else torch.cat(mixed)).index_select(0, scatter)


def attend_first(queries: Tensor, y: Tensor, heads: int, groups: list[tuple[int, int]],
                 gather: Tensor, masks: list[Tensor]) -> Tensor:
    """The first token of each text looks at its text: queries [B, D] and keys and values y [N, 2D]
    → [B, D], where rows of fillers hold anything finite."""
    width = queries.size(1)
    padded = y if fills_its_places(y, groups) else y.index_select(0, gather)    # [Q, 2D]
    mixed: list[Tensor] = []
    begin, text = 0, 0
    for (texts, length), mask in zip(groups, masks):
        places = texts * length
        key, value = padded.narrow(0, begin, places).view(
            texts, length, 2, heads, width // heads).permute(2, 0, 3, 1, 4).unbind(0)
        query = queries.narrow(0, text, texts).view(texts, 1, heads, width // heads)
        found = nn.functional.scaled_dot_product_attention(                 # [b, H, 1, D/H]
            query.transpose(1, 2), key, value, mask.narrow(2, 0, 1))
        mixed.append(found.transpose(1, 2).reshape(texts, width))
        begin += places
        text += texts
    if text < queries.size(0):
        mixed.append(queries.narrow(0, text, queries.size(0) - text))
    return torch.cat(mixed)
