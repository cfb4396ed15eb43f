"""A full device under a program: graphs go on, the rest is told as a shortage and then goes on."""

from __future__ import annotations

import numpy as np

from model.device.ladder import Shape, shapes
from model.device.port import DeviceBroken, OutOfMemory
from model.programs.graphs import TOLERANCES, GraphProgram
from tools.gpucheck.filling import filler, wait_for_room
from tools.gpucheck.networks import Networks, random_model, rows_of
from tools.gpucheck.rig import Rig

REPLAYS = 20
# What a launch without a graph needs on a recorded device: the first try and the one after trim.
FAULTS = "once run memory\nonce run memory\n"
PATIENCE_S = 5.0


def run(rig: Rig) -> None:
    """Graphs and functions as they are, before, while and after another process has it all."""
    model = random_model(rig.sizes.small)
    port = rig.open()
    networks = Networks(port, model, port.dtypes[0])
    known = shapes([model.card["max_tokens"]], rig.sizes.token_cap)[:1]
    graphs, eager = networks.program(known), networks.program(known)
    graphs.prepare()
    eager.prepare(eager=frozenset(known))
    port.seal()
    rows = rows_of(known[0], [], model.card["vocab_size"], 0)
    right = graphs.run(rows)
    port.trim()     # or the functions would find what they need in the allocator's own blocks
    free = port.memory()[0]
    full = filler(rig, FAULTS)
    full.take()
    try:
        left = port.memory()[0]
        rig.report.claim("device_is_full", left < free, f"{left >> 20} of {free >> 20} MiB are "
                         "left once another process has taken what it could")
        _claim_right(rig, "graphs_need_no_memory", graphs, rows, right, REPLAYS)
        _claim_told(rig, known[0], eager, rows, right)
        _claim_right(rig, "graphs_outlive_it", graphs, rows, right, REPLAYS)
    finally:
        full.release()
    rig.report.claim("memory_comes_back", wait_for_room(port, int(0.9 * free), PATIENCE_S),
                     f"{port.memory()[0] >> 20} of {free >> 20} MiB are free after its end")
    _claim_right(rig, "functions_recover", eager, rows, right, 1)
    port.flush()


def _claim_right(rig: Rig, name: str, program: GraphProgram, rows: list, right: np.ndarray,
                 calls: int) -> None:
    try:
        worst = float(np.max([np.abs(program.run(rows) - right).max() for _ in range(calls)]))
    except (OutOfMemory, DeviceBroken) as error:
        rig.report.claim(name, False, f"{type(error).__name__}: {error}")
        return
    allowed = TOLERANCES[program.dtype] * max(1.0, float(np.abs(right).max()))
    rig.report.claim(name, worst <= allowed, f"{calls} batches, largest difference {worst:.2g}")


def _claim_told(rig: Rig, shape: Shape, eager: GraphProgram, rows: list,
                right: np.ndarray) -> None:
    """A function without a graph either finds room still, or says OutOfMemory and nothing else."""
    name = "shortage_is_told"
    try:
        found = eager.run(rows)
    except OutOfMemory as error:
        rig.report.claim(name, True, f"{shape.batch} × {shape.length} without a graph: {error}")
        return
    except DeviceBroken as error:
        rig.report.claim(name, False, f"the device is taken for broken: {error}")
        return
    worst = float(np.abs(found - right).max())
    rig.report.claim(name, worst <= TOLERANCES[eager.dtype] * max(1.0, np.abs(right).max()),
                     f"there was room still; largest difference {worst:.2g}")
