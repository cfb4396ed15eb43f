"""Local attention: each token looks at the tokens around it, a block of queries at a time.

Tensor letters: B texts, N tokens, Q padded places, D hidden, H heads, L padded places of a text.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from model.programs.packing import KEY_STEP

BLOCK = 128  # queries; with the usual reach of 64, half of the keys that a block reads are seen


class LocalAttention(nn.Module):
    """Attention to keys at most `reach` tokens away.

    Its cost grows with L × reach, not with L², and so does its memory; the shape of a block depends
    on its own text's length only. The arguments of its methods are packing.Packed's.
    """

    def __init__(self, heads: int, reach: int) -> None:
        super().__init__()
        self.heads: int = heads
        self.reach: int = reach
        self.block: int = BLOCK
        self.step: int = KEY_STEP

    @torch.jit.export
    def masks(self, places: Tensor, mask: Tensor, groups: list[tuple[int, int]],
              gather: Tensor) -> list[Tensor]:
        """For each block of each group what is added to its scores: [texts, 1, queries, keys]."""
        padded = places.index_select(0, gather)                             # [Q]
        masks: list[Tensor] = []
        start = 0
        for texts, length in groups:
            there = padded.narrow(0, start, texts * length).view(texts, length)
            hidden = mask.narrow(0, start, texts * length).view(texts, 1, 1, length)
            for begin in range(0, length, self.block):
                low, high = self.keys(begin, length)
                queries = there.narrow(1, begin, min(self.block, length - begin))
                keys = there.narrow(1, low, high - low)
                is_far = (queries[:, :, None] - keys[:, None, :]).abs() > self.reach
                masks.append(hidden.narrow(3, low, high - low).masked_fill(
                    is_far[:, None], -float("inf")))
            start += texts * length
        return masks

    def forward(self, y: Tensor, groups: list[tuple[int, int]], gather: Tensor,
                masks: list[Tensor], scatter: Tensor) -> Tensor:
        """Every token looks around: queries, keys and values y [N, 3D] → [N, D]."""
        width = y.size(1) // 3
        padded = y.index_select(0, gather)                                  # [Q, 3D]
        mixed: list[Tensor] = []
        start, number = 0, 0
        for texts, length in groups:
            query, key, value = padded.narrow(0, start, texts * length).view(
                texts, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
            found: list[Tensor] = []
            for begin in range(0, length, self.block):
                low, high = self.keys(begin, length)
                found.append(nn.functional.scaled_dot_product_attention(
                    query.narrow(2, begin, min(self.block, length - begin)),
                    key.narrow(2, low, high - low), value.narrow(2, low, high - low),
                    masks[number]))
                number += 1
            mixed.append(torch.cat(found, 2).transpose(1, 2).reshape(texts * length, width))
            start += texts * length
        return torch.cat(mixed).index_select(0, scatter)

    @torch.jit.export
    def first(self, queries: Tensor, y: Tensor, groups: list[tuple[int, int]], gather: Tensor,
              masks: list[Tensor]) -> Tensor:
        """The first token of each text looks around: queries [B, D] and keys and values y [N, 2D]
        → [B, D], where rows of fillers hold anything finite."""
        width = queries.size(1)
        padded = y.index_select(0, gather)                                  # [Q, 2D]
        mixed: list[Tensor] = []
        start, text, number = 0, 0, 0
        for texts, length in groups:
            key, value = padded.narrow(0, start, texts * length).view(
                texts, length, 2, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
            query = queries.narrow(0, text, texts).view(texts, 1, self.heads, width // self.heads)
            _, high = self.keys(0, length)
            found = nn.functional.scaled_dot_product_attention(             # [b, H, 1, D/H]
                query.transpose(1, 2), key.narrow(2, 0, high), value.narrow(2, 0, high),
                masks[number].narrow(2, 0, 1))
            mixed.append(found.transpose(1, 2).reshape(texts, width))
            start += texts * length
            text += texts
            number += (length + self.block - 1) // self.block
        if text < queries.size(0):
            mixed.append(queries.narrow(0, text, queries.size(0) - text))
        return torch.cat(mixed)

    def keys(self, begin: int, length: int) -> tuple[int, int]:
        """The keys that the block of queries from `begin` on may see, by whole steps."""
        low = max(begin - self.reach, 0) // self.step * self.step
        high = min(begin + self.block, length) + self.reach
        return low, min((high + self.step - 1) // self.step * self.step, length)
