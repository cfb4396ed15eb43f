"""Logits to scores (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, fsum, inf, isfinite

FUNCTIONS = ("softmax", "sigmoid", "none")


def scores(logits: Sequence[float], function: str) -> list[float]:
    """The scores of one text, in the order of its logits.

    "softmax" sums to 1 over all labels, "sigmoid" is each label alone, "none" gives the logits
    back. No finite logit overflows. Example: softmax of [-50, 40] is [8.2e-40, 1.0].
    Raises ValueError for a logit that is NaN or infinite: there is no honest score for it.
    """
    if len(logits) == 2 and function == "softmax":
        # Most models, in less time and to the same bits: the larger power is exp(0).
        ahead = logits[0] - logits[1]
        if abs(ahead) < inf:
            power = exp(-abs(ahead))
            more, less = 1.0 / (1.0 + power), power / (1.0 + power)
            return [more, less] if ahead >= 0.0 else [less, more]
    if not all(map(isfinite, logits)):
        raise ValueError(f"the logits {list(logits)} are not all finite")
    if function == "softmax":
        top = max(logits)
        powers = [exp(logit - top) for logit in logits]
        total = fsum(powers)
        return [power / total for power in powers]
    if function == "sigmoid":
        return [_sigmoid(logit) for logit in logits]
    if function == "none":
        return list(logits)
    raise ValueError(f"score function {function!r} is not one of {', '.join(FUNCTIONS)}")


def _sigmoid(logit: float) -> float:
    if logit >= 0:
        return 1 / (1 + exp(-logit))
    power = exp(logit)
    return power / (1 + power)
