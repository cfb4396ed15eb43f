"""ELECTRA: what a checkpoint of ElectraForSequenceClassification must hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from loader.config import whole
from model.families.settings import SIZE_LIMIT, TYPE_LIMIT, encoder_settings
from model.families.shapes import BERT_LAYER, Shapes, dense, norm, table
from model.program import Program, Row

if TYPE_CHECKING:
    from model.programs.image import Image
    from model.programs.plan import Plan


class ElectraFamily:
    """The family's entry in the table."""

    name = "electra"
    model_types = ("electra",)
    architectures = ("ElectraForSequenceClassification",)
    prefix = "electra."
    needs_weights = True

    def settings(self, config: dict[str, Any]) -> dict[str, Any]:
        """The encoder's numbers, embedding_size and type_vocab_size."""
        return {**encoder_settings(config, hidden=256, heads=4, intermediate=1024),
                "embedding_size": whole(config, "embedding_size", 1, SIZE_LIMIT, 128),
                "type_vocab_size": whole(config, "type_vocab_size", 1, TYPE_LIMIT, 2)}

    def tensors(self, settings: dict[str, Any], labels: int) -> Shapes:
        hidden, size = settings["hidden_size"], settings["embedding_size"]
        shapes = {**table("electra.embeddings.word_embeddings", settings["vocab"], size),
                  **table("electra.embeddings.position_embeddings",
                          settings["max_position_embeddings"], size),
                  **table("electra.embeddings.token_type_embeddings", settings["type_vocab_size"],
                          size),
                  **norm("electra.embeddings.LayerNorm", size)}
        if size != hidden:
            shapes |= dense("electra.embeddings_project", hidden, size)
        for layer in range(settings["layers"]):
            shapes |= BERT_LAYER.at(f"electra.encoder.layer.{layer}.").shapes(settings)
        return shapes | dense("classifier.dense", hidden, hidden) \
            | dense("classifier.out_proj", labels, hidden)

    def positions(self, settings: dict[str, Any]) -> int:
        return settings["max_position_embeddings"]

    def pair_types(self, settings: dict[str, Any]) -> int:
        return settings["type_vocab_size"]

    def build(self, card: dict[str, Any], image: Image, plan: Plan) -> Program:
        from model.programs.assembly import assemble  # torch, only now
        from model.programs.electra import Electra, outline
        return assemble(Electra, card, image, plan, outline)

    def reference(self, card: dict[str, Any], weights: Any, rows: Sequence[Row]) -> np.ndarray:
        from model.reference.electra import logits
        from model.reference.rows import each_row
        return each_row(logits, card, weights, rows)
