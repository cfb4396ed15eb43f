"""CTranslate2 as a contender: it packs tokens itself, so a call's rows need no padding."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.peers.calls import Call
from bench.peers.padding import stacked


class CTranslate2:
    """An encoder with its pooler on one thread; the classifier behind it is numpy's."""

    modes = ("alone", "128", "256", "512", "1024", "4096", "whole")

    def __init__(self, path: Path, kind: str, head: tuple[np.ndarray, np.ndarray],
                 max_tokens: int) -> None:
        self._library = importlib.import_module("ctranslate2")
        self._encoder = self._library.Encoder(str(path), device="cpu", compute_type=kind,
                                              inter_threads=1, intra_threads=1)
        self._weight, self._bias = head
        self.name = f"CTranslate2 {self._library.__version__} {kind}"
        self.max_tokens = max_tokens

    def run(self, rows: Sequence[np.ndarray], calls: Sequence[Call]) -> np.ndarray:
        """Logits, float32 [B, C]."""
        found = []
        for call in calls:
            answer = self._encoder.forward_batch([rows[row].tolist() for row in call.rows])
            pooled = answer.pooler_output
            if pooled.dtype != self._library.DataType.float32:
                pooled = pooled.to(self._library.DataType.float32)
            found.append(np.asarray(pooled) @ self._weight.T + self._bias)
        return stacked(found, calls)


def load(contender: str, folder: str, cache: str, texts: Sequence[np.ndarray]) -> CTranslate2:
    """`contender` is ct2- and a compute type: ct2-int8, ct2-float32, ct2-int8_bfloat16 ..."""
    kind = contender.split("-")[1]
    stored = "int8" if kind.startswith("int8") else "float32"
    path = Path(cache) / f"ct2-{stored}"
    if not path.is_dir():
        transformers = importlib.import_module("ctranslate2.converters.transformers")
        transformers.TransformersConverter(folder).convert(
            str(path), quantization=None if stored == "float32" else stored)
    tensors = importlib.import_module("safetensors.numpy").load_file(
        Path(folder) / "model.safetensors")
    head = (tensors["classifier.weight"].astype(np.float32),
            tensors["classifier.bias"].astype(np.float32))
    config = json.loads((Path(folder) / "config.json").read_text("utf-8"))
    return CTranslate2(path, kind, head, config["max_position_embeddings"])
