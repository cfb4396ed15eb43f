"""From a card and its weights to a program on a device: arithmetic, shapes, graphs, self-test."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from model.device.ladder import Shape, lane_shapes
from model.device.port import Port
from model.program import Row
from model.programs.eight_bits import CodeWeights, Operators
from model.programs.graphs import CheckFailed, GraphProgram
from model.programs.image import Image
from model.programs.lanes import LanePrograms
from model.programs.script import script, settle

# Logits against the reference's. 16 bits carry about 3 decimals through a network, bf16 about 2.
SELF_TEST_TOLERANCES = {torch.float32: 1e-3, torch.float16: 0.05, torch.bfloat16: 0.3}
EIGHT_BIT_FAMILIES = ("bert", "distilbert", "electra", "albert", "roberta", "camembert",
                      "xlm-roberta")
PRECISIONS = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
# Activations in the pool of graphs, for each token of the largest: about this many hidden widths
# of 2 bytes live at once (gate, three of attention, the intermediate layer).
POOL_WIDTHS = 10
# Graphs may take this share of what is free; growth beyond it would make a neighbour fail.
FREE_SHARE = 0.5
# Each failed capture divides the cap on tokens by so much; after so many there are no graphs.
CUT_FACTOR, MOST_CUTS = 4, 3


class NoNetwork(Exception):
    """The model's family has no network for devices; CPU engines serve it."""


@dataclass(frozen=True)
class Options:
    """The operator's bounds, and `cuts`: how many captures have failed on this device before."""

    token_cap: int
    graph_bytes: int
    cuts: int = 0


def padded_network(card: dict[str, Any], image: Image, dtype: torch.dtype, port: Port,
                   operators: Operators | None = None) -> nn.Module:
    """The family's network, its weights on the device; with `operators` one of 8 bits. Raises
    NoNetwork."""
    from model.programs import padded_deberta, padded_modernbert, padded_post_norm
    from model.programs.padded import Weights
    makers: dict[str, Callable[[Weights, dict[str, Any]], nn.Module]] = {
        "bert": padded_post_norm.bert, "distilbert": padded_post_norm.distilbert_network,
        "electra": padded_post_norm.electra, "albert": padded_post_norm.albert_network,
        "roberta": padded_post_norm.Roberta, "camembert": padded_post_norm.Roberta,
        "xlm-roberta": padded_post_norm.Roberta, "mpnet": padded_post_norm.MPNet,
        "deberta-v2": padded_deberta.DebertaV2, "modernbert": padded_modernbert.ModernBert}
    if card["family"] not in makers:
        raise NoNetwork(f"models of family {card['family']} have no program for GPUs")
    settings = card["settings"]
    if operators is None:
        made = Weights(image, settings, dtype, port.capability, port.upload)
    elif card["family"] in EIGHT_BIT_FAMILIES:
        made = CodeWeights(image, settings, operators, port.capability, port.upload)
    else:
        raise NoNetwork(f"models of family {card['family']} have no program of 8 bits for GPUs")
    return makers[card["family"]](made, settings)


def build(card: dict[str, Any], images: Sequence[Any], port: Port,
          options: Options) -> LanePrograms:
    """The programs of both lanes, compared and ready to serve: in the fastest arithmetic of the
    device that answers the card's self-test as the reference does. `images` are the sealed weights
    (any buffers; those of 8 bits, if there are such, before their wide ones).

    Raises NoNetwork, CheckFailed, or what the port raises.
    """
    image = Image(*images)
    if any(image.is_quantised(name) for name in image.names()):
        raise NoNetwork("weights of 8 bits have no program for GPUs")
    settle()
    failures = []
    for dtype in port.dtypes:
        with torch.inference_mode():
            network = script(padded_network(card, image, dtype, port))
        low, high = _shapes(card, port, dtype, options)
        made = card["settings"], len(card["labels"]), card["max_tokens"]
        program = GraphProgram(port, network, dtype, low, *made)
        failure = _failure(program, card)
        if failure:
            failures.append(f"{PRECISIONS[dtype]}: {failure}")
            del network, program
            gc.collect()        # functions and program hold one another
            port.trim()
            continue
        lanes = LanePrograms(program, GraphProgram(port, network, dtype, high, *made, is_high=True))
        lanes.prepare(_is_eager(program, options))
        return lanes
    raise CheckFailed("; ".join(failures))


def _shapes(card: dict[str, Any], port: Port, dtype: torch.dtype,
            options: Options) -> tuple[list[Shape], list[Shape]]:
    settings = card["settings"]
    token_bytes = dtype.itemsize * (POOL_WIDTHS * settings["hidden_size"]
                                    + 2 * settings["intermediate"])
    budget = min(options.graph_bytes, int(port.memory()[0] * FREE_SHARE))
    cap = options.token_cap // CUT_FACTOR ** options.cuts
    return lane_shapes(card["buckets"], cap, budget, token_bytes)


def _failure(program: GraphProgram, card: dict[str, Any]) -> str:
    """What the self-test says against a program whose shapes still run as they are; empty where
    nothing does."""
    for number, case in enumerate(card["self_test"]):
        row = Row(np.array(case["ids"]), case["split"])
        found, wanted = program.run([row])[0], np.array(case["logits"])
        if not np.isfinite(found).all():
            return f"the logits of text {number} are not finite"
        worst = float(np.abs(found - wanted).max())
        allowed = SELF_TEST_TOLERANCES[program.dtype] * max(1.0, float(np.abs(wanted).max()) / 4)
        if worst > allowed:
            return f"the logits of text {number} are {worst:.2g} from the reference"
    return ""


def _is_eager(program: GraphProgram, options: Options) -> bool:
    """Whether nothing will be captured: after too many failed captures, or where the network does
    what a graph cannot hold (it is one for all shapes)."""
    return options.cuts >= MOST_CUTS or bool(program.obstacle(program.shapes[-1]))
