"""A reference over an image: each row alone, because a slow forward pass takes one text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from loader.safetensors import float32_array, open_image
from model.program import Row


def each_row(logits: Callable[..., np.ndarray], card: dict[str, Any], weights: Any,
             rows: Sequence[Row]) -> np.ndarray:
    """logits(card, tensors, ids, split) of every row, float32 [B, C]; `tensors` are float32 arrays
    by canonical name, out of the image `weights`; for 8-bit ones, what they stand for."""
    tensors = {name: float32_array(weights, tensor)
               for name, tensor in open_image(weights).items()}
    for name in [name for name in tensors if name.endswith(".scales")]:
        product = name.removesuffix("scales")
        tensors[product + "weight"] = tensors[product + "weight"] * tensors[name][:, None] \
            / tensors.get(product + "divisors", np.float32(1))
    return np.stack([logits(card, tensors, row.ids, row.split) for row in rows])
