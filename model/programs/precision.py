"""Which precision is served: what this CPU can compute, and which of several is the fastest."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from model.program import Program, Row
from model.programs.probe import make_random, seconds
from model.programs.script import settle

TIMED_TEXTS, TIMED_LENGTH = 16, 16
TIMED_REPEATS = 7
CLEARLY = 0.95       # of the time of the more exact one before it: noise must not choose
PROBED = (768, 768)  # a product's weight, for comparing bf16 with fp32


def check_computable(precision: str) -> None:
    """Raises ArithmeticError, in a sentence, for a precision that gains nothing on this CPU."""
    if precision != "bf16":
        return
    settle()
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        raise ArithmeticError("this CPU has no bfloat16 instructions; use --precision fp32 or fp16")
    fp32, bf16 = seconds([make_random("fp32", "mkl-transposed", *PROBED),
                          make_random("bf16", "onednn-bf16", *PROBED)])
    if bf16 > fp32:
        raise ArithmeticError(f"this CPU computes bf16 {bf16 / fp32:.1f} times slower than fp32; "
                              "use --precision fp32 or fp16")


def choose(card: dict[str, Any], build: Callable[[dict[str, Any]], Program]) -> dict[str, Any]:
    """The card with its "precision" decided among its "precisions", and "precision_why".

    `build` makes the program of a card. Several precisions are timed with a batch of short texts
    through two layers, one as all others and the last; they are given with the most exact first,
    and one after it must be clearly faster. Raises ArithmeticError where the only one that is left
    cannot be computed here.
    """
    precisions, layers = card["precisions"], card["settings"].get("layers", 1)
    if len(precisions) == 1:
        check_computable(precisions[0])
        return card
    few = {**card["settings"], "layers": min(layers, 2)}
    took: dict[str, float] = {}
    best = precisions[0]
    for precision in precisions:
        try:
            check_computable(precision)
            program = build({**card, "precision": precision, "settings": few})
        except ArithmeticError:  # no kernel of this CPU, as for 8-bit weights without VNNI
            continue
        took[precision] = _batch_ms(program)
        if took[precision] < took[best] * CLEARLY:
            best = precision
    times = ", ".join(f"{precision} {ms:.2f}" for precision, ms in took.items())
    return {**card, "precision": best, "precision_why":
            f"of what passed the gate the fastest here, where a less exact one must win by "
            f"{1 - CLEARLY:.0%}: {times} ms for {TIMED_TEXTS * TIMED_LENGTH} tokens through "
            f"{few['layers']} of {layers} layers"}


def _batch_ms(program: Program) -> float:
    rows = [Row(np.zeros(TIMED_LENGTH, dtype=np.int64), TIMED_LENGTH)] * TIMED_TEXTS
    took: list[float] = []
    for _ in range(TIMED_REPEATS):
        begin = time.thread_time()
        program.run(rows)
        took.append(time.thread_time() - begin)
    return min(took) * 1e3
