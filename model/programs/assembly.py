"""From a family's network to a program: weights made, compiled, and batches run through it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from model.native import assembly as native
from model.native.outline import Outline
from model.program import Program
from model.programs.image import Image
from model.programs.plan import Plan
from model.programs.running import PackedProgram
from model.programs.script import settle
from model.programs.weights import Weights


def assemble(network: Callable[[Weights, dict[str, Any], int], nn.Module], card: dict[str, Any],
             image: Image, plan: Plan,
             outline: Callable[[dict[str, Any]], Outline | None] | None = None) -> Program:
    """The program of a prepared model: machine code of our own where that is there for this CPU and
    for what `outline(settings)` says of the network, else torch's operators.

    `network(weights, settings, labels)` makes a module that takes the arrays of packing.Packed by
    name, with (count, length) of each group in `groups`, and gives logits, float32 [B, C].
    """
    settle()
    settings = card["settings"]
    outlined = outline(settings) if outline else None
    if outlined and not plan.needs_products \
            and native.is_fit(settings, outlined, plan.precision):
        with contextlib.suppress(OSError):  # a system that runs no file in memory
            return native.program(card, image, outlined, plan.precision)
    with torch.inference_mode():
        weights = Weights(image, plan, settings["layer_norm_eps"])
        made = plan.compiled(network(weights, settings, len(card["labels"])))
    return PackedProgram(card, plan, made)
