"""MPNet's forward pass for one text in float64: BERT with one bias of relative positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from model.families.mpnet import LAYER, buckets
from model.reference.layers import Array, Tensors, dense, norm, post_norm_layer
from model.reference.roberta import positions


def logits(card: Mapping[str, Any], tensors: Tensors, ids: Sequence[int], split: int) -> Array:
    """The logits of one text, float32 [C].

    `tensors` holds float32 arrays by canonical name. `ids` are T token ids; where a pair is split
    makes no difference. Source: Song et al. 2020, and the module names of transformers'
    MPNetForSequenceClassification.
    """
    settings = card["settings"]
    ids = np.asarray(ids, dtype=np.int64)
    table = "mpnet.embeddings"
    x = tensors[f"{table}.word_embeddings.weight"][ids].astype(np.float64)       # [T, D]
    x = x + tensors[f"{table}.position_embeddings.weight"][positions(ids, settings["pad_id"])]
    x = norm(x, tensors, f"{table}.LayerNorm", settings["layer_norm_eps"])

    places = np.arange(len(ids))
    biases = tensors["mpnet.encoder.relative_attention_bias.weight"]             # [32, H]
    bias = biases[buckets(places[None] - places[:, None])].transpose(2, 0, 1)    # [H, T, T]
    for layer in range(settings["layers"]):
        x = post_norm_layer(x, tensors, LAYER.at(f"mpnet.encoder.layer.{layer}."), settings, bias)

    inner = np.tanh(dense(x[0], tensors, "classifier.dense"))                    # [D]
    return dense(inner, tensors, "classifier.out_proj").astype(np.float32)       # [C]
