"""RoBERTa, CamemBERT and XLM-RoBERTa: what a checkpoint of one encoder by three names holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from loader.config import whole
from loader.errors import CheckpointError
from model.families.settings import TYPE_LIMIT, encoder_settings
from model.families.shapes import BERT_LAYER, Shapes, dense, norm, table
from model.program import Program, Row

if TYPE_CHECKING:
    from model.programs.image import Image
    from model.programs.plan import Plan


class RobertaFamily:
    """The entry in the table of one of the three, which differ by their names alone."""

    prefix = "roberta."
    needs_weights = True

    def __init__(self, name: str, architecture: str) -> None:
        self.name = name
        self.model_types = (name,)
        self.architectures = (architecture,)

    def settings(self, config: dict[str, Any]) -> dict[str, Any]:
        """The encoder's numbers, type_vocab_size and pad_id, behind which positions begin."""
        settings = encoder_settings(config, vocab=50265)
        pad_id = whole(config, "pad_token_id", 0, settings["vocab"] - 1, 1)
        positions = settings["max_position_embeddings"]
        if positions <= pad_id + 1:
            raise CheckpointError(f"config.json: max_position_embeddings {positions} leaves no "
                                  f"position behind pad_token_id {pad_id}; correct one of them.")
        return {**settings, "pad_id": pad_id,
                "type_vocab_size": whole(config, "type_vocab_size", 1, TYPE_LIMIT, 2)}

    def tensors(self, settings: dict[str, Any], labels: int) -> Shapes:
        hidden = settings["hidden_size"]
        shapes = {**table("roberta.embeddings.word_embeddings", settings["vocab"], hidden),
                  **table("roberta.embeddings.position_embeddings",
                          settings["max_position_embeddings"], hidden),
                  **table("roberta.embeddings.token_type_embeddings", settings["type_vocab_size"],
                          hidden),
                  **norm("roberta.embeddings.LayerNorm", hidden)}
        for layer in range(settings["layers"]):
            shapes |= BERT_LAYER.at(f"roberta.encoder.layer.{layer}.").shapes(settings)
        return shapes | dense("classifier.dense", hidden, hidden) \
            | dense("classifier.out_proj", labels, hidden)

    def positions(self, settings: dict[str, Any]) -> int:
        return settings["max_position_embeddings"] - settings["pad_id"] - 1

    def pair_types(self, settings: dict[str, Any]) -> int:
        return 2  # </s></s> alone divides a pair: all tokens are of type 0

    def build(self, card: dict[str, Any], image: Image, plan: Plan) -> Program:
        from model.programs.assembly import assemble  # torch, only now
        from model.programs.roberta import Roberta, outline
        return assemble(Roberta, card, image, plan, outline)

    def reference(self, card: dict[str, Any], weights: Any, rows: Sequence[Row]) -> np.ndarray:
        from model.reference.roberta import logits
        from model.reference.rows import each_row
        return each_row(logits, card, weights, rows)


ROBERTA = RobertaFamily("roberta", "RobertaForSequenceClassification")
CAMEMBERT = RobertaFamily("camembert", "CamembertForSequenceClassification")
XLM_ROBERTA = RobertaFamily("xlm-roberta", "XLMRobertaForSequenceClassification")
