"""ModernBERT's forward pass for one text in float64: rotated positions, mostly local attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from model.families.modernbert import LOCAL, angles
from model.reference.layers import (ACTIVATIONS, Array, Tensors, by_head, dense, mix, norm,
                                    scaled_scores)


def logits(card: Mapping[str, Any], tensors: Tensors, ids: Sequence[int], split: int) -> Array:
    """The logits of one text, float32 [C].

    `tensors` holds float32 arrays by canonical name. `ids` are T token ids; where a pair is split
    makes no difference. Source: Warner et al. 2024, and the module names of transformers'
    ModernBertForSequenceClassification.
    """
    settings = card["settings"]
    eps, heads = settings["layer_norm_eps"], settings["heads"]
    activate = ACTIVATIONS[settings["activation"]]
    ids = np.asarray(ids, dtype=np.int64)
    x = tensors["model.embeddings.tok_embeddings.weight"][ids].astype(np.float64)  # [T, D]
    x = norm(x, tensors, "model.embeddings.norm", eps)

    places = np.arange(len(ids))
    unseen = np.where(np.abs(places[:, None] - places[None]) <= settings["reach"], 0.0, -np.inf)
    for layer, kind in enumerate(settings["attention"]):
        here = f"model.layers.{layer}."
        y = norm(x, tensors, here + "attn_norm", eps) if layer else x
        query, key, value = (by_head(part, heads) for part in
                             np.split(dense(y, tensors, here + "attn.Wqkv"), 3, axis=1))
        theta = settings["thetas"][kind]
        scores = scaled_scores(_rotated(query, theta), _rotated(key, theta))     # [H, T, T]
        mixed = mix(scores + unseen if kind == LOCAL else scores, value)         # [T, D]
        x = x + dense(mixed, tensors, here + "attn.Wo")
        y = norm(x, tensors, here + "mlp_norm", eps)
        inner, gate = np.split(dense(y, tensors, here + "mlp.Wi"), 2, axis=1)    # [T, I]
        x = x + dense(activate(inner) * gate, tensors, here + "mlp.Wo")
    x = norm(x, tensors, "model.final_norm", eps)

    pooled = x[0] if settings["pooling"] == "cls" else x.mean(axis=0)            # [D]
    inner = ACTIVATIONS[settings["head_activation"]](dense(pooled, tensors, "head.dense"))
    return dense(norm(inner, tensors, "head.norm", eps), tensors,
                 "classifier").astype(np.float32)                                # [C]


def _rotated(x: Array, theta: float) -> Array:
    """x [H, T, size]: numbers i and i + size/2 are turned as a pair, by more at later places."""
    half = x.shape[2] // 2
    turns = angles(np.arange(x.shape[1]), 2 * half, theta).astype(np.float64)    # [T, size/2]
    first, second = x[..., :half], x[..., half:]
    return np.concatenate([first * np.cos(turns) - second * np.sin(turns),
                           second * np.cos(turns) + first * np.sin(turns)], axis=2)
