"""DeBERTa-v2 for graphs; what a network takes and gives is told in model.programs.padded."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from model.families.deberta_v2 import (LAYER, POSITION_KEY, POSITION_QUERY, relative_rows,
                                       score_scale)
from model.programs.padded import (Embeddings, Head, Weights, firsts,
                                   masked_attention, padding_mask)
from model.programs.parts import activate


class Layer(nn.Module):
    """A layer; the tables of distances, [H, D/H, 2P - 1], have a column for each distance, so that
    scores of texts with them are views of products."""

    def __init__(self, made: Weights, here: str, settings: dict[str, Any], table: Tensor,
                 is_last: bool) -> None:
        super().__init__()
        names, relative = LAYER.at(here), settings["relative"]
        self.heads: int = settings["heads"]
        self.scale: float = 1 / score_scale(settings)
        self.most: int = settings["max_position_embeddings"]
        self.firsts = is_last
        self.query_key_value = made.product(names.query, names.key, names.value)
        self.after = made.after(names, settings["activation"], is_last)
        self.has_place_key: bool = len(table) > 0 and "c2p" in settings["terms"]
        self.has_place_query: bool = len(table) > 0 and "p2c" in settings["terms"]
        self.place_key = self.place_query = made.placed(torch.empty(0))
        if self.has_place_key:
            name = names.key if relative["is_shared"] else here + POSITION_KEY
            self.place_key = self._by_distance(made, name, table.flip(0))
        if self.has_place_query:
            name = names.query if relative["is_shared"] else here + POSITION_QUERY
            self.place_query = self._by_distance(made, name, table)

    def _by_distance(self, made: Weights, name: str, table: Tensor) -> Tensor:
        found = made.transformed(table, name).unflatten(1, (self.heads, -1))
        return made.placed((found.permute(1, 2, 0) * self.scale).contiguous())

    def forward(self, x: Tensor, mask: Tensor, length: int) -> Tensor:
        y = self.query_key_value(x)                                         # [B·L, 3D]
        query, key, _ = y.view(x.size(0), 3, self.heads, x.size(1) // self.heads).permute(
            1, 2, 0, 3).unbind(0)                                           # [H, B·L, D/H]
        begin, wide = self.most - length, 2 * length - 1
        if self.has_place_key:
            mask = mask + self._skewed(torch.bmm(query, self.place_key.narrow(2, begin, wide)),
                                       length)
        if self.has_place_query:
            mask = mask + self._skewed(torch.bmm(key, self.place_query.narrow(2, begin, wide)),
                                       length).transpose(2, 3)
        mixed = masked_attention(y, mask, self.heads, length, self.firsts, self.scale)
        return self.after(mixed, firsts(x, length) if self.firsts else x)

    def _skewed(self, x: Tensor, length: int) -> Tensor:
        """x [H, B·L, 2L - 1] → [B, H, L, L], a view: row i begins at column L - 1 - i."""
        wide = x.size(2)
        return x.as_strided([x.size(1) // length, self.heads, length, length],
                            [length * wide, x.size(1) * wide, wide - 1, 1], length - 1)


class Convolution(nn.Module):
    """LayerNorm(x + activation(convolution of the embeddings along each text))."""

    def __init__(self, made: Weights, settings: dict[str, Any]) -> None:
        super().__init__()
        name = "deberta.encoder.conv."
        self.weight = made.placed(made.wide(name + "conv.weight"))
        self.bias = made.placed(made.wide(name + "conv.bias"))
        self.norm = made.norm(name + "LayerNorm")
        self.reach: int = settings["kernel"] // 2
        self.groups: int = settings["kernel_groups"]
        self.activation: str = settings["kernel_activation"]

    def forward(self, embeddings: Tensor, lengths: Tensor, length: int) -> Tensor:
        is_token = torch.arange(length, device=lengths.device) < lengths.unsqueeze(1)
        x = embeddings.view(-1, length, embeddings.size(1)) * is_token.unsqueeze(2)
        found = nn.functional.conv1d(x.transpose(1, 2), self.weight, self.bias,
                                     padding=self.reach, groups=self.groups)
        return activate(found.transpose(1, 2).reshape_as(embeddings), self.activation)


class DebertaV2(nn.Module):
    """The whole network."""

    def __init__(self, made: Weights, settings: dict[str, Any]) -> None:
        super().__init__()
        here, last = "deberta.embeddings.", settings["layers"] - 1
        names = [here + "token_type_embeddings"] if settings["type_vocab_size"] else []
        names += [here + "position_embeddings"] if settings["absolute_positions"] else []
        rows = made.rows(*names) if names else made.placed(torch.zeros(1, settings["hidden_size"]))
        self.embed = Embeddings(made, here, rows)
        self.positions: int = settings["max_position_embeddings"]
        self.has_places: bool = settings["absolute_positions"]
        self.has_types: bool = settings["type_vocab_size"] > 0
        table = self._table(made, settings)
        self.layers = nn.ModuleList(
            Layer(made, f"deberta.encoder.layer.{layer}.", settings, table, layer == last)
            for layer in range(last + 1))
        self.convolve = Convolution(made, settings) if settings["kernel"] else None
        self.head = Head(made, "pooler.dense", "classifier", settings["head_activation"])

    def _table(self, made: Weights, settings: dict[str, Any]) -> Tensor:
        """The table of distances with a row for each of −P + 1 … P − 1, float32 on the host."""
        relative = settings["relative"]
        if not relative["span"]:
            return torch.empty(0)
        table = made.wide("deberta.encoder.rel_embeddings.weight")
        if relative["is_normed"]:
            name = "deberta.encoder.LayerNorm"
            table = nn.functional.layer_norm(table, [table.size(1)], made.wide(name + ".weight"),
                                             made.wide(name + ".bias"),
                                             settings["layer_norm_eps"])
        distances = torch.arange(1 - self.positions, self.positions).numpy()
        return table[torch.from_numpy(relative_rows(distances, relative))]

    def forward(self, ids: Tensor, places: Tensor, lengths: Tensor, starts: Tensor,
                key_starts: Tensor, length: int) -> Tensor:
        if not self.has_places:
            places = places.div(self.positions, rounding_mode="floor") if self.has_types \
                else torch.zeros_like(places)
        elif not self.has_types:
            places = places % self.positions
        x = self.embed(ids, places)                                         # [B·L, D]
        embeddings = x
        mask = padding_mask(lengths, length, x.dtype)
        for number, layer in enumerate(self.layers):
            x = layer(x, mask, length)
            if number == 0 and self.convolve is not None:
                found = self.convolve(embeddings, lengths, length)
                x = self.convolve.norm(x + (firsts(found, length) if layer.firsts else found))
        return self.head(x)
