"""Every graph against the same function as it is, and against the CPU's fp32."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from model.device.ladder import Shape, shapes
from model.device.port import Port
from model.program import Program
from model.programs.graphs import TOLERANCES, GraphProgram
from model.programs.on_device import PRECISIONS
from tools.gpucheck.networks import Model, Networks, random_model, rows_of, shipped_model
from tools.gpucheck.rig import Rig

# Of the device's logits against fp32 on the CPU: 16 bits carry about 3 decimals through a network,
# bf16 about 2.
CPU_TOLERANCES = {torch.float32: 1e-3, torch.float16: 0.05, torch.bfloat16: 0.3}
SHOWN = 3


@dataclass
class Compared:
    """What was seen of one model in one arithmetic; `eager` and `cpu` name mismatches."""

    texts: int
    on_cpu: int
    eager: list[str]
    cpu: list[str]
    worst_eager: float = 0.0
    worst_cpu: float = 0.0


def run(rig: Rig) -> None:
    """The shipped model in every arithmetic, the small network in the fastest one."""
    port = rig.open()
    dtypes = port.dtypes
    for model, tried in ((shipped_model(), dtypes), (random_model(rig.sizes.small), dtypes[:1])):
        known, cpu = shapes(model.card["buckets"], rig.sizes.token_cap), model.on_cpu()
        for dtype in tried:
            tell(rig, model, dtype, compare(rig.open(), model, cpu, dtype, known,
                                            rig.sizes.rows_compared))


def tell(rig: Rig, model: Model, dtype: torch.dtype, seen: Compared) -> None:
    """Figures and the two claims."""
    name = f"{model.name} {PRECISIONS[dtype]}"
    for other, worst, mismatches, texts in (
            ("eager", seen.worst_eager, seen.eager, seen.texts),
            ("cpu", seen.worst_cpu, seen.cpu, seen.on_cpu)):
        rig.report.figure(f"{other}_difference", worst, "largest difference in a logit",
                          model=model.name, precision=PRECISIONS[dtype], texts=texts)
        rig.report.claim(f"graphs_are_as_{other}", not mismatches,
                         f"{name}: {len(mismatches)} mismatches in {texts} texts, largest "
                         f"difference {worst:.2g}" + "".join(
                             f"; {words}" for words in mismatches[:SHOWN]))


def compare(port: Port, model: Model, cpu: Program, dtype: torch.dtype, known: Sequence[Shape],
            rows_on_cpu: int) -> Compared:
    """Each shape's graph twice, the second time in another order: outputs that share memory show
    only after another graph's replay."""
    networks = Networks(port, model, dtype)
    graphs, eager = networks.program(known), networks.program(known)
    graphs.prepare()
    eager.prepare(eager=frozenset(known))
    port.seal()
    seen = Compared(0, 0, [], [])
    for place in range(len(known)):
        _compare_shape(seen, model, known[place], graphs, eager, cpu, rows_on_cpu)
    for place in np.random.default_rng(0).permutation(len(known)):
        _compare_shape(seen, model, known[place], graphs, eager)
    port.flush()
    return seen


def _compare_shape(seen: Compared, model: Model, shape: Shape, graphs: GraphProgram,
                   eager: GraphProgram, cpu: Program | None = None, rows_on_cpu: int = 0) -> None:
    rows = rows_of(shape, model.card["buckets"], model.card["vocab_size"], seed=0)
    graphs.take_counts()
    found, wanted = graphs.run(rows), eager.run(rows)
    counts = graphs.take_counts()
    name = f"{shape.batch} × {shape.length}"
    seen.texts += len(rows)
    if (counts.replays, counts.eager) != (1, 0):
        seen.eager.append(f"{name} was not one replay")
    worst = np.abs(found - wanted)
    if not (worst <= TOLERANCES[graphs.dtype] * np.maximum(np.abs(wanted), 1)).all():
        seen.eager.append(f"{name} is {worst.max():.2g} off")
    seen.worst_eager = float(np.fmax(seen.worst_eager, worst.max()))
    if cpu is None:
        return
    chosen = sorted({*range(len(rows))[:rows_on_cpu - 1], len(rows) - 1})
    right = cpu.run([rows[row] for row in chosen])
    seen.on_cpu += len(chosen)
    worst = np.abs(found[chosen] - right)
    allowed = CPU_TOLERANCES[graphs.dtype] * np.maximum(
        1.0, np.abs(right).max(axis=1, keepdims=True) / 4)
    if not (worst <= allowed).all():
        seen.cpu.append(f"{name} is {worst.max():.2g} off")
    seen.worst_cpu = float(np.fmax(seen.worst_cpu, worst.max()))
