"""Which of several precisions a device serves in, by how long each shape took (pure)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

# Of the time of the more exact ones before it: noise must not choose.
CLEARLY = 0.95
# (texts, tokens, ms) of each shape, as Program.costs gives them.
Costs = Sequence[tuple[int, int, float]]


@dataclass(frozen=True)
class Choice:
    """What a device serves in and why; `operators` are what it computes 8 bits with, a line each;
    `times` what each precision took that passed the gate, where there were several; `refused` why
    others are not served."""

    precision: str
    why: str
    operators: tuple[str, ...] = ()
    times: Mapping[str, Costs] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)


def decide(times: Mapping[str, Costs]) -> tuple[str, str]:
    """(the precision to serve in, why) of the costs by precision, the most exact first.

    The least geometric mean over the shapes that all have wins; a less exact one must win clearly.
    """
    took = {name: {(texts, tokens): max(ms, 1e-9) for texts, tokens, ms in costs}
            for name, costs in times.items()}
    shapes = sorted(set.intersection(*map(set, took.values())), key=lambda shape: shape[1])
    first = next(iter(took))
    ratios = {name: math.exp(sum(math.log(one[shape] / took[first][shape]) for shape in shapes)
                             / len(shapes)) for name, one in took.items()}
    best = first
    for name, ratio in ratios.items():
        if ratio < ratios[best] * CLEARLY:
            best = name
    shares = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
    ends = "; ".join(
        f"{texts} × {tokens // texts} tokens "
        + ", ".join(f"{name} {one[texts, tokens]:.3f}" for name, one in took.items()) + " ms"
        for texts, tokens in dict.fromkeys((shapes[0], shapes[-1])))
    return best, (f"of what passed the gate the fastest on this device, where a less exact one "
                  f"must win by {1 - CLEARLY:.0%}: {shares} of {first}'s time over {len(shapes)} "
                  f"shapes; {ends}")
