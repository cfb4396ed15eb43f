"""ALBERT: what a checkpoint of AlbertForSequenceClassification must hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from loader.config import whole
from model.families.settings import LAYER_LIMIT, SIZE_LIMIT, TYPE_LIMIT, encoder_settings
from model.families.shapes import LayerNames, Shapes, dense, norm, table
from model.program import Program, Row

if TYPE_CHECKING:
    from model.programs.image import Image
    from model.programs.plan import Plan

LAYER = LayerNames(
    query="attention.query", key="attention.key", value="attention.value",
    project="attention.dense", norm_attention="attention.LayerNorm",
    widen="ffn", narrow="ffn_output", norm_output="full_layer_layer_norm")


class AlbertFamily:
    """The family's entry in the table."""

    name = "albert"
    model_types = ("albert",)
    architectures = ("AlbertForSequenceClassification",)
    prefix = "albert."
    needs_weights = True

    def settings(self, config: dict[str, Any]) -> dict[str, Any]:
        """The encoder's numbers, embedding_size, type_vocab_size, and how layers are shared:
        `groups` of `inner_layers` layers each."""
        settings = encoder_settings(config, hidden=4096, heads=64, intermediate=16384,
                                    vocab=30000, activation="gelu_new")
        return {**settings,
                "embedding_size": whole(config, "embedding_size", 1, SIZE_LIMIT, 128),
                "type_vocab_size": whole(config, "type_vocab_size", 1, TYPE_LIMIT, 2),
                "groups": whole(config, "num_hidden_groups", 1, settings["layers"], 1),
                "inner_layers": whole(config, "inner_group_num", 1, LAYER_LIMIT, 1)}

    def tensors(self, settings: dict[str, Any], labels: int) -> Shapes:
        hidden, size = settings["hidden_size"], settings["embedding_size"]
        shapes = {**table("albert.embeddings.word_embeddings", settings["vocab"], size),
                  **table("albert.embeddings.position_embeddings",
                          settings["max_position_embeddings"], size),
                  **table("albert.embeddings.token_type_embeddings", settings["type_vocab_size"],
                          size),
                  **norm("albert.embeddings.LayerNorm", size),
                  **dense("albert.encoder.embedding_hidden_mapping_in", hidden, size)}
        for names in layers(settings):
            shapes |= names.shapes(settings)
        return shapes | dense("albert.pooler", hidden, hidden) \
            | dense("classifier", labels, hidden)

    def positions(self, settings: dict[str, Any]) -> int:
        return settings["max_position_embeddings"]

    def pair_types(self, settings: dict[str, Any]) -> int:
        return settings["type_vocab_size"]

    def build(self, card: dict[str, Any], image: Image, plan: Plan) -> Program:
        from model.programs.assembly import assemble  # torch, only now
        from model.programs.albert import Albert, outline
        return assemble(Albert, card, image, plan, outline)

    def reference(self, card: dict[str, Any], weights: Any, rows: Sequence[Row]) -> np.ndarray:
        from model.reference.albert import logits
        from model.reference.rows import each_row
        return each_row(logits, card, weights, rows)


def layers(settings: Mapping[str, Any]) -> list[LayerNames]:
    """The layers in the order in which they run; each group's come back as often as it is used.

    Example: 4 layers in 2 groups of 1 inner layer are the layers 0.0, 0.0, 1.0, 1.0.
    """
    each = settings["layers"] / settings["groups"]
    return [LAYER.at(f"albert.encoder.albert_layer_groups.{int(layer / each)}."
                     f"albert_layers.{inner}.")
            for layer in range(settings["layers"]) for inner in range(settings["inner_layers"])]
