"""ModernBERT: what a checkpoint of ModernBertForSequenceClassification must hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from loader.config import flag, real, whole, word
from loader.errors import CheckpointError, shown
from model.families.settings import (ACTIVATIONS, HEAD_ACTIVATIONS, LAYER_LIMIT, SIZE_LIMIT,
                                     VOCAB_LIMIT, read_heads)
from model.families.shapes import Shapes, dense, norm, table
from model.program import Row

if TYPE_CHECKING:
    from model.programs.image import Image
    from model.programs.plan import Plan
    from model.programs.running import PackedProgram

GLOBAL, LOCAL = "full_attention", "sliding_attention"
# kind of attention → (the key of its theta in old files, its default)
THETAS = {GLOBAL: ("global_rope_theta", 160_000.0), LOCAL: ("local_rope_theta", 10_000.0)}
THETA_LIMIT = 1e12


class ModernBertFamily:
    """The family's entry in the table."""

    name = "modernbert"
    model_types = ("modernbert",)
    architectures = ("ModernBertForSequenceClassification",)
    prefix = "model."
    needs_weights = True

    def settings(self, config: dict[str, Any]) -> dict[str, Any]:
        """hidden_size, layers, heads, intermediate, vocab, max_position_embeddings,
        layer_norm_eps, activation; and attention (GLOBAL or LOCAL for each layer), thetas by kind,
        reach (tokens that local attention sees on each side), which parts have a bias, pooling
        ("cls" or "mean") and head_activation."""
        layers = whole(config, "num_hidden_layers", 1, LAYER_LIMIT, 22)
        heads = read_heads(config, "num_attention_heads", 12, "hidden_size", 768)
        hidden = whole(config, "hidden_size", 1, SIZE_LIMIT, 768)
        if hidden // heads % 2:
            raise CheckpointError(f"config.json: hidden_size {hidden} with num_attention_heads "
                                  f"{heads} gives heads of an odd size, which cannot be rotated; "
                                  "correct one of them.")
        return {"hidden_size": hidden, "layers": layers, "heads": heads,
                "intermediate": whole(config, "intermediate_size", 1, SIZE_LIMIT, 1152),
                "vocab": whole(config, "vocab_size", 1, VOCAB_LIMIT, 50368),
                "max_position_embeddings":
                    whole(config, "max_position_embeddings", 1, SIZE_LIMIT, 8192),
                "layer_norm_eps": real(config, "norm_eps", 0.0, 1.0, 1e-5),
                "activation":
                    ACTIVATIONS[word(config, "hidden_activation", ACTIVATIONS, "gelu")],
                "attention": _attention(config, layers), "thetas": _thetas(config),
                "reach": whole(config, "local_attention", 1, SIZE_LIMIT, 128) // 2,
                "norm_bias": flag(config, "norm_bias", False),
                "attention_bias": flag(config, "attention_bias", False),
                "mlp_bias": flag(config, "mlp_bias", False),
                "head_bias": flag(config, "classifier_bias", False),
                "pooling": word(config, "classifier_pooling", ("cls", "mean"), "cls"),
                "head_activation": HEAD_ACTIVATIONS[
                    word(config, "classifier_activation", HEAD_ACTIVATIONS, "gelu")]}

    def tensors(self, settings: dict[str, Any], labels: int) -> Shapes:
        hidden, inner = settings["hidden_size"], settings["intermediate"]
        norms, attention, mlp = (settings[key] for key in
                                 ("norm_bias", "attention_bias", "mlp_bias"))
        shapes = {**table("model.embeddings.tok_embeddings", settings["vocab"], hidden),
                  **norm("model.embeddings.norm", hidden, norms)}
        for layer in range(settings["layers"]):
            here = f"model.layers.{layer}."
            if layer:
                shapes |= norm(here + "attn_norm", hidden, norms)
            shapes |= {**dense(here + "attn.Wqkv", 3 * hidden, hidden, attention),
                       **dense(here + "attn.Wo", hidden, hidden, attention),
                       **norm(here + "mlp_norm", hidden, norms),
                       **dense(here + "mlp.Wi", 2 * inner, hidden, mlp),
                       **dense(here + "mlp.Wo", hidden, inner, mlp)}
        return {**shapes, **norm("model.final_norm", hidden, norms),
                **dense("head.dense", hidden, hidden, settings["head_bias"]),
                **norm("head.norm", hidden, norms), **dense("classifier", labels, hidden)}

    def positions(self, settings: dict[str, Any]) -> int:
        return settings["max_position_embeddings"]

    def pair_types(self, settings: dict[str, Any]) -> int:
        return 2  # [SEP] alone divides a pair: there are no types

    def build(self, card: dict[str, Any], image: Image, plan: Plan) -> PackedProgram:
        from model.programs.assembly import assemble  # torch, only now
        from model.programs.modernbert import ModernBert
        return assemble(ModernBert, card, image, plan)

    def reference(self, card: dict[str, Any], weights: Any, rows: Sequence[Row]) -> np.ndarray:
        from model.reference.modernbert import logits
        from model.reference.rows import each_row
        return each_row(logits, card, weights, rows)


def _attention(config: Mapping[str, Any], layers: int) -> list[str]:
    """The kind of each layer: layer_types, or in old files every n-th, from the first, global."""
    kinds = config.get("layer_types")
    if kinds is None:
        every = whole(config, "global_attn_every_n_layers", 1, SIZE_LIMIT, 3)
        return [LOCAL if layer % every else GLOBAL for layer in range(layers)]
    if not isinstance(kinds, list) or len(kinds) != layers or \
            not all(kind in (GLOBAL, LOCAL) for kind in kinds):
        raise CheckpointError(f"config.json: layer_types is {shown(kinds)}; it must name "
                              f"{GLOBAL} or {LOCAL} for each of the {layers} layers.")
    return kinds


def _thetas(config: Mapping[str, Any]) -> dict[str, float]:
    """The base of the rotations by kind of attention: rope_parameters, or the keys before it."""
    if config.get("rope_scaling") is not None:
        raise CheckpointError("config.json: rope_scaling is not supported; remove it if the model "
                              "was trained without it.")
    table = config.get("rope_parameters")
    if table is None:
        thetas = {kind: real(config, key, 1.0, THETA_LIMIT, default)
                  for kind, (key, default) in THETAS.items() if config.get(key, 0) is not None}
        # A local theta of null means the global one.
        return {LOCAL: thetas.get(GLOBAL, THETAS[GLOBAL][1]), **thetas}
    if not isinstance(table, dict):
        raise CheckpointError(f"config.json: rope_parameters is {shown(table)}, not an object; "
                              "correct it.")
    thetas = {}
    for kind, (_, default) in THETAS.items():
        part = table.get(kind, {})
        if not isinstance(part, dict):
            raise CheckpointError(f"config.json: rope_parameters of {kind} is {shown(part)}, not "
                                  "an object; correct it.")
        word(part, "rope_type", ("default",), "default")
        thetas[kind] = real(part, "rope_theta", 1.0, THETA_LIMIT, default)
    return thetas


def angles(places: np.ndarray, size: int, theta: float) -> np.ndarray:
    """By how much each pair of numbers of a head is turned at each place, float32 [P, size / 2].

    place · theta^(−2i/size), in float32 as where models were trained: at place 8,000 the angles
    differ from exact ones by 1e-4. Source: Su et al. 2021.
    """
    speeds = 1 / np.float32(theta) ** (np.arange(0, size, 2, dtype=np.float32) / np.float32(size))
    return places.astype(np.float32)[:, None] * speeds
