"""RoBERTa's forward pass for one text in float64: BERT with positions that pass over padding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from model.families.shapes import BERT_LAYER
from model.reference.layers import Array, Tensors, dense, norm, post_norm_layer


def logits(card: Mapping[str, Any], tensors: Tensors, ids: Sequence[int], split: int) -> Array:
    """The logits of one text, float32 [C].

    `tensors` holds float32 arrays by canonical name. `ids` are T token ids, all of segment 0
    wherever a pair is split. Source: Liu et al. 2019, and the module names of transformers'
    RobertaForSequenceClassification.
    """
    settings = card["settings"]
    ids = np.asarray(ids, dtype=np.int64)
    table = "roberta.embeddings"
    x = tensors[f"{table}.word_embeddings.weight"][ids].astype(np.float64)       # [T, D]
    x = x + tensors[f"{table}.token_type_embeddings.weight"][0]
    x = x + tensors[f"{table}.position_embeddings.weight"][positions(ids, settings["pad_id"])]
    x = norm(x, tensors, f"{table}.LayerNorm", settings["layer_norm_eps"])

    for layer in range(settings["layers"]):
        x = post_norm_layer(x, tensors, BERT_LAYER.at(f"roberta.encoder.layer.{layer}."), settings)

    inner = np.tanh(dense(x[0], tensors, "classifier.dense"))                    # [D]
    return dense(inner, tensors, "classifier.out_proj").astype(np.float32)       # [C]


def positions(ids: Array, pad_id: int) -> Array:
    """Positions count from pad_id + 1; padding that a text holds has pad_id and does not count.

    Example: ids 0 5 1 9 with pad_id 1 have the positions 2 3 1 4.
    """
    counted = ids != pad_id
    return np.where(counted, np.cumsum(counted), 0) + pad_id
