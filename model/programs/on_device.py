"""From a card and its weights to a program on a device: precisions, gates, shapes, graphs.

A precision is tried where the device has it, and served where it passes the gate; of several that
pass the fastest serves. 8 bits are tried unasked only of a bundle that tools.build saw pass in 8
bits over many texts: the few of a self-test could not tell what they cost.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from model.device.ladder import Shape, lane_shapes
from model.device.port import Port
from model.programs.device_choice import Choice, decide
from model.programs.device_gate import answers_fault, products_fault
from model.programs.eight_bits import CODES, CodeWeights, Operators
from model.programs.graphs import CheckFailed, GraphProgram
from model.programs.image import Image
from model.programs.lanes import LanePrograms
from model.programs.operators import Unfit, find
from model.programs.script import script, settle

EIGHT_BIT_FAMILIES = ("bert", "distilbert", "electra", "albert", "roberta", "camembert",
                      "xlm-roberta", "mpnet", "deberta-v2")
PRECISIONS = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
# Activations in the pool of graphs, for each token of the largest: about this many hidden widths
# of 2 bytes live at once (gate, three of attention, the intermediate layer).
POOL_WIDTHS = 10
# Of 8 bits, intermediate widths of 4 bytes: sums, what they are made of, and their codes.
SUM_WIDTHS = 4
# Graphs may take this share of what is free; growth beyond it would make a neighbour fail.
FREE_SHARE = 0.5
# Of a graph, where precisions are compared; the fastest counts.
TIMED_REPLAYS = 5
# Each failed capture divides the cap on tokens by so much; after so many there are no graphs.
CUT_FACTOR, MOST_CUTS = 4, 3


class NoNetwork(Exception):
    """This model has no program for this device, or not in the precision that was asked for; CPU
    engines serve it."""


@dataclass(frozen=True)
class Options:
    """The operator's bounds and `precision`, "auto" or the only one to serve in; and `cuts`: how
    many captures have failed on this device before."""

    token_cap: int
    graph_bytes: int
    cuts: int = 0
    precision: str = "auto"


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


@dataclass(eq=False)
class _Candidate:
    """A precision that passed the gate; `program` is the low lane's."""

    precision: str
    network: Any
    dtype: torch.dtype
    program: GraphProgram
    high_shapes: list[Shape]
    operators: tuple[str, ...] = ()


def build(card: dict[str, Any], images: Sequence[Any], port: Port,
          options: Options) -> LanePrograms:
    """The programs of both lanes, compared and ready to serve; `choice` says in which precision,
    and why. `images` are the sealed weights (any buffers; those of 8 bits, if there are such,
    before their wide ones).

    Raises NoNetwork, CheckFailed, or what the port raises.
    """
    image = Image(*images)
    if any(image.is_quantised(name) for name in image.names()):
        raise NoNetwork("weights of 8 bits alone have no program for GPUs")
    settle()
    gate = _Gate(card, image, port, options)
    found = gate.forced(options.precision) if options.precision != "auto" else gate.all()
    times, why = {}, "asked for with --precision"
    if options.precision == "auto":
        why = "the fastest of this device that answers the self-test as the reference does"
    if len(found) > 1:
        times = gate.times(found)
        best, why = decide(times)
        found = [candidate for candidate in found if candidate.precision == best]
    (chosen,) = found
    made = gate.made
    high = GraphProgram(port, chosen.network, chosen.dtype, chosen.high_shapes, *made, is_high=True)
    lanes = LanePrograms(chosen.program, high)
    lanes.prepare(_is_eager(chosen.program, options))
    refused = "".join(f"; {name} is not served: {fault}" for name, fault in gate.refused.items())
    lanes.choice = Choice(chosen.precision, why + refused, chosen.operators, times, gate.refused)
    return lanes


class _Gate:
    """Makes candidates for one model on one device; `refused` says why others are none."""

    def __init__(self, card: dict[str, Any], image: Image, port: Port, options: Options) -> None:
        self._card, self._image, self._port, self._options = card, image, port, options
        self.made = card["settings"], len(card["labels"]), card["max_tokens"]
        self.refused: dict[str, str] = {}

    def all(self) -> list[_Candidate]:
        """The first wide precision that passes, and those of 8 bits that do. Raises CheckFailed
        where none does."""
        wide = next(filter(None, map(self._wide, self._port.dtypes)), None)
        if wide is None:
            raise CheckFailed("; ".join(f"{name}: {why}" for name, why in self.refused.items()))
        card = self._card
        if "tolerances" not in card or "int8" not in card["precisions"] \
                or card["family"] not in EIGHT_BIT_FAMILIES:
            return [wide]
        return [wide, *filter(None, (self._eight_bits(kind, wide.dtype)
                                     for kind in self._port.eight_bits))]

    def forced(self, precision: str) -> list[_Candidate]:
        """The one precision that was asked for. Raises NoNetwork where it cannot be had."""
        port = self._port
        if precision in CODES:
            found = next(filter(None, (self._eight_bits(precision, dtype) for dtype in port.dtypes)
                                if precision in port.eight_bits else ()), None)
        else:
            found = next(filter(None, (self._wide(dtype) for dtype in port.dtypes
                                       if PRECISIONS[dtype] == precision)), None)
        if found is None:
            why = self.refused.get(precision, "this device does not compute it")
            raise NoNetwork(f"{precision} was asked for and is not served: {why}")
        self.refused.clear()        # of other types beside the codes
        return [found]

    def times(self, found: list[_Candidate]) -> dict[str, list[tuple[int, int, float]]]:
        """What each took, by precision; those whose graphs are wrong are left out. All graphs are
        dropped again: on one lane only all of them can be."""
        times = {}
        for candidate in found:
            program = candidate.program
            try:
                program.prepare(frozenset(program.shapes) if _is_eager(program, self._options)
                                else frozenset(), TIMED_REPLAYS)
                times[candidate.precision] = program.costs()
            except CheckFailed as error:
                if candidate is found[0]:
                    raise
                self.refused[candidate.precision] = str(error)
            self._port.flush()
        return times

    def _wide(self, dtype: torch.dtype) -> _Candidate | None:
        with torch.inference_mode():
            network = padded_network(self._card, self._image, dtype, self._port)
        return self._judged(PRECISIONS[dtype], dtype, network)

    def _eight_bits(self, kind: str, dtype: torch.dtype) -> _Candidate | None:
        settings, port = self._card["settings"], self._port
        try:
            with torch.inference_mode():
                operators = find(kind, dtype, port, settings["hidden_size"],
                                 settings["intermediate"])
                network = padded_network(self._card, self._image, dtype, port, operators)
                fault = products_fault(network, self._image, operators, port)
        except Unfit as error:
            fault = str(error)
        if fault:
            self.refused[kind] = fault
            return None
        return self._judged(kind, dtype, network, operators.report)

    def _judged(self, precision: str, dtype: torch.dtype, network: nn.Module,
                report: tuple[str, ...] = ()) -> _Candidate | None:
        compiled = script(network)
        low, high = self._shapes(dtype, bool(report))
        program = GraphProgram(self._port, compiled, dtype, low, *self.made)
        fault = answers_fault(program, self._card, precision)
        if not fault:
            return _Candidate(precision, compiled, dtype, program, high, report)
        self.refused[precision] = fault
        del network, compiled, program
        gc.collect()            # functions and program hold one another
        self._port.trim()
        return None

    def _shapes(self, dtype: torch.dtype, has_sums: bool) -> tuple[list[Shape], list[Shape]]:
        settings, options = self._card["settings"], self._options
        token_bytes = dtype.itemsize * (POOL_WIDTHS * settings["hidden_size"]
                                        + 2 * settings["intermediate"])
        if has_sums:
            token_bytes += 4 * SUM_WIDTHS * settings["intermediate"]
        budget = min(options.graph_bytes, int(self._port.memory()[0] * FREE_SHARE))
        cap = options.token_cap // CUT_FACTOR ** options.cuts
        return lane_shapes(self._card["buckets"], cap, budget, token_bytes)


def _is_eager(program: GraphProgram, options: Options) -> bool:
    """Whether nothing will be captured: after too many failed captures, or where the network does
    what a graph cannot hold (it is one for all shapes)."""
    return options.cuts >= MOST_CUTS or bool(program.obstacle(program.shapes[-1]))
