"""BERT: what a checkpoint of BertForSequenceClassification must hold, and where its code is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from loader.config import real, whole, word
from loader.errors import CheckpointError
from model.program import Row

if TYPE_CHECKING:
    from model.programs.image import Image
    from model.programs.plan import Plan
    from model.programs.running import PackedProgram

# hidden_act in config.json → the function's one name here; gelu is the exact one, with erf.
ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_fast": "gelu_tanh",
               "gelu_pytorch_tanh": "gelu_tanh", "quick_gelu": "quick_gelu", "relu": "relu",
               "silu": "silu", "swish": "silu"}
LAYER_LIMIT = 1000
SIZE_LIMIT = 1 << 20


class BertFamily:
    """The family's entry in the table."""

    name = "bert"
    model_types = ("bert",)
    architectures = ("BertForSequenceClassification",)
    prefix = "bert."
    tokenizer = "wordpiece"
    needs_weights = True

    def settings(self, config: dict[str, Any]) -> dict[str, Any]:
        """hidden_size, layers, heads, intermediate, vocab, max_position_embeddings,
        type_vocab_size, layer_norm_eps and activation; missing keys as the reference fills them.

        Raises CheckpointError.
        """
        hidden = whole(config, "hidden_size", 1, SIZE_LIMIT, 768)
        heads = whole(config, "num_attention_heads", 1, SIZE_LIMIT, 12)
        if hidden % heads:
            raise CheckpointError(f"config.json: hidden_size {hidden} is no multiple of "
                                  f"num_attention_heads {heads}; correct one of them.")
        return {"hidden_size": hidden,
                "layers": whole(config, "num_hidden_layers", 1, LAYER_LIMIT, 12),
                "heads": heads,
                "intermediate": whole(config, "intermediate_size", 1, SIZE_LIMIT, 3072),
                "vocab": whole(config, "vocab_size", 1, 1 << 24, 30522),
                "max_position_embeddings":
                    whole(config, "max_position_embeddings", 1, SIZE_LIMIT, 512),
                "type_vocab_size": whole(config, "type_vocab_size", 1, 1024, 2),
                "layer_norm_eps": real(config, "layer_norm_eps", 0.0, 1.0, 1e-12),
                "activation": ACTIVATIONS[word(config, "hidden_act", ACTIVATIONS, "gelu")]}

    def tensors(self, settings: dict[str, Any], labels: int) -> dict[str, tuple[int, ...]]:
        hidden, inner = settings["hidden_size"], settings["intermediate"]
        shapes: dict[str, tuple[int, ...]] = {
            "bert.embeddings.word_embeddings.weight": (settings["vocab"], hidden),
            "bert.embeddings.position_embeddings.weight":
                (settings["max_position_embeddings"], hidden),
            "bert.embeddings.token_type_embeddings.weight": (settings["type_vocab_size"], hidden),
            **_pair("bert.embeddings.LayerNorm", (hidden,))}
        for layer in range(settings["layers"]):
            here = f"bert.encoder.layer.{layer}"
            for name in ("query", "key", "value"):
                shapes |= _pair(f"{here}.attention.self.{name}", (hidden, hidden))
            shapes |= _pair(f"{here}.attention.output.dense", (hidden, hidden))
            shapes |= _pair(f"{here}.attention.output.LayerNorm", (hidden,))
            shapes |= _pair(f"{here}.intermediate.dense", (inner, hidden))
            shapes |= _pair(f"{here}.output.dense", (hidden, inner))
            shapes |= _pair(f"{here}.output.LayerNorm", (hidden,))
        return shapes | _pair("bert.pooler.dense", (hidden, hidden)) \
            | _pair("classifier", (labels, hidden))

    def positions(self, settings: dict[str, Any]) -> int:
        return settings["max_position_embeddings"]

    def pair_types(self, settings: dict[str, Any]) -> int:
        return settings["type_vocab_size"]

    def build(self, card: dict[str, Any], image: Image, plan: Plan) -> PackedProgram:
        from model.programs.bert import bert_program  # torch, only now
        return bert_program(card, image, plan)

    def reference(self, card: dict[str, Any], weights: Any, rows: Sequence[Row]) -> np.ndarray:
        from loader.safetensors import float32_array, open_image
        from model.reference.bert import logits
        tensors = {name: float32_array(weights, tensor)
                   for name, tensor in open_image(weights).items()}
        return np.stack([logits(card, tensors, row.ids, row.split) for row in rows])


def _pair(name: str, shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """A weight and the bias that goes with it."""
    return {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
