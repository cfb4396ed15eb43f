"""What each graph takes of the device, and that replays take nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from model.device.ladder import needed, shapes
from model.device.port import Graph, Port
from model.programs.on_device import POOL_WIDTHS, PRECISIONS
from tools.gpucheck.asking import ask
from tools.gpucheck.networks import Networks, random_model, rows_of
from tools.gpucheck.rig import Rig

# A driver gives out memory in pieces of this size, now and then one for its own use.
GRAIN = 2 << 20
RETURNED_SHARE = 0.9


@dataclass(frozen=True)
class Weight:
    """Bytes that one capture took: of the device, and in the allocator's blocks."""

    tokens: int
    device: int
    pool: int


class Scale:
    """A port's low lane that notes what each capture takes; programs see nothing else."""

    def __init__(self, port: Port) -> None:
        self._port, self._lane = port, port.low
        self.weights: list[Weight] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lane, name)

    def capture(self, work: Callable[[], Tensor], tokens: int) -> Graph:
        self._port.trim()       # as captures do, or what they give back would count against them
        free, held = self._port.memory()[0], self._port.held()
        graph = self._lane.capture(work, tokens)
        self.weights.append(Weight(tokens, free - self._port.memory()[0],
                                   self._port.held() - held))
        return graph


def run(rig: Rig) -> None:
    """All graphs of BERT-base."""
    model = random_model(rig.sizes.base)
    port = rig.open()
    port.low = scale = Scale(port)
    networks = Networks(port, model, port.dtypes[0])
    known = shapes(model.card["buckets"], rig.sizes.token_cap)
    program = networks.program(known)
    program.prepare()       # what a first time loads for good is no graph's
    port.flush()
    scale.weights.clear()
    free, held = port.memory()[0], port.held()
    program.prepare()
    port.seal()
    for shape, weight in zip(known, scale.weights, strict=True):
        for kind, value in (("driver", weight.device - weight.pool), ("pool", weight.pool)):
            rig.report.figure(f"graph_{kind}", value / 2**20, "MiB", model=model.name,
                              tokens=shape.length, batch=shape.batch)
    taken = sum(weight.device for weight in scale.weights)
    settings = model.card["settings"]
    planned = needed(known, networks.dtype.itemsize * (
        POOL_WIDTHS * settings["hidden_size"] + 2 * settings["intermediate"]))
    rig.report.figure("graphs", taken / 2**20, "MiB", model=model.name, graphs=len(known),
                      precision=PRECISIONS[networks.dtype], planned_mib=planned >> 20)
    rig.report.claim("graphs_are_within_plan", taken <= planned,
                     f"{len(known)} graphs take {taken / 2**20:.1f} MiB, planned were "
                     f"{planned / 2**20:.1f}")
    before = port.memory()[0], port.held()
    batches = [rows_of(shape, model.card["buckets"], model.card["vocab_size"], 0)
               for shape in known]
    for call in range(rig.sizes.replays):
        ask(program, batches[call % len(batches)], rig.clock)
    grown = before[0] - port.memory()[0], port.held() - before[1]
    rig.report.claim("replays_take_nothing", max(grown) <= GRAIN,
                     f"after {rig.sizes.replays} replays the device has {grown[0] / 2**20:.1f} MiB "
                     f"less, the allocator {grown[1] / 2**20:.1f} MiB more")
    port.flush()
    back = port.memory()[0]
    rig.report.claim("flush_gives_back", free - back <= (1 - RETURNED_SHARE) * taken + GRAIN,
                     f"of {taken / 2**20:.1f} MiB, {max(free - back, 0) / 2**20:.1f} MiB are "
                     f"not back; the allocator holds {(port.held() - held) / 2**20:.1f} MiB more")
