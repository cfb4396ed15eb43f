"""Our own programs as contenders: one for each precision that this machine and model offer."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.quantised import is_quantised, quantised
from bench.rounds import Burst, time_runs
from loader.prepare import map_file, open_card, prepare, seal
from loader.safetensors import float32_array, open_image
from loader.tokenizers.table import open_tokenizer
from model.families.table import FAMILIES, build
from model.program import Program, Row

PRECISIONS = ("fp32", "fp16", "bf16", "int8")


class Model:
    """The card, weights and tokeniser of a checkpoint or bundle, held as the server holds them."""

    def __init__(self, folder: str) -> None:
        """CheckpointError where the folder is not one that is served."""
        self.folder = folder
        self.name = Path(folder).resolve().name
        files = seal(prepare(folder, self.name, FAMILIES))
        self.card: dict[str, Any] = open_card(files.card_fd)
        self.weights: mmap.mmap = map_file(files.weights_fd)
        # What a bundle has in 8 bits, as the other precisions need it.
        self.wide = None if files.wide_fd is None else map_file(files.wide_fd)
        self._tokenizer = open_tokenizer(map_file(files.tokenizer_fd))
        files.close()

    def tensors(self) -> dict[str, np.ndarray]:
        """All weights by canonical name, float32."""
        return {name: float32_array(image, tensor) for image in (self.weights, self.wide) if image
                for name, tensor in open_image(image).items()}

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The token ids of each text, int64, cut at the model's max_tokens."""
        limit = self.card["max_tokens"]
        return [np.array(self._tokenizer.encode(text, None, limit).ids, np.int64)
                for text in texts]


class Unoffered(Exception):
    """A precision that cannot be measured here; the text is a sentence."""


class Ours:
    """A bench.rounds.Contender: the server's program of one precision."""

    modes = ("whole",)

    def __init__(self, model: Model, precision: str) -> None:
        """Unoffered where this machine or the model's program does not have the precision."""
        self.key = precision
        try:
            self._program = _build(model, precision)
        except (ArithmeticError, RuntimeError, ValueError) as error:
            raise Unoffered(f"{precision} is left out: {error}") from error
        self._program.warm()
        self.kernels: dict[str, str] = self._program.facts["kernels"]
        served = " + ".join(dict.fromkeys(self.kernels.values()))
        self.name = f"Firebrick {precision} ({served})"

    def run(self, rows: Sequence[np.ndarray], mode: str, repeats: int) -> Burst:
        """A bench.rounds.Burst; `whole` gives the program all rows at once, `alone` one by one."""
        rows = [Row(row, len(row)) for row in rows]
        calls = [[row] for row in rows] if mode == "alone" else [rows]
        return time_runs(lambda: np.concatenate([self._program.run(call) for call in calls]),
                         repeats)


def _build(model: Model, precision: str) -> Program:
    card = {**model.card, "precision": precision}
    if precision != "int8" or is_quantised(model.weights):
        return build(card, model.weights, model.wide)
    try:
        return build(card, quantised(model.weights, 8))
    except ArithmeticError:  # no kernel here is exact with 8 bits
        return build(card, quantised(model.weights, 7))
