"""Attention that knows distances: DeBERTa's scores of contents with positions, text by text.

Tensor letters: B texts, N tokens, Q padded places, D hidden, H heads, L padded places of a text,
S rows of a side of the table of distances, P the largest L. One text at a time, because its
products then have the same shapes in any company; a text's scores lie in the cache meanwhile.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from model.families.deberta_v2 import (LAYER, POSITION_KEY, POSITION_QUERY, relative_rows,
                                       score_scale)
from model.programs.packing import KEY_STEP
from model.programs.weights import Weights


class DistanceAttention(nn.Module):
    """Softmax((query · key + query · place_key + key · place_query) / scale) · value.

    The two tables are constants of a layer, made once: float [H, 2S, D/H], divided by the scale.
    """

    def __init__(self, weights: Weights, here: str, settings: dict[str, Any],
                 table: Tensor) -> None:
        super().__init__()
        self.heads: int = settings["heads"]
        self.scale: float = 1 / score_scale(settings)
        names, relative = LAYER.at(here), settings["relative"]
        self.place_key = self.place_query = torch.empty(0)
        self.has_place_key: bool = relative["span"] > 0 and "c2p" in settings["terms"]
        self.has_place_query: bool = relative["span"] > 0 and "p2c" in settings["terms"]
        if self.has_place_key:
            name = names.key if relative["is_shared"] else here + POSITION_KEY
            self.place_key = self._table(weights, name, table)
        if self.has_place_query:
            name = names.query if relative["is_shared"] else here + POSITION_QUERY
            self.place_query = self._table(weights, name, table)

    def _table(self, weights: Weights, name: str, table: Tensor) -> Tensor:
        found = weights.transformed(table, name).unflatten(1, (self.heads, -1))
        return (found.permute(1, 0, 2) * self.scale).contiguous().to(weights.plan.dtype)

    def forward(self, y: Tensor, groups: list[tuple[int, int]], gather: Tensor, mask: Tensor,
                scatter: Tensor, rows: Tensor) -> Tensor:
        """Every token looks at its text: queries, keys and values y [N, 3D] → [N, D].

        `rows` [2P - 1] is the row of the tables for each distance query - key, ascending.
        """
        width = y.size(1) // 3
        padded = y.index_select(0, gather)                                  # [Q, 3D]
        mixed: list[Tensor] = []
        begin = 0
        for texts, length in groups:
            near = rows.narrow(0, rows.size(0) // 2 + 1 - length, 2 * length - 1)
            place_key, place_query = self.place_key, self.place_query       # [H, D/H, 2L - 1]
            if self.has_place_key:
                place_key = place_key.index_select(1, near.flip(0)).transpose(1, 2)
            if self.has_place_query:
                place_query = place_query.index_select(1, near).transpose(1, 2)
            for _ in range(texts):
                query, key, value = padded.narrow(0, begin, length).view(
                    length, 3, self.heads, width // self.heads).permute(1, 2, 0, 3).unbind(0)
                bias = mask.narrow(0, begin, length).expand(self.heads, length, length)
                if self.has_place_key:
                    bias = bias + _skewed(torch.bmm(query, place_key))
                if self.has_place_query:
                    bias = bias + _skewed(torch.bmm(key, place_query)).transpose(1, 2)
                found = nn.functional.scaled_dot_product_attention(         # [1, H, L, D/H]
                    query[None], key[None], value[None], bias[None], scale=self.scale)
                mixed.append(found[0].transpose(0, 1).reshape(length, width))
                begin += length
        return torch.cat(mixed).index_select(0, scatter)

    @torch.jit.export
    def first(self, queries: Tensor, y: Tensor, groups: list[tuple[int, int]], gather: Tensor,
              mask: Tensor, rows: Tensor) -> Tensor:
        """The first token of each text looks at its text: queries [B, D] and keys and values y
        [N, 2D] → [B, D], where rows of fillers hold anything finite."""
        width = queries.size(1)
        padded = y.index_select(0, gather)                                  # [Q, 2D]
        mixed: list[Tensor] = []
        begin = 0
        for texts, length in groups:
            near = rows.narrow(0, rows.size(0) // 2 + 1 - length, length).flip(0)  # of -0, -1, …
            place_key, place_query = self.place_key, self.place_query
            if self.has_place_key:
                place_key = place_key.index_select(1, near).transpose(1, 2)  # [H, D/H, L]
            if self.has_place_query:
                place_query = place_query.index_select(1, near)             # [H, L, D/H]
            for _ in range(texts):
                key, value = padded.narrow(0, begin, length).view(
                    length, 2, self.heads, width // self.heads).permute(1, 2, 0, 3).unbind(0)
                query = queries[len(mixed)].view(self.heads, 1, width // self.heads)
                bias = mask.narrow(0, begin, length).expand(self.heads, 1, length)
                if self.has_place_key:
                    bias = bias + torch.bmm(query, place_key)
                if self.has_place_query:
                    bias = bias + (key * place_query).sum(2)[:, None]
                found = nn.functional.scaled_dot_product_attention(         # [1, H, 1, D/H]
                    query[None], key[None], value[None], bias[None], scale=self.scale)
                mixed.append(found.view(1, width))
                begin += length
        if len(mixed) < queries.size(0):
            mixed.append(queries.narrow(0, len(mixed), queries.size(0) - len(mixed)))
        return torch.cat(mixed)


def _skewed(x: Tensor) -> Tensor:
    """x [H, L, 2L - 1] → [H, L, L], a view: row i begins at column L - 1 - i.

    With columns of descending distance the one of (i, j) is i - j, with ascending ones j - i.
    """
    heads, length, wide = x.size(0), x.size(1), x.size(2)
    return x.as_strided([heads, length, length], [length * wide, wide - 1, 1], length - 1)


def distance_table(weights: Weights, settings: dict[str, Any]) -> Tensor:
    """The table that all layers share, float32 [2S, D], normalised where the model does."""
    if not settings["relative"]["span"]:
        return torch.empty(0, settings["hidden_size"])
    table = weights.image.widened("deberta.encoder.rel_embeddings.weight")
    if settings["relative"]["is_normed"]:
        table = weights.norm("deberta.encoder.LayerNorm")(torch.zeros_like(table), table.clone())
    return table


def distance_rows(settings: dict[str, Any]) -> Tensor:
    """The table's row for each distance that padded texts hold, ascending: int64 [2P - 1]."""
    last = settings["max_position_embeddings"] + KEY_STEP
    if not settings["relative"]["span"]:
        return torch.zeros(2 * last + 1, dtype=torch.int64)
    return torch.from_numpy(relative_rows(np.arange(-last, last + 1), settings["relative"]))
