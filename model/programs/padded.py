"""Parts of networks for graphs: padded texts of one fixed shape, nothing that asks the device.

Tensor letters: B texts, L tokens in each, D hidden, H heads, I intermediate, C classes. Networks
take ids and places (int32 [B·L]; a place is a row of a table of segments × positions), lengths
(int32 [B]), starts (0, 1, 2 …) and key_starts (0, L, 2L …; int32 [B + 1]) and L, and give logits,
float32 [B, C].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from model.families.shapes import LayerNames
from model.programs.attention import attention
from model.programs.image import Image
from model.programs.parts import activate


class Product(nn.Module):
    """x times a weight, plus a bias."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight, self.bias = weight, bias

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight, self.bias)


class Norm(nn.Module):
    """LayerNorm."""

    def __init__(self, weight: Tensor, bias: Tensor | None, eps: float) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = weight, bias, eps

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.layer_norm(x, [x.size(1)], self.weight, self.bias, self.eps)


class Weights:
    """Makes the parts of a network from an image, in one type, where `place` puts them."""

    def __init__(self, image: Image, settings: dict[str, Any], dtype: torch.dtype,
                 capability: tuple[int, int], place: Any) -> None:
        self._image, self._place = image, place
        self._eps: float = settings["layer_norm_eps"]
        self.dtype = dtype
        self.attention = attention(capability, dtype, settings["hidden_size"] // settings["heads"])

    def placed(self, tensor: Tensor) -> Tensor:
        """A tensor in the network's type where the network is."""
        return self._place(tensor.to(self.dtype))

    def rows(self, *names: str, first: int | None = None) -> Tensor:
        """All sums of rows of the tables `names`, the last one's running fastest; with `first`
        only so many."""
        found = self._image.widened(names[0] + ".weight")
        for name in names[1:]:
            found = (found[:, None] + self._image.widened(name + ".weight")[None]).flatten(0, 1)
        return self.placed(found[:first])

    def wide(self, name: str) -> Tensor:
        """The tensor in float32 on the host."""
        return self._image.widened(name)

    def norm(self, name: str) -> Norm:
        return Norm(self.placed(self.wide(name + ".weight")), self._bias([name]), self._eps)

    def product(self, *names: str) -> Product:
        """The product with the weights `names`, one below the other."""
        weight = torch.cat([self._image.stored(name + ".weight") for name in names])
        return Product(self.placed(weight), self._bias(names))

    def after(self, names: LayerNames, activation: str, for_firsts: bool) -> nn.Module:
        """What follows attention in a layer; `for_firsts`: for the first tokens only."""
        return AfterAttention(self, names, activation)

    def transformed(self, x: Tensor, name: str) -> Tensor:
        """x · Wᵀ + b of the product `name` in float32 on the host, for constants."""
        bias = self.wide(name + ".bias") if self._image.has(name + ".bias") else None
        return nn.functional.linear(x, self.wide(name + ".weight"), bias)

    def _bias(self, names: Sequence[str]) -> Tensor | None:
        if not self._image.has(names[0] + ".bias"):
            return None
        return self.placed(torch.cat([self._image.stored(name + ".bias") for name in names]))


class Embeddings(nn.Module):
    """LayerNorm(word + row `where` of a table of places and segments)."""

    def __init__(self, made: Weights, here: str, rows: Tensor) -> None:
        super().__init__()
        self.words = made.rows(here + "word_embeddings")
        self.rows = rows
        self.norm = made.norm(here + "LayerNorm")

    def forward(self, ids: Tensor, where: Tensor) -> Tensor:
        return self.norm(nn.functional.embedding(ids, self.words)
                         + nn.functional.embedding(where, self.rows))       # [B·L, D]


class AfterAttention(nn.Module):
    """What follows attention in a layer that normalises after each of its halves."""

    def __init__(self, made: Weights, names: LayerNames, activation: str) -> None:
        super().__init__()
        self.project = made.product(names.project)
        self.norm_attention = made.norm(names.norm_attention)
        self.widen = made.product(names.widen)
        self.narrow = made.product(names.narrow)
        self.norm_output = made.norm(names.norm_output)
        self.activation: str = activation

    def forward(self, mixed: Tensor, x: Tensor) -> Tensor:
        x = self.norm_attention(x + self.project(mixed))
        return self.norm_output(x + self.narrow(activate(self.widen(x), self.activation)))


class Layer(nn.Module):
    """A layer; with `firsts` for the first token of each text only, which is all that the head
    reads of the last one."""

    def __init__(self, made: Weights, names: LayerNames, settings: dict[str, Any],
                 firsts: bool) -> None:
        super().__init__()
        self.query_key_value = made.product(names.query, names.key, names.value)
        self.after = made.after(names, settings["activation"], firsts)
        self.attend = made.attention
        self.heads: int = settings["heads"]
        self.firsts = firsts

    def forward(self, x: Tensor, starts: Tensor, key_starts: Tensor, lengths: Tensor,
                length: int) -> Tensor:
        tokens, hidden = x.size(0), x.size(1)
        y = self.query_key_value(x).view(tokens, 3, self.heads, hidden // self.heads)
        query, key, value = y.unbind(1)                                     # [B·L, H, D/H]
        width = length
        if self.firsts:
            width, starts_used = 1, starts
            query, x = firsts(query, length), firsts(x, length)             # [B, H, D/H], [B, D]
        else:
            starts_used = key_starts
        mixed = self.attend(query, key, value, starts_used, key_starts, lengths, width, length)
        return self.after(mixed.reshape(x.size(0), hidden), x)


class MaskedLayer(nn.Module):
    """A layer whose scores get more than the padding's mask: `mask` [B, 1 or H, L, L]."""

    def __init__(self, made: Weights, names: LayerNames, settings: dict[str, Any],
                 firsts: bool) -> None:
        super().__init__()
        self.query_key_value = made.product(names.query, names.key, names.value)
        self.after = made.after(names, settings["activation"], firsts)
        self.heads: int = settings["heads"]
        self.firsts = firsts

    def forward(self, x: Tensor, mask: Tensor, length: int) -> Tensor:
        y = self.query_key_value(x)
        mixed = masked_attention(y, mask, self.heads, length, self.firsts)
        return self.after(mixed, firsts(x, length) if self.firsts else x)


class Head(nn.Module):
    """out(activation(dense(x))) of the first token of each text."""

    def __init__(self, made: Weights, dense: str, out: str, activation: str) -> None:
        super().__init__()
        self.dense = made.product(dense)
        self.out = made.product(out)
        self.activation: str = activation

    def forward(self, x: Tensor) -> Tensor:
        return self.out(activate(self.dense(x), self.activation)).float()   # [B, C]


def firsts(x: Tensor, length: int) -> Tensor:
    """The first token of each text: [B·L, …] → [B, …]."""
    return x.unflatten(0, [-1, length]).select(1, 0)


def padding_mask(lengths: Tensor, length: int, dtype: torch.dtype) -> Tensor:
    """0 for keys and -inf for padding, [B, 1, 1, L]."""
    is_padding = torch.arange(length, device=lengths.device) >= lengths.unsqueeze(1)
    return torch.zeros_like(is_padding, dtype=dtype).masked_fill(
        is_padding, -float("inf")).unsqueeze(1).unsqueeze(1)


def masked_attention(y: Tensor, mask: Tensor, heads: int, length: int, for_firsts: bool,
                     scale: float | None = None) -> Tensor:
    """Queries, keys and values y [B·L, 3D] and what is added to the scores [B, 1 or H, 1 or L, L]
    → [B·L, D], or [B, D] for the first tokens only."""
    hidden = y.size(1) // 3
    query, key, value = y.view(-1, length, 3, heads, hidden // heads).permute(
        2, 0, 3, 1, 4).unbind(0)                                            # [B, H, L, D/H]
    if for_firsts:
        query, mask = query.narrow(2, 0, 1), mask.narrow(2, 0, 1)
    found = nn.functional.scaled_dot_product_attention(query, key, value, mask, scale=scale)
    return found.transpose(1, 2).reshape(-1, hidden)
