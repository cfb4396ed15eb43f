"""Texts a second for each graph, and as a part of what the device's products reach."""

from __future__ import annotations

from typing import Any

import torch

from model.device.ladder import Shape, shapes
from model.device.port import Port
from model.programs.lanes import LanePrograms
from model.programs.on_device import PRECISIONS
from tools.gpucheck import engine_loop
from tools.gpucheck.asking import rate
from tools.gpucheck.networks import Model, Networks, random_model, rows_of
from tools.gpucheck.rig import Rig
from tools.gpucheck.sizes import Net

PRODUCTS, ROUNDS = 20, 3


def run(rig: Rig) -> None:
    """Both networks in all shapes."""
    for net in (rig.sizes.small, rig.sizes.base):
        model = random_model(net)
        measure(rig, model, net, shapes(model.card["buckets"], rig.sizes.token_cap))


def measure(rig: Rig, model: Model, net: Net, known: list[Shape]) -> None:
    """Each shape by itself, then the engine's loop with the largest of the promised length."""
    port = rig.open()
    networks = Networks(port, model, port.dtypes[0])
    peak = product_rate(port, networks.dtype, rig.sizes.product)
    facts: dict[str, Any] = {"model": model.name, "precision": PRECISIONS[networks.dtype]}
    rig.report.figure("products", peak / 1e12, "TFLOP/s", size=rig.sizes.product, **facts)
    shape = max((one for one in known if one.length == rig.sizes.rate_length),
                key=lambda one: one.batch)
    program, high = networks.program(known), networks.program([shape], is_high=True)
    lanes = LanePrograms(program, high)
    lanes.prepare()
    for one in known:
        rows = rows_of(one, [], model.card["vocab_size"], 0)
        found = rate(program, rows, rig.sizes.rate_s, rig.clock)
        rig.report.figure("texts", found, "texts/s", tokens=one.length, batch=one.batch,
                          of_products=share(found, one.length, model, peak), **facts)
    loop = engine_loop.measure(lanes, model.card, shape, rig.sizes.loop_s)
    rig.report.figure("loop", loop.rate, "texts/s", tokens=shape.length, batch=shape.batch,
                      of_products=share(loop.rate, shape.length, model, peak), **facts)
    rig.report.claim("loop_answers_right", loop.differing == 0 and loop.answered > 0,
                     f"{model.name}: {loop.differing} of {loop.answered} batches through the "
                     "engine's loop were answered otherwise than by the program itself")
    rig.report.target("loop_is_fast", loop.rate >= net.promised,
                      f"{model.name} at {shape.length} tokens: {loop.rate:.0f} texts/s through "
                      f"the engine's loop; promised {net.promised}, aimed at {net.aimed}")
    port.flush()


def product_rate(port: Port, dtype: torch.dtype, size: int) -> float:
    """Operations a second of a large square product, 2 · size³ each: the best of some rounds."""
    generator = torch.Generator().manual_seed(0)
    left, right = (port.upload(torch.randn(size, size, generator=generator).to(dtype))
                   for _ in range(2))
    output = port.empty((size, size), dtype)

    def work() -> torch.Tensor:
        return torch.mm(left, right, out=output)

    port.low.warm(work)
    begin, end = port.low.event(), port.low.event()
    taken_ms = []
    for _ in range(ROUNDS):
        begin.record()
        for _ in range(PRODUCTS):
            port.low.run(work)
        end.record()
        port.wait()
        taken_ms.append(end.ms_since(begin))
    return 2 * size**3 * PRODUCTS / (min(taken_ms) / 1e3)


def share(texts_a_second: float, length: int, model: Model, peak: float) -> float:
    """The part of `peak` that so many texts of `length` tokens are: of multiplications alone."""
    settings = model.card["settings"]
    hidden, inner = settings["hidden_size"], settings["intermediate"]
    a_text = settings["layers"] * (2 * length * (4 * hidden**2 + 2 * hidden * inner)
                                   + 4 * length**2 * hidden)
    return round(texts_a_second * a_text / peak, 4)
