"""The steps that the references are made of, for one text in float64: plain, slow, by the book."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from model.families.shapes import LayerNames

Array = np.ndarray
Tensors = Mapping[str, Array]
_erf = np.frompyfunc(math.erf, 1, 1)


def dense(x: Array, tensors: Tensors, name: str) -> Array:
    """x · Wᵀ + b; a product without a bias has no such tensor."""
    return x @ tensors[f"{name}.weight"].T.astype(np.float64) + tensors.get(f"{name}.bias", 0.0)


def norm(x: Array, tensors: Tensors, name: str, eps: float) -> Array:
    """LayerNorm over the last axis; one without a bias has no such tensor."""
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred ** 2).mean(axis=-1, keepdims=True)
    return centred / np.sqrt(variance + eps) * tensors[f"{name}.weight"] \
        + tensors.get(f"{name}.bias", 0.0)


def by_head(x: Array, heads: int) -> Array:
    """[T, D] → [H, T, D/H]."""
    return x.reshape(len(x), heads, -1).transpose(1, 0, 2)


def mix(scores: Array, value: Array) -> Array:
    """softmax(scores [H, T, T]) · value [H, T, D/H], heads side by side again: [T, D]."""
    return (softmax(scores) @ value).transpose(1, 0, 2).reshape(scores.shape[1], -1)


def scaled_scores(query: Array, key: Array) -> Array:
    """query · keyᵀ / √(D/H): [H, T, T]."""
    return query @ key.transpose(0, 2, 1) / math.sqrt(query.shape[2])


def post_norm_layer(x: Array, tensors: Tensors, names: LayerNames, settings: Mapping[str, Any],
                    bias: Array | float = 0.0) -> Array:
    """A whole layer of BERT's kind, x [T, D]; `bias` [H, T, T] is added to the scaled scores."""
    query, key, value = (by_head(dense(x, tensors, name), settings["heads"])
                         for name in (names.query, names.key, names.value))      # [H, T, D/H]
    return after_attention(mix(scaled_scores(query, key) + bias, value), x, tensors, names,
                           settings)


def after_attention(mixed: Array, x: Array, tensors: Tensors, names: LayerNames,
                    settings: Mapping[str, Any]) -> Array:
    """The rest of a layer of BERT's kind: what attention found is added, then the feed-forward."""
    eps = settings["layer_norm_eps"]
    x = norm(x + dense(mixed, tensors, names.project), tensors, names.norm_attention, eps)
    inner = ACTIVATIONS[settings["activation"]](dense(x, tensors, names.widen))  # [T, I]
    return norm(x + dense(inner, tensors, names.narrow), tensors, names.norm_output, eps)


def softmax(x: Array) -> Array:
    """Over the last axis."""
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def gelu(x: Array) -> Array:
    """The exact one, with erf."""
    return x * (1 + _erf(x / math.sqrt(2)).astype(np.float64)) / 2


def _gelu_tanh(x: Array) -> Array:
    return x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3))) / 2


def _sigmoid(x: Array) -> Array:
    return (1 + np.tanh(x / 2)) / 2  # = 1 / (1 + exp(-x)), without overflow


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "gelu": gelu, "gelu_tanh": _gelu_tanh, "relu": lambda x: np.maximum(x, 0),
    "quick_gelu": lambda x: x * _sigmoid(1.702 * x), "silu": lambda x: x * _sigmoid(x),
    "tanh": np.tanh}
