"""Attention over padded texts whose true lengths are known, one module for each kind of device.

Each takes query [B * q, H, d], key and value [B * L, H, d] (slices of a wider product are fine),
cumulative starts (int32 [B + 1]) of both, the true lengths (int32 [B], at least 1) and the widths
q and L; each gives [B * q, H, d]. Keys past a text's length count for nothing; what comes out for
queries past it means nothing, but is finite.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Flash(nn.Module):
    """FlashAttention's variable-length operator, called as it is: what
    scaled_dot_product_attention would choose differs from version to version, and takes no mask."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, starts: Tensor, key_starts: Tensor,
                lengths: Tensor, width: int, key_width: int) -> Tensor:
        return torch.ops.aten._flash_attention_forward(
            query, key, value, starts, key_starts, width, key_width, 0.0, False, False,
            seqused_k=lengths)[0]


class Efficient(nn.Module):
    """The memory-efficient operator, for devices before sm_80."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, starts: Tensor, key_starts: Tensor,
                lengths: Tensor, width: int, key_width: int) -> Tensor:
        return torch.ops.aten._efficient_attention_forward(
            query.unsqueeze(0), key.unsqueeze(0), value.unsqueeze(0), None, starts, key_starts,
            width, key_width, 0.0, 0, False, seqlen_k=lengths)[0].squeeze(0)


class Masked(nn.Module):
    """Any device and any width of a head, by a mask over the padding."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, starts: Tensor, key_starts: Tensor,
                lengths: Tensor, width: int, key_width: int) -> Tensor:
        texts, heads, size = lengths.size(0), query.size(1), query.size(2)
        places = torch.arange(key_width, device=lengths.device)
        mask = (places[None] < lengths[:, None]).view(texts, 1, 1, key_width)
        found = nn.functional.scaled_dot_product_attention(
            query.view(texts, width, heads, size).transpose(1, 2),
            key.view(texts, key_width, heads, size).transpose(1, 2),
            value.view(texts, key_width, heads, size).transpose(1, 2), mask)
        return found.transpose(1, 2).reshape(texts * width, heads, size)


def attention(capability: tuple[int, int], dtype: torch.dtype, head_size: int) -> nn.Module:
    """The fastest of them that a device of this capability has for such heads."""
    is_short = dtype in (torch.float16, torch.bfloat16)
    is_even = head_size % 8 == 0
    if capability >= (8, 0) and is_short and is_even and head_size <= 256:
        return Flash()
    if (5, 0) <= capability and is_even and (is_short or dtype == torch.float32):
        return Efficient()
    return Masked()
