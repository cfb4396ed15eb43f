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
    by canonical name, out of the image `weights`."""
    tensors = {name: float32_array(weights, tensor)
               for name, tensor in open_image(weights).items()}
    return np.stack([logits(card, tensors, row.ids, row.split) for row in rows])
