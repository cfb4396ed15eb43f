"""ModernBERT for graphs; what a network takes and gives is told in model.programs.padded."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from model.families.modernbert import GLOBAL, LOCAL, angles
from model.programs.padded import Weights, firsts, masked_attention, padding_mask
from model.programs.parts import activate


class Layer(nn.Module):
    """A layer that normalises before each of its halves."""

    def __init__(self, made: Weights, layer: int, settings: dict[str, Any], is_last: bool) -> None:
        super().__init__()
        here = f"model.layers.{layer}."
        self.norm_attention = made.norm(here + "attn_norm") if layer else None
        self.query_key_value = made.product(here + "attn.Wqkv")
        self.project = made.product(here + "attn.Wo")
        self.norm_feed_forward = made.norm(here + "mlp_norm")
        self.widen = made.product(here + "mlp.Wi")
        self.narrow = made.product(here + "mlp.Wo")
        self.heads: int = settings["heads"]
        self.activation: str = settings["activation"]
        self.is_local: bool = settings["attention"][layer] == LOCAL
        self.firsts: bool = is_last and settings["pooling"] == "cls"

    def forward(self, x: Tensor, mask: Tensor, cosines: Tensor, sines: Tensor,
                length: int) -> Tensor:
        y = x
        if self.norm_attention is not None:
            y = self.norm_attention(x)
        y = self.query_key_value(y)                                         # [B·L, 3D]
        half = x.size(1) // self.heads // 2
        turning, value = y.view(-1, length, 3, self.heads, 2 * half).split([2, 1], 2)
        first, second = turning.chunk(2, 4)                                 # [B, L, 2, H, D/2H]
        turned = torch.cat([first * cosines - second * sines,
                            second * cosines + first * sines], 4)
        y = torch.cat([turned, value], 2).view_as(y)
        mixed = masked_attention(y, mask, self.heads, length, self.firsts)
        x = (firsts(x, length) if self.firsts else x) + self.project(mixed)
        inner, gate = self.widen(self.norm_feed_forward(x)).chunk(2, 1)     # [B·L, I]
        return x + self.narrow(activate(inner, self.activation) * gate)


class ModernBert(nn.Module):
    """The whole network."""

    def __init__(self, made: Weights, settings: dict[str, Any]) -> None:
        super().__init__()
        self.words = made.rows("model.embeddings.tok_embeddings")
        self.norm = made.norm("model.embeddings.norm")
        self.reach: int = settings["reach"]
        self.cosines_all, self.sines_all = self._turns(made, settings, GLOBAL)
        self.cosines_near, self.sines_near = self._turns(made, settings, LOCAL)
        last = settings["layers"] - 1
        self.layers = nn.ModuleList(Layer(made, layer, settings, layer == last)
                                    for layer in range(last + 1))
        self.norm_final = made.norm("model.final_norm")
        self.dense = made.product("head.dense")
        self.norm_head = made.norm("head.norm")
        self.classify = made.product("classifier")
        self.activation: str = settings["head_activation"]
        self.pools_firsts: bool = settings["pooling"] == "cls"

    def _turns(self, made: Weights, settings: dict[str, Any], kind: str) -> tuple[Tensor, Tensor]:
        size = settings["hidden_size"] // settings["heads"]
        turns = angles(np.arange(settings["max_position_embeddings"]), size,
                       settings["thetas"][kind])[:, None, None]
        return (made.placed(torch.from_numpy(np.cos(turns))),
                made.placed(torch.from_numpy(np.sin(turns))))               # [P, 1, 1, D/2H]

    def forward(self, ids: Tensor, places: Tensor, lengths: Tensor, starts: Tensor,
                key_starts: Tensor, length: int) -> Tensor:
        x = self.norm(nn.functional.embedding(ids, self.words))             # [B·L, D]
        columns = torch.arange(length, device=ids.device)
        apart = (columns.unsqueeze(1) - columns).abs()                      # [L, L]
        mask_all = padding_mask(lengths, length, x.dtype).expand(-1, 1, length, length)
        mask_near = mask_all.masked_fill(apart > self.reach, -float("inf"))
        # A place behind a text would see nothing: it sees itself.
        mask_near = mask_near.masked_fill(apart == 0, 0.0)
        for layer in self.layers:
            mask, cosines, sines = mask_all, self.cosines_all, self.sines_all
            if layer.is_local:
                mask, cosines, sines = mask_near, self.cosines_near, self.sines_near
            x = layer(x, mask, cosines.narrow(0, 0, length), sines.narrow(0, 0, length), length)
        x = self.norm_final(x)
        if not self.pools_firsts:
            is_token = (columns < lengths.unsqueeze(1)).unsqueeze(2)        # [B, L, 1]
            x = (x.view(-1, length, x.size(1)).float() * is_token).sum(1) / lengths.unsqueeze(1)
            x = x.to(self.words.dtype)
        x = self.norm_head(activate(self.dense(x), self.activation))
        return self.classify(x).float()                                     # [B, C]
