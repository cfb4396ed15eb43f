"""MPNet: what a checkpoint of MPNetForSequenceClassification must hold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from loader.config import whole
from loader.errors import CheckpointError
from model.families.settings import encoder_settings
from model.families.shapes import LayerNames, Shapes, dense, norm, table
from model.program import Program, Row

if TYPE_CHECKING:
    from model.programs.image import Image
    from model.programs.plan import Plan

LAYER = LayerNames(
    query="attention.attn.q", key="attention.attn.k", value="attention.attn.v",
    project="attention.attn.o", norm_attention="attention.LayerNorm",
    widen="intermediate.dense", narrow="output.dense", norm_output="output.LayerNorm")
# Fixed in the model's code: config.json cannot change them.
PAD_ID = 1
BUCKETS = 32
BUCKET_DISTANCE = 128


class MPNetFamily:
    """The family's entry in the table."""

    name = "mpnet"
    model_types = ("mpnet",)
    architectures = ("MPNetForSequenceClassification",)
    prefix = "mpnet."
    needs_weights = True

    def settings(self, config: dict[str, Any]) -> dict[str, Any]:
        """The encoder's numbers, pad_id and buckets: rows of the table of relative positions."""
        settings = encoder_settings(config, vocab=30527)
        positions = settings["max_position_embeddings"]
        if positions <= PAD_ID + 1:
            raise CheckpointError(f"config.json: max_position_embeddings {positions} leaves no "
                                  f"position behind {PAD_ID}, where padding is; correct it.")
        return {**settings, "pad_id": PAD_ID,
                "buckets": whole(config, "relative_attention_num_buckets", BUCKETS, 1 << 16,
                                 BUCKETS)}

    def tensors(self, settings: dict[str, Any], labels: int) -> Shapes:
        hidden = settings["hidden_size"]
        shapes = {**table("mpnet.embeddings.word_embeddings", settings["vocab"], hidden),
                  **table("mpnet.embeddings.position_embeddings",
                          settings["max_position_embeddings"], hidden),
                  **norm("mpnet.embeddings.LayerNorm", hidden),
                  **table("mpnet.encoder.relative_attention_bias", settings["buckets"],
                          settings["heads"])}
        for layer in range(settings["layers"]):
            shapes |= LAYER.at(f"mpnet.encoder.layer.{layer}.").shapes(settings)
        return shapes | dense("classifier.dense", hidden, hidden) \
            | dense("classifier.out_proj", labels, hidden)

    def positions(self, settings: dict[str, Any]) -> int:
        return settings["max_position_embeddings"] - PAD_ID - 1

    def pair_types(self, settings: dict[str, Any]) -> int:
        return 2  # </s></s> alone divides a pair: there are no types

    def build(self, card: dict[str, Any], image: Image, plan: Plan) -> Program:
        from model.programs.assembly import assemble  # torch, only now
        from model.programs.mpnet import MPNet, outline
        return assemble(MPNet, card, image, plan, outline)

    def reference(self, card: dict[str, Any], weights: Any, rows: Sequence[Row]) -> np.ndarray:
        from model.reference.mpnet import logits
        from model.reference.rows import each_row
        return each_row(logits, card, weights, rows)


def buckets(distances: np.ndarray) -> np.ndarray:
    """The bucket of each distance key − query: 16 for keys before the query, 16 for those after.

    Of each 16, 8 hold one distance, the others ever more, up to BUCKET_DISTANCE. The arithmetic is
    in float32, as it was where models were trained. Source: Raffel et al. 2019 (T5).
    Example: distances −1, 0, 1, 8, 100 are in the buckets 1, 0, 17, 24, 31.
    """
    half, exact = BUCKETS // 2, BUCKETS // 4
    far = np.abs(distances)
    ratio = np.log(np.maximum(far, exact).astype(np.float32) / np.float32(exact)) \
        / np.float32(math.log(BUCKET_DISTANCE / exact)) * np.float32(half - exact)
    found = np.where(far < exact, far, np.minimum(exact + ratio.astype(np.int64), half - 1))
    return found + half * (distances > 0)
