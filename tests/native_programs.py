"""Small models of the families that machine code is for, as machine code and as torch's program."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from loader.safetensors import file_bytes, float32_array, open_image
from model.families.table import build
from model.native import assembly, cpu
from model.native.program import NativeProgram
from model.program import Program, Row
from tests.guarded import skip_without
from tests.tiny_families import CONFIGS, PADDED, SIZES, make_rows, make_tiny

DISTILBERT = {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64, "vocab_size": 97,
              "max_position_embeddings": 64}
# Configurations that machine code fits, by family and what else tells them apart.
FITTING: dict[str, dict[str, Any]] = {
    "bert": SIZES, "distilbert": DISTILBERT, "electra": {**SIZES, "embedding_size": 32},
    "electra projected": {**SIZES, "embedding_size": 48},
    "roberta": {**PADDED, "type_vocab_size": 1}, "mpnet": PADDED,
    "albert": {**SIZES, "embedding_size": 48, "hidden_size": 64, "num_hidden_layers": 3},
    "albert grouped": {**SIZES, "embedding_size": 32, "num_hidden_layers": 4,
                       "num_hidden_groups": 2},
    "deberta-v2": CONFIGS["deberta-v2"][0]}
# Of texts, up to the longest that the configurations take; more tokens than go into one call.
LENGTHS = (5, 2, 64, 17, 16, 33, 1, 3, 48, 15, 63, 32, 31, 7, 8, 64, 64, 64, 64, 64, 9)


def native(card: dict[str, Any], weights: bytes, unit: str = "") -> NativeProgram:
    """The program as machine code, its 8-bit products by `unit` or this CPU's best."""
    skip_without(unit)
    program = _built(card, weights, unit or cpu.integer_products().kind)
    assert isinstance(program, NativeProgram)
    return program


@functools.cache
def kept(name: str, precision: str = "fp32") -> tuple[dict[str, Any], NativeProgram]:
    """(card, program) of a fitting configuration as it stands, which many tests run: made once, and
    so each test also finds what the others' batches left in its memory."""
    card, weights = tiny(name, precision=precision)
    return card, native(card, weights)


def torchs(card: dict[str, Any], weights: bytes) -> Program:
    """The program that a CPU without what machine code takes has."""
    program = _built(card, weights, "")
    assert not isinstance(program, NativeProgram)
    return program


def tiny(name: str, *, labels: int = 3, precision: str = "fp32", seed: int = 1, **config: Any
         ) -> tuple[dict[str, Any], bytes]:
    """The card and the image of the fitting configuration `name` with these changes."""
    family = name.partition(" ")[0]
    return make_tiny(family, {**FITTING[name], **config}, precision=precision, labels=labels,
                     seed=seed)


def smoothed(weights: bytes, seed: int = 3) -> bytes:
    """The image with divisors for the inputs of every 8-bit product."""
    rng = np.random.default_rng(seed)
    arrays = changed(weights)
    for name, array in list(arrays.items()):
        if array.dtype == np.int8:
            divisors = np.exp(0.5 * rng.standard_normal(array.shape[1])).astype(np.float32)
            arrays[name.removesuffix("weight") + "divisors"] = divisors
    return file_bytes(arrays)


def changed(weights: bytes) -> dict[str, np.ndarray]:
    """The image's arrays, to be changed: 8-bit ones as they are, all others in float32."""
    return {name: np.frombuffer(weights, np.int8, int(np.prod(tensor.shape)), tensor.begin)
            .reshape(tensor.shape).copy() if tensor.dtype == "I8"
            else np.array(float32_array(weights, tensor))
            for name, tensor in open_image(weights).items()}


def texts(card: dict[str, Any], sizes: Sequence[int] = LENGTHS, seed: int = 2) -> list[Row]:
    """Random texts of these lengths, some of them pairs."""
    return make_rows(card, [min(size, card["max_tokens"]) for size in sizes], seed)


def alone(program: Program, rows: Sequence[Row]) -> np.ndarray:
    """The logits of each text in a batch of its own."""
    return np.concatenate([program.run([row]) for row in rows])


def _built(card: dict[str, Any], weights: bytes, unit: str) -> Program:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assembly, "integer_products",
                      lambda: cpu.Products(unit, "the test wants it so"))
        return build(card, weights)
