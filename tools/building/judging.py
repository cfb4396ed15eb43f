"""Quantises a model and judges each precision of it by the programs that would serve."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from loader.safetensors import file_bytes, float32_array, open_image
from model.families.table import build
from model.program import Program, Row
from model.programs.plan import Plan
from model.programs.precision import check_computable
from model.programs.probe import choose
from model.programs.script import settle
from tools.building.calibration import Recorded, record
from tools.building.gate import Judgement, compare, keeps_company
from tools.building.layers import Layer, output_error, quantise_layers, rounding_error

OTHERS = ("fp16", "bf16")
PART = 64              # texts between two lines of progress, at the least
TELL_S = 2.0
INVARIANCE_TEXTS = 48
PROBED = (384, 384)    # of the product that says whether this CPU takes 8-bit weights


class Judge:
    """fp32's answers to the texts, `expected` float32 [texts, C], and the others beside them;
    `judgement_fp32` is of fp32 itself: its accuracy, and whether a text's company counts."""

    def __init__(self, card: dict[str, Any], weights: Any, rows: Sequence[Row],
                 labels: Sequence[int] | None, tell: Callable[[str], None]) -> None:
        settle()
        self._card, self._weights = card, weights
        self._rows, self._labels, self._tell = list(rows), labels, tell
        self._recorded: list[Recorded] = []
        program = build({**card, "precision": "fp32"}, weights)
        self.expected = self._answers("fp32", program)
        self.judgement_fp32 = self._compared(program, self.expected)

    def quantise(self, calibration: Sequence[Row], bits: int | None
                 ) -> tuple[dict[str, np.ndarray], dict[str, str], int]:
        """(the tensors of int8.safetensors, precision by product, bits of the weights)."""
        bits = bits or _bits_here()
        with torch.inference_mode():
            self._recorded = record(self._card, self._weights, calibration)
            layers = quantise_layers(self._recorded, self._weights, bits, self._tell)
        kinds = _kinds(layers)
        arrays: dict[str, np.ndarray] = {}
        for layer in layers:
            if all(kinds[name] == "int8" for name in layer.names):
                arrays |= layer.arrays
        return arrays, kinds, bits

    def judge_all(self, quantised: Mapping[str, np.ndarray]) -> dict[str, Judgement]:
        """Every precision that this CPU can compute, but fp32."""
        judgements = {}
        for precision in OTHERS:
            try:
                check_computable(precision)
                program = build({**self._card, "precision": precision}, self._weights)
            except ArithmeticError as error:
                self._tell(f"{precision} is not judged: {error}")
                continue
            judgements[precision] = self._judge(precision, program)
        return {**judgements, "int8": self.judge_int8(quantised)}

    def judge_int8(self, quantised: Mapping[str, np.ndarray]) -> Judgement:
        """The program of these very tensors, and the worst of its products."""
        arrays = {name: float32_array(self._weights, tensor)
                  for name, tensor in open_image(self._weights).items()}
        image = file_bytes({**arrays, **quantised})
        program = build({**self._card, "precision": "int8"}, image)
        plan, errors, ratios = Plan("int8"), [0.0], [0.0]
        with torch.inference_mode():
            for product in self._recorded:
                if f"{product.names[0]}.scales" in quantised:
                    errors.append(output_error(product, self._weights, quantised, plan))
                    explained = rounding_error(product, self._weights, quantised)
                    ratios.append(errors[-1] / max(explained, 1e-30))
        return self._judge("int8", program)._replace(
            worst_product_error=max(errors), worst_rounding=max(ratios))

    def _judge(self, precision: str, program: Program) -> Judgement:
        return self._compared(program, self._answers(precision, program))

    def _compared(self, program: Program, found: np.ndarray) -> Judgement:
        some = self._rows[:INVARIANCE_TEXTS]
        return compare(self.expected, found, self._card["function"], self._labels)._replace(
            is_invariant=keeps_company(program, some, found[:len(some)]))

    def _answers(self, precision: str, program: Program) -> np.ndarray:
        """Logits of all rows, with progress."""
        program.warm()
        found, begin, told = [], time.monotonic(), time.monotonic()
        for at in range(0, len(self._rows), PART):
            found.append(program.run(self._rows[at:at + PART]))
            now = time.monotonic()
            if now - told > TELL_S:
                told, done = now, min(at + PART, len(self._rows))
                rate = done / (now - begin)
                self._tell(f"{precision}: {done} of {len(self._rows)} texts, {rate:.0f} a second, "
                           f"{(len(self._rows) - done) / rate:.0f} s left")
        return np.concatenate(found)


def _kinds(layers: Sequence[Layer]) -> dict[str, str]:
    """Precision by product. Some lie one below the other in one place and alone in another: where
    one stays wide, all do that lie with it anywhere."""
    kinds = {name: "int8" for layer in layers for name in layer.names}
    wide = {name for layer in layers if layer.is_wide for name in layer.names}
    while wide:
        kinds |= dict.fromkeys(wide, "fp32")
        wide = {name for layer in layers for name in layer.names
                if kinds[name] == "int8" and any(kinds[other] == "fp32" for other in layer.names)}
    return kinds


def _bits_here() -> int:
    """8 where a kernel of this CPU multiplies 8-bit weights exactly, else 7."""
    try:
        choose("int8", *PROBED)
    except ArithmeticError:
        return 7
    return 8
