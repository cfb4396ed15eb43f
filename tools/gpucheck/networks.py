"""The models that are checked, with random weights and the shipped one, and programs of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from loader.prepare import map_file, model_name, prepare
from loader.safetensors import file_bytes
from loader.tokenizers.table import open_tokenizer
from model.device.ladder import Shape
from model.device.port import Port
from model.families.random_weights import random_weights
from model.families.table import FAMILIES, build, reference
from model.grid import buckets
from model.program import Program, Row
from model.programs.eight_bits import Operators
from model.programs.graphs import GraphProgram
from model.programs.image import Image
from model.programs.on_device import padded_network
from model.programs.script import script, settle
from server.settings import DEFAULT_MODEL
from tools.gpucheck.sizes import LABELS, Net

# With this times 1/√width, attention is as uneven as a trained model's, whatever the width.
LIVELY = 0.83


@dataclass(frozen=True)
class Model:
    """A card and its weights, as the preparer hands them to engines."""

    name: str
    card: dict[str, Any]
    image: Any

    def on_cpu(self) -> Program:
        """The fp32 program that CPU engines run."""
        return build({**self.card, "precision": "fp32"}, self.image)


def random_model(net: Net, seed: int = 0) -> Model:
    """A BERT of these sizes; the same for a seed."""
    config = net.config
    family = FAMILIES["bert"]
    settings = family.settings({**config, "hidden_act": "gelu", "layer_norm_eps": 1e-12,
                                "pad_token_id": 0})
    image = file_bytes(random_weights(family, settings, LABELS, seed,
                                      LIVELY / config["hidden_size"] ** 0.5))
    most = family.positions(settings)
    card = {"family": "bert", "labels": [f"label {number}" for number in range(LABELS)],
            "settings": settings, "max_tokens": most, "vocab_size": settings["vocab"],
            "id_bytes": 2, "precision": "fp32", "buckets": buckets(most)}
    return Model(net.name, card, image)


def shipped_model() -> Model:
    """The model that lies beside the code."""
    prepared = prepare(DEFAULT_MODEL, model_name(DEFAULT_MODEL), FAMILIES)
    card, image = prepared.card, map_file(prepared.weights_fd)
    card["buckets"] = buckets(card["max_tokens"])
    rows = encode(prepared.tokenizer, card, ("The end.", "Who wrote Hamlet?"))
    card["self_test"] = [
        {"ids": row.ids.tolist(), "split": row.split, "logits": logits.tolist()}
        for row, logits in zip(rows, reference(card, image, rows))]
    return Model(card["name"], card, image)


def shipped_rows(texts: Sequence[str]) -> list[Row]:
    """Texts as the shipped model reads them."""
    prepared = prepare(DEFAULT_MODEL, model_name(DEFAULT_MODEL), FAMILIES)
    return encode(prepared.tokenizer, prepared.card, texts)


def shipped_logits(texts: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """(label names, what the shipped model answers: float32 [texts, C], computed on the CPU)."""
    prepared = prepare(DEFAULT_MODEL, model_name(DEFAULT_MODEL), FAMILIES)
    card = prepared.card
    rows = encode(prepared.tokenizer, card, texts)
    return card["labels"], reference(card, map_file(prepared.weights_fd), rows)


def encode(tables: bytes, card: dict[str, Any], texts: Sequence[str]) -> list[Row]:
    tokenizer = open_tokenizer(tables)
    encodings = [tokenizer.encode(text, None, card["max_tokens"]) for text in texts]
    return [Row(np.array(encoding.ids), encoding.split) for encoding in encodings]


class Networks:
    """One model's network on a device, as it is written and compiled, the same weights in both;
    with `operators` (of `dtype`) one of 8 bits."""

    def __init__(self, port: Port, model: Model, dtype: torch.dtype,
                 operators: Operators | None = None) -> None:
        settle()
        self.port, self.model, self.dtype = port, model, dtype
        with torch.inference_mode():
            self.eager = padded_network(model.card, Image(model.image), dtype, port, operators)
            self.scripted = script(self.eager)

    def program(self, known: Sequence[Shape], is_scripted: bool = True,
                is_high: bool = False) -> GraphProgram:
        """A program of these shapes, largest first; not prepared yet."""
        card = self.model.card
        network = self.scripted if is_scripted else self.eager
        return GraphProgram(self.port, network, self.dtype, known, card["settings"],
                            len(card["labels"]), card["max_tokens"], is_high)


def rows_of(shape: Shape, sizes: Sequence[int], vocab: int, seed: int) -> list[Row]:
    """Texts that fill a shape: as many as it takes, of lengths for which no shorter of the
    buckets `sizes` would do; every third is a pair."""
    rng = np.random.default_rng((seed, *shape))
    least = max((size for size in sizes if size < shape.length), default=0) + 1
    rows = []
    for number in range(shape.batch):
        length = int(rng.integers(least, shape.length + 1))
        rows.append(Row(rng.integers(0, vocab, length),
                        length // 2 if number % 3 == 2 else length))
    return rows
