"""DeBERTa-v2 and -v3: what a checkpoint of DebertaV2ForSequenceClassification must hold."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from loader.config import flag, whole, word
from loader.errors import CheckpointError, shown
from model.families.settings import (ACTIVATIONS, HEAD_ACTIVATIONS, SIZE_LIMIT, TYPE_LIMIT,
                                     encoder_settings)
from model.families.shapes import LayerNames, Shapes, dense, norm, table
from model.program import Program, Row

if TYPE_CHECKING:
    from model.programs.image import Image
    from model.programs.plan import Plan

LAYER = LayerNames(
    query="attention.self.query_proj", key="attention.self.key_proj",
    value="attention.self.value_proj", project="attention.output.dense",
    norm_attention="attention.output.LayerNorm",
    widen="intermediate.dense", narrow="output.dense", norm_output="output.LayerNorm")
POSITION_KEY, POSITION_QUERY = "attention.self.pos_key_proj", "attention.self.pos_query_proj"
TERMS = ("c2p", "p2c")
KERNEL_LIMIT = 255


class DebertaV2Family:
    """The family's entry in the table."""

    name = "deberta-v2"
    model_types = ("deberta-v2",)
    architectures = ("DebertaV2ForSequenceClassification",)
    prefix = "deberta."
    needs_weights = True

    def settings(self, config: dict[str, Any]) -> dict[str, Any]:
        """The encoder's numbers and: type_vocab_size (0: no types), absolute_positions, terms (of
        "c2p", "p2c"), relative (see _relative), kernel (the convolution's width; 0: none) with
        kernel_groups and kernel_activation, and head_activation."""
        settings = encoder_settings(config, hidden=1536, layers=24, heads=24, intermediate=6144,
                                    vocab=128100, eps=1e-7)
        hidden = settings["hidden_size"]
        for key, only in (("embedding_size", hidden), ("pooler_hidden_size", hidden),
                          ("attention_head_size", hidden // settings["heads"])):
            if config.get(key) is not None:
                whole(config, key, only, only)
        terms = _terms(config.get("pos_att_type"))
        kernel = whole(config, "conv_kernel_size", 0, KERNEL_LIMIT, 0)
        groups = whole(config, "conv_groups", 1, hidden, 1)
        if kernel and (kernel % 2 == 0 or hidden % groups):
            raise CheckpointError(f"config.json: conv_kernel_size {kernel} with conv_groups "
                                  f"{groups} fits no hidden_size {hidden}; an odd kernel and a "
                                  "divisor of the size do.")
        return {**settings,
                "type_vocab_size": whole(config, "type_vocab_size", 0, TYPE_LIMIT, 0),
                "absolute_positions": flag(config, "position_biased_input", True),
                "terms": terms, "relative": _relative(config, settings),
                "kernel": kernel, "kernel_groups": groups,
                "kernel_activation":
                    HEAD_ACTIVATIONS[word(config, "conv_act", HEAD_ACTIVATIONS, "tanh")],
                "head_activation": HEAD_ACTIVATIONS[
                    word(config, "pooler_hidden_act", HEAD_ACTIVATIONS, "gelu")]}

    def tensors(self, settings: dict[str, Any], labels: int) -> Shapes:
        hidden, relative = settings["hidden_size"], settings["relative"]
        shapes = {**table("deberta.embeddings.word_embeddings", settings["vocab"], hidden),
                  **norm("deberta.embeddings.LayerNorm", hidden)}
        if settings["absolute_positions"]:
            shapes |= table("deberta.embeddings.position_embeddings",
                            settings["max_position_embeddings"], hidden)
        if settings["type_vocab_size"]:
            shapes |= table("deberta.embeddings.token_type_embeddings",
                            settings["type_vocab_size"], hidden)
        if relative["span"]:
            shapes |= table("deberta.encoder.rel_embeddings", 2 * relative["span"], hidden)
        if relative["is_normed"]:
            shapes |= norm("deberta.encoder.LayerNorm", hidden)
        for layer in range(settings["layers"]):
            here = f"deberta.encoder.layer.{layer}."
            shapes |= LAYER.at(here).shapes(settings)
            for term, name in zip(TERMS, (POSITION_KEY, POSITION_QUERY)):
                if term in settings["terms"] and relative["span"] and not relative["is_shared"]:
                    shapes |= dense(here + name, hidden, hidden)
        if settings["kernel"]:
            shapes |= {"deberta.encoder.conv.conv.weight":
                       (hidden, hidden // settings["kernel_groups"], settings["kernel"]),
                       "deberta.encoder.conv.conv.bias": (hidden,),
                       **norm("deberta.encoder.conv.LayerNorm", hidden)}
        return shapes | dense("pooler.dense", hidden, hidden) \
            | dense("classifier", labels, hidden)

    def positions(self, settings: dict[str, Any]) -> int:
        return settings["max_position_embeddings"]

    def pair_types(self, settings: dict[str, Any]) -> int:
        return settings["type_vocab_size"] or 2  # without types, [SEP] alone divides a pair

    def build(self, card: dict[str, Any], image: Image, plan: Plan) -> Program:
        from model.programs.assembly import assemble  # torch, only now
        from model.programs.deberta_v2 import DebertaV2, outline
        return assemble(DebertaV2, card, image, plan, outline)

    def reference(self, card: dict[str, Any], weights: Any, rows: Sequence[Row]) -> np.ndarray:
        from model.reference.deberta_v2 import logits
        from model.reference.rows import each_row
        return each_row(logits, card, weights, rows)


def _terms(value: Any) -> list[str]:
    """pos_att_type, a list or "c2p|p2c", as the sorted terms."""
    names = [name.strip() for name in value.lower().split("|")] if isinstance(value, str) else value
    if names is None:
        return []
    if not isinstance(names, list) or not all(name in TERMS for name in names):
        raise CheckpointError(f"config.json: pos_att_type {shown(value)} is not supported; "
                              "supported: c2p and p2c, as a list or divided by |.")
    return sorted(set(names))


def _relative(config: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """How relative positions are looked up: the table has `span` rows for each side (0: there are
    none); `buckets` of them (0: each distance has its own) reach `distance` tokens; `is_shared`: by
    the products of queries and keys; `is_normed`: after a LayerNorm."""
    normed = word(config, "norm_rel_ebd", ("none", "layer_norm"), "none") == "layer_norm"
    shared = flag(config, "share_att_key", False)
    if not flag(config, "relative_attention", False):
        return {"span": 0, "buckets": 0, "distance": 0, "is_shared": shared, "is_normed": False}
    distance = whole(config, "max_relative_positions", -1, SIZE_LIMIT, -1)
    if distance < 1:
        distance = settings["max_position_embeddings"]
    buckets = max(whole(config, "position_buckets", -1, SIZE_LIMIT, -1), 0)
    if buckets and (buckets < 2 or distance - 1 <= buckets // 2):
        raise CheckpointError(f"config.json: position_buckets {buckets} do not fit "
                              f"max_relative_positions {distance}: they must be 2 or more, and "
                              "half of them fewer than it; correct one of them.")
    return {"span": buckets or distance, "buckets": buckets, "distance": distance,
            "is_shared": shared, "is_normed": normed}


def relative_rows(distances: np.ndarray, relative: Mapping[str, Any]) -> np.ndarray:
    """The row of the relative table for each distance query − key, clamped into the table.

    Up to half of the buckets each distance has its own row, beyond that rows hold ever more. The
    arithmetic is in float32, as it was where models were trained. Source: He et al. 2021.
    Example: with 16 buckets over 96 tokens the distances 0, 8, 9, 95, −95 have rows 16, 24, 25,
    31, 1.
    """
    span, half = relative["span"], relative["buckets"] // 2
    if half:
        far = np.maximum(np.abs(distances), half).astype(np.float32)
        steps = np.log(far / np.float32(half)) \
            / np.log(np.float32((relative["distance"] - 1) / half)) * np.float32(half - 1)
        bucketed = (np.ceil(steps).astype(np.int64) + half) * np.sign(distances)
        distances = np.where(np.abs(distances) <= half, distances, bucketed)
    return np.clip(distances + span, 0, 2 * span - 1)


def score_scale(settings: Mapping[str, Any]) -> float:
    """What scores are divided by: √(head size × (1 + terms))."""
    return math.sqrt(settings["hidden_size"] // settings["heads"] * (1 + len(settings["terms"])))
