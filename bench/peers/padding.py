"""The padded arrays of a call, and the answers of calls in the order of their rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bench.peers.calls import Call


def padded(rows: Sequence[np.ndarray], call: Call, dtype: type) -> tuple[np.ndarray, np.ndarray]:
    """Ids and attention mask of a call, `dtype` [rows, width]; padding is id 0, mask 0."""
    shape = (len(call.rows), call.width)
    ids, mask = np.zeros(shape, dtype), np.zeros(shape, dtype)
    for place, row in enumerate(call.rows):
        ids[place, :len(rows[row])] = rows[row]
        mask[place, :len(rows[row])] = 1
    return ids, mask


def stacked(found: Sequence[np.ndarray], calls: Sequence[Call]) -> np.ndarray:
    """The calls' logits as one array, float32 [B, C], row b being text b's."""
    order = np.concatenate([call.rows for call in calls])
    logits = np.concatenate(found)
    back = np.empty_like(logits, dtype=np.float32)
    back[order] = logits
    return back
