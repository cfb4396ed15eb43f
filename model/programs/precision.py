"""Which precision is served: what this CPU can compute, and which of several is the fastest."""

from __future__ import annotations

import time
from collections.abc import Callable
from operator import truediv
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch

from model.program import Program, Row
from model.programs.probe import make_random, seconds
from model.programs.script import settle

TIMED_LENGTH = 16
ALONE, COMPANY = 1, 16  # texts of a batch: a lone client's, and a busy server's
FEWEST_LAYERS = 2       # one as all others and the last, which computes first tokens only
# Weights of more than a core's own cache, in 8 bits: in service each layer's come from further
# away, which is most of what one text costs. Two layers of MiniLM stay, and said little of that.
CACHED_BYTES = 8 << 20
TIMED_ROUNDS = 12
HOPELESS = 2.0          # times as slow (`Times.over`) in the first rounds: timed no further
FIRST_ROUNDS = 2
CLEARLY = 0.95          # `Times.over` the more exact one before it: noise must not choose
PROBED = (768, 768)     # a product's weight, for comparing bf16 with fp32


class Times(NamedTuple):
    """Milliseconds of one program, round by round."""

    alone: list[float]
    company: list[float]

    def over(self, other: Times) -> float:
        """How many times as slow as another, for one text and for a batch, multiplied: 0.5 for one
        and 2 for a batch make 1. Times of one round are compared, for the machine's speed drifts.
        """
        return median(map(truediv, self.alone, other.alone)) * \
            median(map(truediv, self.company, other.company))


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

    `build` makes the program of a card. Several precisions are timed through some layers, with one
    short text and with a batch of them; they are given with the most exact first, and one after it
    must be clearly faster. Raises ArithmeticError where none can be computed here.
    """
    precisions, settings = card["precisions"], card["settings"]
    if len(precisions) == 1:
        check_computable(precisions[0])
        return card
    layers = settings.get("layers", 1)
    few = {**settings, "layers": min(layers, _enough_layers(settings))}
    programs: dict[str, Program] = {}
    refusal = ArithmeticError()
    for precision in precisions:
        try:
            check_computable(precision)
            programs[precision] = build({**card, "precision": precision, "settings": few})
        except ArithmeticError as error:  # no kernel of this CPU, as for 8-bit weights without VNNI
            refusal = error
    if not programs:
        raise refusal
    took = _race(programs)
    times = ", ".join(f"{precision} {median(found.alone):.2f} and {median(found.company):.2f}"
                      for precision, found in took.items())
    return {**card, "precision": _best(took), "precision_why":
            f"of what passed the gate the fastest here for one text and for {COMPANY} together, "
            f"where a less exact one must win by {1 - CLEARLY:.0%} in both multiplied: {times} ms "
            f"for texts of {TIMED_LENGTH} tokens through {few['layers']} of {layers} layers"}


def _enough_layers(settings: dict[str, Any]) -> int:
    hidden = settings.get("hidden_size", 0)
    layer_bytes = hidden * (4 * hidden + 2 * settings.get("intermediate", 0))
    return max(FEWEST_LAYERS, -(-CACHED_BYTES // layer_bytes) if layer_bytes else 0)


def _race(programs: dict[str, Program]) -> dict[str, Times]:
    """The CPU time of each program; the hopeless leave after some rounds, others need more.

    They go by turns, so that a busy moment hits all alike, and so that one text finds weights as
    cold as in service: there the layers after them have pushed them out of the core's own cache,
    here another program's batch. (Reading 8 MB of something else before each call makes Python's
    code cold too, which hides half of the difference and is as noisy.) First calls compile.
    """
    batches = [[Row(np.zeros(TIMED_LENGTH, dtype=np.int64), TIMED_LENGTH)] * texts
               for texts in (ALONE, COMPANY)]
    for program in programs.values():
        for rows in batches:
            program.run(rows)
    took = {precision: Times([], []) for precision in programs}
    running = list(programs)
    for turn in range(TIMED_ROUNDS):
        if turn == FIRST_ROUNDS:
            best = took[_best(took)]
            running = [name for name in running if took[name].over(best) < HOPELESS]
        for precision in running:
            for rows, times in zip(batches, took[precision]):
                begin = time.thread_time()
                programs[precision].run(rows)
                times.append((time.thread_time() - begin) * 1e3)
    return took


def _best(took: dict[str, Times]) -> str:
    """The most exact one of the fastest."""
    best, *rest = took
    for precision in rest:
        if took[precision].over(took[best]) < CLEARLY:
            best = precision
    return best
