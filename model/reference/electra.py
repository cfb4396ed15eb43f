"""ELECTRA's forward pass for one text in float64: BERT behind narrower embeddings, gelu's head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from model.families.shapes import BERT_LAYER
from model.reference.layers import Array, Tensors, dense, gelu, norm, post_norm_layer


def logits(card: Mapping[str, Any], tensors: Tensors, ids: Sequence[int], split: int) -> Array:
    """The logits of one text, float32 [C].

    `tensors` holds float32 arrays by canonical name. `ids` are T token ids; the first `split` are
    of segment 0, the others of segment 1. Source: Clark et al. 2020, and the module names of
    transformers' ElectraForSequenceClassification.
    """
    settings = card["settings"]
    ids = np.asarray(ids, dtype=np.int64)
    places = np.arange(len(ids))
    table = "electra.embeddings"
    x = tensors[f"{table}.word_embeddings.weight"][ids].astype(np.float64)       # [T, E]
    x = x + tensors[f"{table}.token_type_embeddings.weight"][(places >= split).astype(np.int64)]
    x = x + tensors[f"{table}.position_embeddings.weight"][places]
    x = norm(x, tensors, f"{table}.LayerNorm", settings["layer_norm_eps"])
    if settings["embedding_size"] != settings["hidden_size"]:
        x = dense(x, tensors, "electra.embeddings_project")                      # [T, D]

    for layer in range(settings["layers"]):
        x = post_norm_layer(x, tensors, BERT_LAYER.at(f"electra.encoder.layer.{layer}."), settings)

    inner = gelu(dense(x[0], tensors, "classifier.dense"))                       # [D]
    return dense(inner, tensors, "classifier.out_proj").astype(np.float32)       # [C]
