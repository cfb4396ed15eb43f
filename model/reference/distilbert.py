"""DistilBERT's forward pass for one text in float64: BERT without token types and pooler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from model.families.distilbert import LAYER
from model.reference.layers import Array, Tensors, dense, norm, post_norm_layer


def logits(card: Mapping[str, Any], tensors: Tensors, ids: Sequence[int], split: int) -> Array:
    """The logits of one text, float32 [C].

    `tensors` holds float32 arrays by canonical name. `ids` are T token ids; where a pair is split
    makes no difference. Source: Sanh et al. 2019, and the module names of transformers'
    DistilBertForSequenceClassification.
    """
    settings = card["settings"]
    ids = np.asarray(ids, dtype=np.int64)
    table = "distilbert.embeddings"
    x = tensors[f"{table}.word_embeddings.weight"][ids].astype(np.float64)       # [T, D]
    x = x + tensors[f"{table}.position_embeddings.weight"][np.arange(len(ids))]
    x = norm(x, tensors, f"{table}.LayerNorm", settings["layer_norm_eps"])

    for layer in range(settings["layers"]):
        x = post_norm_layer(x, tensors, LAYER.at(f"distilbert.transformer.layer.{layer}."),
                            settings)

    inner = np.maximum(dense(x[0], tensors, "pre_classifier"), 0)                # [D]
    return dense(inner, tensors, "classifier").astype(np.float32)                # [C]
