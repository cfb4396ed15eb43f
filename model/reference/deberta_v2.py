"""DeBERTa-v2's forward pass for one text in float64: attention that knows distances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from model.families.deberta_v2 import (LAYER, POSITION_KEY, POSITION_QUERY, relative_rows,
                                       score_scale)
from model.reference.layers import (ACTIVATIONS, Array, Tensors, after_attention, by_head, dense,
                                    mix, norm)


def logits(card: Mapping[str, Any], tensors: Tensors, ids: Sequence[int], split: int) -> Array:
    """The logits of one text, float32 [C].

    `tensors` holds float32 arrays by canonical name. `ids` are T token ids; the first `split` are
    of segment 0, the others of segment 1. Source: He et al. 2021 and 2023, and the module names of
    transformers' DebertaV2ForSequenceClassification.
    """
    settings = card["settings"]
    eps, relative = settings["layer_norm_eps"], settings["relative"]
    ids = np.asarray(ids, dtype=np.int64)
    places = np.arange(len(ids))
    table = "deberta.embeddings"
    x = tensors[f"{table}.word_embeddings.weight"][ids].astype(np.float64)       # [T, D]
    if settings["absolute_positions"]:
        x = x + tensors[f"{table}.position_embeddings.weight"][places]
    if settings["type_vocab_size"]:
        types = (places >= split).astype(np.int64)
        x = x + tensors[f"{table}.token_type_embeddings.weight"][types]
    x = embeddings = norm(x, tensors, f"{table}.LayerNorm", eps)

    rows = distances = None
    if relative["span"]:
        distances = tensors["deberta.encoder.rel_embeddings.weight"].astype(np.float64)  # [2S, D]
        if relative["is_normed"]:
            distances = norm(distances, tensors, "deberta.encoder.LayerNorm", eps)
        rows = relative_rows(places[:, None] - places[None], relative)           # [T, T]
    for layer in range(settings["layers"]):
        x = _layer(x, tensors, f"deberta.encoder.layer.{layer}.", settings, distances, rows)
        if layer == 0 and settings["kernel"]:
            found = ACTIVATIONS[settings["kernel_activation"]](
                _convolution(embeddings, tensors, "deberta.encoder.conv.conv", settings))
            x = norm(x + found, tensors, "deberta.encoder.conv.LayerNorm", eps)

    pooled = ACTIVATIONS[settings["head_activation"]](dense(x[0], tensors, "pooler.dense"))  # [D]
    return dense(pooled, tensors, "classifier").astype(np.float32)               # [C]


def _layer(x: Array, tensors: Tensors, here: str, settings: Mapping[str, Any],
           distances: Array | None, rows: Array | None) -> Array:
    """One layer, x [T, D]; distances [2S, D] is the relative table, rows [T, T] looks into it."""
    names, heads, shared = LAYER.at(here), settings["heads"], settings["relative"]["is_shared"]
    query, key, value = (by_head(dense(x, tensors, name), heads)
                         for name in (names.query, names.key, names.value))      # [H, T, D/H]
    scores = query @ key.transpose(0, 2, 1)                                      # [H, T, T]
    if distances is not None and "c2p" in settings["terms"]:
        name = names.key if shared else here + POSITION_KEY
        place_key = by_head(dense(distances, tensors, name), heads)              # [H, 2S, D/H]
        scores = scores + np.einsum("hqd,hqkd->hqk", query, place_key[:, rows])
    if distances is not None and "p2c" in settings["terms"]:
        name = names.query if shared else here + POSITION_QUERY
        place_query = by_head(dense(distances, tensors, name), heads)            # [H, 2S, D/H]
        scores = scores + np.einsum("hkd,hqkd->hqk", key, place_query[:, rows])
    mixed = mix(scores / score_scale(settings), value)                           # [T, D]
    return after_attention(mixed, x, tensors, names, settings)


def _convolution(x: Array, tensors: Tensors, name: str, settings: Mapping[str, Any]) -> Array:
    """A convolution along the text x [T, D], which has zeros before and behind it."""
    width, groups = settings["kernel"], settings["kernel_groups"]
    padded = np.pad(x, ((width // 2, width // 2), (0, 0)))
    weight = tensors[f"{name}.weight"].astype(np.float64)                        # [D, D/G, width]
    weight = weight.reshape(groups, -1, *weight.shape[1:])                       # [G, D/G, D/G, w]
    found = sum(np.einsum("tgi,goi->tgo",
                          padded[place:place + len(x)].reshape(len(x), groups, -1),
                          weight[:, :, :, place]) for place in range(width))     # [T, G, D/G]
    return found.reshape(x.shape) + tensors[f"{name}.bias"]
