"""The numbers out of config.json that most families share, read with one's own defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loader.config import real, whole, word
from loader.errors import CheckpointError

# hidden_act in config.json → the function's one name here; gelu is the exact one, with erf.
ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_fast": "gelu_tanh",
               "gelu_pytorch_tanh": "gelu_tanh", "quick_gelu": "quick_gelu", "relu": "relu",
               "silu": "silu", "swish": "silu"}
# Of a head, which may have what no feed-forward has.
HEAD_ACTIVATIONS = {**ACTIVATIONS, "tanh": "tanh"}
LAYER_LIMIT = 1000
SIZE_LIMIT = 1 << 20
VOCAB_LIMIT = 1 << 24
TYPE_LIMIT = 1024


def encoder_settings(config: Mapping[str, Any], *, hidden: int = 768, layers: int = 12,
                     heads: int = 12, intermediate: int = 3072, vocab: int = 30522,
                     positions: int = 512, activation: str = "gelu",
                     eps: float = 1e-12) -> dict[str, Any]:
    """hidden_size, layers, heads, intermediate, vocab, max_position_embeddings, layer_norm_eps and
    activation, by the keys that BERT gave them; the arguments stand in for missing keys.

    Raises CheckpointError.
    """
    return {"hidden_size": whole(config, "hidden_size", 1, SIZE_LIMIT, hidden),
            "layers": whole(config, "num_hidden_layers", 1, LAYER_LIMIT, layers),
            "heads": read_heads(config, "num_attention_heads", heads, "hidden_size", hidden),
            "intermediate": whole(config, "intermediate_size", 1, SIZE_LIMIT, intermediate),
            "vocab": whole(config, "vocab_size", 1, VOCAB_LIMIT, vocab),
            "max_position_embeddings":
                whole(config, "max_position_embeddings", 1, SIZE_LIMIT, positions),
            "layer_norm_eps": real(config, "layer_norm_eps", 0.0, 1.0, eps),
            "activation": ACTIVATIONS[word(config, "hidden_act", ACTIVATIONS, activation)]}


def read_heads(config: Mapping[str, Any], key: str, heads: int, size_key: str, size: int) -> int:
    """config[key], a number of heads that divides config[size_key]."""
    size = whole(config, size_key, 1, SIZE_LIMIT, size)
    heads = whole(config, key, 1, SIZE_LIMIT, heads)
    if size % heads:
        raise CheckpointError(f"config.json: {size_key} {size} is no multiple of {key} {heads}; "
                              "correct one of them.")
    return heads
