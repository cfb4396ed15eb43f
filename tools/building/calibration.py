"""What flows into a network's products when it reads texts: inputs that quantising must keep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from model.families.table import FAMILIES
from model.program import Row
from model.programs.image import Image
from model.programs.plan import Plan

ROWS = 1024        # of a product's inputs that are kept
ROWS_OF_CALL = 32  # taken of one call, so that many texts are among them


class Recorded(NamedTuple):
    """A product as the network makes it: `names` of the weights that lie one below the other,
    `least` a bound below its inputs (see model.programs.int8), `inputs` float32 [M, K] of them, and
    the largest magnitude of each input over all tokens, float32 [K]."""

    names: tuple[str, ...]
    least: float
    inputs: Tensor
    largest: Tensor


def record(card: dict[str, Any], weights: Any, rows: Sequence[Row]) -> list[Recorded]:
    """The products that 8 bits could make, with their inputs over `rows`, computed in fp32."""
    plan, image = _RecordingPlan("fp32"), Image(weights)
    FAMILIES[card["family"]].build(card, image, plan).run(rows)
    found = []
    for made in plan.made:
        width = image.stored(f"{made.names[0]}.weight").size(1)  # without what it is filled up with
        found.append(Recorded(made.names, made.least, torch.cat(made.kept)[:ROWS, :width],
                              made.largest[:width]))
    return found


class _RecordingPlan(Plan):
    """Products that keep what they are given; those of a forced kind are left alone."""

    needs_products = True

    def __init__(self, precision: str) -> None:
        super().__init__(precision)
        self.made: list[_Recorder] = []

    def compiled(self, network: nn.Module) -> Any:
        return network.eval()

    def product(self, names: Sequence[str], weight: Tensor, bias: Tensor, least: float = 0.0,
                kind: str = "") -> nn.Module:
        made = super().product(names, weight, bias, least, kind)
        if kind:
            return made
        self.made.append(_Recorder(tuple(names), least, made))
        return self.made[-1]


class _Recorder(nn.Module):
    def __init__(self, names: tuple[str, ...], least: float, product: nn.Module) -> None:
        super().__init__()
        self.names = names
        self.least = least
        self.product = product
        self.kept: list[Tensor] = []
        self.largest: Tensor = torch.zeros(())

    def forward(self, x: Tensor) -> Tensor:
        if sum(map(len, self.kept)) < ROWS:
            stride = max(1, len(x) // ROWS_OF_CALL)
            self.kept.append(x[::stride].clone())
        self.largest = torch.maximum(self.largest, x.abs().amax(0))
        return self.product(x)
