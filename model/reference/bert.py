"""BERT's forward pass for one text, step by step in float64: what the program must compute."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Array = np.ndarray
_erf = np.frompyfunc(math.erf, 1, 1)


def logits(card: Mapping[str, Any], tensors: Mapping[str, Array], ids: Sequence[int],
           split: int) -> Array:
    """The logits of one text, float32 [C].

    `tensors` holds float32 arrays by canonical name. `ids` are T token ids; the first `split` are
    of segment 0, the others of segment 1. Source: Devlin et al. 2019, and the module names of
    transformers' BertForSequenceClassification.
    """
    settings = card["settings"]
    eps, heads = settings["layer_norm_eps"], settings["heads"]
    activate = ACTIVATIONS[settings["activation"]]

    def dense(x: Array, name: str) -> Array:
        return x @ tensors[f"{name}.weight"].T.astype(np.float64) + tensors[f"{name}.bias"]

    def norm(x: Array, name: str) -> Array:
        centred = x - x.mean(axis=-1, keepdims=True)
        variance = (centred ** 2).mean(axis=-1, keepdims=True)
        return centred / np.sqrt(variance + eps) * tensors[f"{name}.weight"] \
            + tensors[f"{name}.bias"]

    ids = np.asarray(ids, dtype=np.int64)
    places = np.arange(len(ids))
    table = "bert.embeddings"
    x = tensors[f"{table}.word_embeddings.weight"][ids].astype(np.float64)       # [T, D]
    x = x + tensors[f"{table}.token_type_embeddings.weight"][(places >= split).astype(np.int64)]
    x = x + tensors[f"{table}.position_embeddings.weight"][places]
    x = norm(x, f"{table}.LayerNorm")

    for layer in range(settings["layers"]):
        here = f"bert.encoder.layer.{layer}"
        query, key, value = (_by_head(dense(x, f"{here}.attention.self.{name}"), heads)
                             for name in ("query", "key", "value"))              # [H, T, D/H]
        weights = _softmax(query @ key.transpose(0, 2, 1) / math.sqrt(query.shape[2]))
        mixed = (weights @ value).transpose(1, 0, 2).reshape(x.shape)            # [T, D]
        x = norm(x + dense(mixed, f"{here}.attention.output.dense"),
                 f"{here}.attention.output.LayerNorm")
        inner = activate(dense(x, f"{here}.intermediate.dense"))                 # [T, I]
        x = norm(x + dense(inner, f"{here}.output.dense"), f"{here}.output.LayerNorm")

    pooled = np.tanh(dense(x[0], "bert.pooler.dense"))                           # [D]
    return dense(pooled, "classifier").astype(np.float32)                        # [C]


def _by_head(x: Array, heads: int) -> Array:
    """[T, D] → [H, T, D/H]."""
    return x.reshape(len(x), heads, -1).transpose(1, 0, 2)


def _softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def _sigmoid(x: Array) -> Array:
    return (1 + np.tanh(x / 2)) / 2  # = 1 / (1 + exp(-x)), without overflow


def _gelu(x: Array) -> Array:
    return x * (1 + _erf(x / math.sqrt(2)).astype(np.float64)) / 2


def _gelu_tanh(x: Array) -> Array:
    return x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3))) / 2


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "gelu": _gelu, "gelu_tanh": _gelu_tanh, "relu": lambda x: np.maximum(x, 0),
    "quick_gelu": lambda x: x * _sigmoid(1.702 * x), "silu": lambda x: x * _sigmoid(x)}
