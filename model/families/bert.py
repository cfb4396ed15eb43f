"""BERT: what a checkpoint of BertForSequenceClassification must hold, and where its code is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from loader.config import whole
from model.families.settings import TYPE_LIMIT, encoder_settings
from model.families.shapes import BERT_LAYER, Shapes, dense, norm, table
from model.program import Program, Row

if TYPE_CHECKING:
    from model.programs.image import Image
    from model.programs.plan import Plan


class BertFamily:
    """The family's entry in the table."""

    name = "bert"
    model_types = ("bert",)
    architectures = ("BertForSequenceClassification",)
    prefix = "bert."
    needs_weights = True

    def settings(self, config: dict[str, Any]) -> dict[str, Any]:
        """The encoder's numbers and type_vocab_size; missing keys as the reference fills them."""
        return {**encoder_settings(config),
                "type_vocab_size": whole(config, "type_vocab_size", 1, TYPE_LIMIT, 2)}

    def tensors(self, settings: dict[str, Any], labels: int) -> Shapes:
        hidden = settings["hidden_size"]
        shapes = {**table("bert.embeddings.word_embeddings", settings["vocab"], hidden),
                  **table("bert.embeddings.position_embeddings",
                          settings["max_position_embeddings"], hidden),
                  **table("bert.embeddings.token_type_embeddings", settings["type_vocab_size"],
                          hidden),
                  **norm("bert.embeddings.LayerNorm", hidden)}
        for layer in range(settings["layers"]):
            shapes |= BERT_LAYER.at(f"bert.encoder.layer.{layer}.").shapes(settings)
        return shapes | dense("bert.pooler.dense", hidden, hidden) \
            | dense("classifier", labels, hidden)

    def positions(self, settings: dict[str, Any]) -> int:
        return settings["max_position_embeddings"]

    def pair_types(self, settings: dict[str, Any]) -> int:
        return settings["type_vocab_size"]

    def build(self, card: dict[str, Any], image: Image, plan: Plan) -> Program:
        from model.programs.assembly import assemble  # torch, only now
        from model.programs.bert import Bert, outline
        return assemble(Bert, card, image, plan, outline)

    def reference(self, card: dict[str, Any], weights: Any, rows: Sequence[Row]) -> np.ndarray:
        from model.reference.bert import logits
        from model.reference.rows import each_row
        return each_row(logits, card, weights, rows)
