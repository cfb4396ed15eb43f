"""The gate: what a precision must keep of fp32 before anyone may be served in it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

AGREEMENT = 0.99      # of decisions, with fp32
ACCURACY_LOSS = 0.004  # at most, of the share of right decisions
# Of a product's output, relative, root mean square: 8 bits cost about 1 %, 7 bits 2 %, 4 bits 14 %
# where inputs are as random as weights; where they are not, all of them less.
ERROR_LIMIT = 0.05
ROUNDING_LIMIT = 2.0  # times what rounding to 7 bits explains: honest products have 0.8 to 1.2
ROWS_NEEDED = 500     # labelled texts; of fewer, one text weighs more than the loss that is allowed
CLEAR_MARGIN = 0.5    # between the two largest logits: such a decision should not change
INTERVAL = 1.96       # standard errors to either side: 95 %


class Judgement(NamedTuple):
    """One precision against fp32 over the same texts; shares are of 1."""

    texts: int
    agreement: float
    mean_difference: float
    largest_difference: float
    clear_decisions_changed: int
    is_invariant: bool = True
    accuracy: float | None = None
    accuracy_fp32: float | None = None
    interval: tuple[float, float] | None = None
    """Of accuracy - accuracy_fp32, paired, 95 %."""
    worst_product_error: float | None = None
    worst_rounding: float | None = None
    """Of a product's error, as a multiple of what rounding to 7 bits explains."""

    def faults(self) -> list[str]:
        """Why it does not pass, in words; [] where it passes."""
        found = []
        if not self.agreement >= AGREEMENT:
            found.append(f"it agrees with fp32 on {self.agreement:.2%} of the texts, "
                         f"{AGREEMENT:.0%} are needed")
        if self.accuracy is not None and self.accuracy < self.accuracy_fp32 - ACCURACY_LOSS:
            found.append(f"its accuracy is {self.accuracy:.2%}, fp32's {self.accuracy_fp32:.2%}: "
                         f"more than {ACCURACY_LOSS:.1%} below")
        if self.worst_product_error is not None and not self.worst_product_error <= ERROR_LIMIT:
            found.append(f"a product's output is {self.worst_product_error:.1%} off, "
                         f"{ERROR_LIMIT:.0%} are allowed")
        if self.worst_rounding is not None and not self.worst_rounding <= ROUNDING_LIMIT:
            found.append(f"a product's output is {self.worst_rounding:.1f} times as far off as "
                         f"rounding explains, {ROUNDING_LIMIT:g} times is allowed")
        if not self.is_invariant:
            found.append("a text's answer depends on its company")
        if not math.isfinite(self.largest_difference):
            found.append("a logit is not finite")
        return found


def compare(expected: np.ndarray, found: np.ndarray, function: str,
            labels: Sequence[int] | None = None) -> Judgement:
    """Compares logits, float32 [texts, C], with fp32's.

    A decision is the largest logit, or for "sigmoid" each label's side of 0, or for "none" (a
    regression) a value within a twentieth of fp32's spread. `labels` are the true classes.
    """
    difference = np.abs(found - expected)
    agree = _agreement(expected, found, function)
    margins = np.sort(expected, axis=1)
    clear = margins[:, -1] - margins[:, -2] >= CLEAR_MARGIN if expected.shape[1] > 1 else \
        np.zeros(len(expected), bool)
    changed = int((clear & (expected.argmax(1) != found.argmax(1))).sum()) \
        if function == "softmax" else 0
    judgement = Judgement(len(expected), float(agree), float(difference.mean()),
                          float(difference.max()), changed)
    if labels is None or function != "softmax":
        return judgement
    truth = np.asarray(labels)
    right, right_fp32 = found.argmax(1) == truth, expected.argmax(1) == truth
    paired = right.astype(float) - right_fp32.astype(float)
    half = INTERVAL * paired.std() / math.sqrt(len(paired))
    return judgement._replace(
        accuracy=float(right.mean()), accuracy_fp32=float(right_fp32.mean()),
        interval=(float(paired.mean() - half), float(paired.mean() + half)))


def keeps_company(program: Any, rows: Sequence[Any], together: np.ndarray) -> bool:
    """True if some of the rows, each alone and then in the other order, are answered by the same
    bits as `together` has for all of them."""
    alone = np.concatenate([program.run([row]) for row in rows])
    return np.array_equal(alone, together) and \
        np.array_equal(program.run(rows[::-1]), together[::-1])


def _agreement(expected: np.ndarray, found: np.ndarray, function: str) -> float:
    if function == "softmax":
        return (expected.argmax(1) == found.argmax(1)).mean()
    if function == "sigmoid":
        return ((expected > 0) == (found > 0)).mean()
    return (np.abs(found - expected) <= expected.std() / 20).mean()
