"""DistilBERT: what a checkpoint of DistilBertForSequenceClassification must hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from loader.config import whole, word
from model.families.settings import (ACTIVATIONS, LAYER_LIMIT, SIZE_LIMIT, VOCAB_LIMIT,
                                     read_heads)
from model.families.shapes import LayerNames, Shapes, dense, norm, table
from model.program import Program, Row

if TYPE_CHECKING:
    from model.programs.image import Image
    from model.programs.plan import Plan

LAYER = LayerNames(
    query="attention.q_lin", key="attention.k_lin", value="attention.v_lin",
    project="attention.out_lin", norm_attention="sa_layer_norm",
    widen="ffn.lin1", narrow="ffn.lin2", norm_output="output_layer_norm")


class DistilBertFamily:
    """The family's entry in the table."""

    name = "distilbert"
    model_types = ("distilbert",)
    architectures = ("DistilBertForSequenceClassification",)
    prefix = "distilbert."
    needs_weights = True

    def settings(self, config: dict[str, Any]) -> dict[str, Any]:
        """The encoder's numbers, which have names of their own here; its norms' eps is fixed."""
        return {"hidden_size": whole(config, "dim", 1, SIZE_LIMIT, 768),
                "layers": whole(config, "n_layers", 1, LAYER_LIMIT, 6),
                "heads": read_heads(config, "n_heads", 12, "dim", 768),
                "intermediate": whole(config, "hidden_dim", 1, SIZE_LIMIT, 3072),
                "vocab": whole(config, "vocab_size", 1, VOCAB_LIMIT, 30522),
                "max_position_embeddings":
                    whole(config, "max_position_embeddings", 1, SIZE_LIMIT, 512),
                "layer_norm_eps": 1e-12,
                "activation": ACTIVATIONS[word(config, "activation", ACTIVATIONS, "gelu")]}

    def tensors(self, settings: dict[str, Any], labels: int) -> Shapes:
        hidden = settings["hidden_size"]
        shapes = {**table("distilbert.embeddings.word_embeddings", settings["vocab"], hidden),
                  **table("distilbert.embeddings.position_embeddings",
                          settings["max_position_embeddings"], hidden),
                  **norm("distilbert.embeddings.LayerNorm", hidden)}
        for layer in range(settings["layers"]):
            shapes |= LAYER.at(f"distilbert.transformer.layer.{layer}.").shapes(settings)
        return shapes | dense("pre_classifier", hidden, hidden) \
            | dense("classifier", labels, hidden)

    def positions(self, settings: dict[str, Any]) -> int:
        return settings["max_position_embeddings"]

    def pair_types(self, settings: dict[str, Any]) -> int:
        return 2  # [SEP] alone divides a pair: there are no types that could be too few

    def build(self, card: dict[str, Any], image: Image, plan: Plan) -> Program:
        from model.programs.assembly import assemble  # torch, only now
        from model.programs.distilbert import DistilBert, outline
        return assemble(DistilBert, card, image, plan, outline)

    def reference(self, card: dict[str, Any], weights: Any, rows: Sequence[Row]) -> np.ndarray:
        from model.reference.distilbert import logits
        from model.reference.rows import each_row
        return each_row(logits, card, weights, rows)
