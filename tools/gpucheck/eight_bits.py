"""Eight bits on the device: operators, products, whole networks against fp32, and their time."""

from __future__ import annotations

import numpy as np
import torch

from model.device.ladder import Shape, shapes
from model.device.port import Port
from model.programs.device_gate import SPREADS, products_fault
from model.programs.eight_bits import CODES, Operators
from model.programs.graphs import CheckFailed
from model.programs.image import Image
from model.programs.on_device import PRECISIONS, NoNetwork, Options, build
from model.programs.operators import Unfit, find
from tools.gpucheck.asking import rate
from tools.gpucheck.networks import (Model, Networks, random_model, rows_of, shipped_model,
                                     shipped_rows)
from tools.gpucheck.report import ROOT, short
from tools.gpucheck.rig import Rig
from tools.training.texts import read_tsv

TEXTS = ROOT / "data" / "sms-spam" / "eval.tsv"
# Decisions of 8 bits that must be those of fp32.
AGREE = 0.99
GRAPH_BYTES = 8 << 30
NO_KERNELS = "row operations: torch's"


def run(rig: Rig) -> None:
    """Both kinds, where the device has them: the networks of the figures, then the shipped model
    as a server would be told to serve it."""
    known = rig.open().eight_bits
    for kind in CODES:
        if kind not in known:
            rig.report.skip(f"operators_{kind}", f"this device has no products of {kind}")
    kinds = [kind for kind in CODES if kind in known]
    for net in (rig.sizes.small, rig.sizes.base) if kinds else ():
        model = random_model(net)
        for kind in kinds:
            network(rig, kind, model)
    for kind in kinds:
        decisions(rig, kind, shipped_model())


def network(rig: Rig, kind: str, model: Model) -> None:
    """Operators, products, answers and time of one network with random weights."""
    port = rig.open()
    settings, wide = model.card["settings"], port.dtypes[0]
    try:
        with torch.inference_mode():
            operators = find(kind, wide, port, settings["hidden_size"], settings["intermediate"])
    except Unfit as error:
        rig.report.claim(f"operators_{kind}", False, f"{model.name}: {error}")
        return
    rig.report.claim(f"operators_{kind}", True, f"{model.name}: {'; '.join(operators.report)}")
    _judge_kernels(rig, kind, operators)
    networks = Networks(port, model, wide, operators)
    with torch.inference_mode():
        fault = products_fault(networks.eager, Image(model.image), operators, port)
    rig.report.claim(f"products_{kind}", not fault,
                     f"{model.name}: {fault or 'every product is as close as its codes allow'}")
    known = shapes([rig.sizes.rate_length], rig.sizes.token_cap)
    took = {name: _rates(rig, port, one, known) for name, one in (
        (PRECISIONS[wide], Networks(port, model, wide)), (kind, networks))}
    for shape in known:
        found, others = (took[name][shape] for name in (kind, PRECISIONS[wide]))
        rig.report.figure(f"texts_{kind}", found, "texts/s", model=model.name, beside=short(others),
                          tokens=shape.length, batch=shape.batch, than=PRECISIONS[wide],
                          faster=round(found / others, 3))
    _judge_answers(rig, kind, model, networks, known)
    port.flush()


def _judge_kernels(rig: Rig, kind: str, operators: Operators) -> None:
    """A device that has our kernels must have all of them, and they must be right."""
    name, report = f"our_kernels_{kind}", operators.report[1:]
    if report == (NO_KERNELS,):
        rig.report.skip(name, "this device has no row kernels of ours")
    else:
        rig.report.claim(name, all(line.endswith(": our kernel") for line in report),
                         "; ".join(report))


def _rates(rig: Rig, port: Port, networks: Networks, known: list[Shape]) -> dict[Shape, float]:
    program = networks.program(known)
    program.prepare()
    vocab = networks.model.card["vocab_size"]
    found = {shape: rate(program, rows_of(shape, [], vocab, 0), rig.sizes.rate_s, rig.clock)
             for shape in known}
    port.flush()        # one lane's graphs go all or none
    return found


def _judge_answers(rig: Rig, kind: str, model: Model, networks: Networks,
                   known: list[Shape]) -> None:
    """Random texts against fp32 on the CPU, in the mean of squares: codes are rounded."""
    rows = [row for shape in known[-2:] for row in rows_of(
        shape, [], model.card["vocab_size"], seed=0)]
    program = networks.program(known)
    program.prepare()
    found, right = program.run(rows), model.on_cpu().run(rows)
    spread = float(np.sqrt(((found - right)**2).mean() / (right**2).mean()))
    rig.report.figure(f"spread_{kind}", spread, "of the logits", model=model.name, texts=len(rows))
    rig.report.claim(f"answers_{kind}", spread <= SPREADS[kind],
                     f"{model.name}: logits of {len(rows)} texts are {spread:.1%} from fp32's, "
                     f"allowed {SPREADS[kind]:.0%}")


def decisions(rig: Rig, kind: str, model: Model) -> None:
    """The shipped model as --precision would have it, on real texts."""
    port = rig.open()
    try:
        program = build(model.card, [model.image], port, Options(
            rig.sizes.token_cap, GRAPH_BYTES, precision=kind))
    except (NoNetwork, CheckFailed) as error:
        rig.report.claim(f"decisions_{kind}", False, f"{model.name} is not served: {error}")
        return
    rows = shipped_rows(read_tsv(str(TEXTS)).texts[:rig.sizes.texts])
    found, right = program.run(rows), model.on_cpu().run(rows)
    agree = float((found.argmax(1) == right.argmax(1)).mean())
    rig.report.figure(f"agree_{kind}", agree, "of decisions", model=model.name, texts=len(rows))
    rig.report.claim(f"decisions_{kind}", agree >= AGREE and np.isfinite(found).all(),
                     f"{model.name}: {agree:.1%} of the decisions on {len(rows)} texts are fp32's, "
                     f"at least {AGREE:.0%} must be; {program.choice.why}")
    port.flush()
