"""From a family's network to a program: weights made, compiled, and batches run through it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from model.programs.image import Image
from model.programs.plan import Plan
from model.programs.running import PackedProgram
from model.programs.script import settle
from model.programs.weights import Weights


def assemble(network: Callable[[Weights, dict[str, Any], int], nn.Module], card: dict[str, Any],
             image: Image, plan: Plan) -> PackedProgram:
    """The program of a prepared model.

    `network(weights, settings, labels)` makes a module that takes the arrays of packing.Packed by
    name, with (count, length) of each group in `groups`, and gives logits, float32 [B, C].
    """
    settle()
    settings = card["settings"]
    with torch.inference_mode():
        weights = Weights(image, plan, settings["layer_norm_eps"])
        made = plan.compiled(network(weights, settings, len(card["labels"])))
    return PackedProgram(card, plan, made)
