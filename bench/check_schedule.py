"""The simulator's predictions against the server: the same arrivals, simulated and served.

    python -m bench.check_schedule [--model DIR] [--texts FILE] [--other FILE] [--seconds N]
        [--store FILE]

Each trace is planned, sent open loop to a server of its own, and simulated. What the simulator knows
of the machine comes from texts of FILE after --other, in other lengths and at another rate than
those predicted: what requests cost outside engines once, and how slow batches are just before and
just after each trace, because a shared machine's speed drifts. One JSON line a figure:

schedule.check_goodput  predicted by served requests/s
schedule.check_p99      predicted by served p99, from the planned send time
"""

import argparse
import os
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.client import read_texts
from bench.figures import ROOT, emit, percentile
from bench.figures import machine as here
from bench.load import make_request
from bench.load_client import Planned
from bench.load_plan import Band, assemble
from bench.ours import Model
from bench.running import Server
from bench.schedule_calibrate import (LINK_MS, Sample, drive, measured_costs, sample, tuned,
                                      with_host_costs)
from bench.schedule_machine import Machine
from bench.schedule_play import play
from bench.schedule_policies import Ours
from bench.schedule_report import summarise
from bench.schedule_trace import Asked, Trace, bursts, poisson
from bench.schedule_workload import Workload, write
from bench.simulate_schedule import capacity_rps
from server.costs import CostModel

SEED = 4242
POOL = 1000
STORED_LENGTHS = 400
DATA = ROOT / "data" / "sms-spam"
PROFILE = (Band(0.82, 1, 320), Band(0.075, 640, 960), Band(0.075, 1100, 1500),
           Band(0.03, 2600, 5200))
# Of the calibrating texts: short ones and longer ones for what requests cost, both for batches; at
# so much of the capacity as the costs alone promise, which is more than there is.
SHORT, LONGER = Band(1.0, 1, 80), Band(1.0, 400, 900)
CALIBRATING_LOAD, CALIBRATING_S = 0.4, 2.5
MAX_WAIT_MS = 1000.0
# Traces: set of texts, how they arrive, share of the predicted capacity.
CHECKS = (("short", "poisson", 0.7), ("short", "poisson", 1.4), ("profile", "poisson", 0.7),
          ("profile", "poisson", 1.4), ("short", "bursts", 0.5))


@dataclass(frozen=True)
class Texts:
    """A set of texts and the tokens of each."""

    texts: list[str]
    tokens: list[int]


def plan(trace: Trace, texts: Texts, server: Server) -> list[Planned]:
    """The requests of a trace, each with a text of its length."""
    place, chance = f"{server.host}:{server.port}", random.Random(SEED)
    by_tokens: dict[int, list[str]] = {}
    for text, tokens in zip(texts.texts, texts.tokens):
        by_tokens.setdefault(tokens, []).append(text)
    return [Planned(one.at_s, make_request(place, "/infer", chance.choice(
        by_tokens[one.tokens[0]]), one.high, None), one.high) for one in trace.requests]


def make(kind: str, name: str, texts: Texts, rps: float, seconds: float) -> Trace:
    chance = random.Random(f"{SEED} {name}")
    return (bursts if kind == "bursts" else poisson)(name, texts.tokens, rps, seconds, chance)


def promised_rps(machine: Machine, tokens: Sequence[int]) -> float:
    """Requests/s that keep all engines busy, by the cost table alone."""
    mean = round(sum(tokens) / len(tokens))
    return 1e3 * machine.engines / CostModel(machine.costs).share_ms(mean)


class Calibrator:
    """Loads the server with texts that are none of those predicted."""

    def __init__(self, server: Server, machine: Machine, model: Model, source: Path) -> None:
        self._server, self._model = server, model
        self._found = read_texts(source)
        short, longer = ((self._run(machine, (band,)))[1] for band in (SHORT, LONGER))
        self.machine = self.tune(with_host_costs(machine, short, longer))

    def tune(self, machine: Machine) -> Machine:
        """The machine as slow as it is now."""
        trace, got = self._run(machine, (SHORT, LONGER))
        found = tuned(machine, trace, got.infer_s, MAX_WAIT_MS)
        print(f"{got}, slowness {found.slowness:.3f}", file=sys.stderr)
        return found

    def _run(self, machine: Machine, bands: Sequence[Band]) -> tuple[Trace, Sample]:
        texts = tokenised(self._model,
                          assemble(self._found, bands, POOL, random.Random(SEED)))
        rps = CALIBRATING_LOAD * promised_rps(machine, texts.tokens)
        trace = make("poisson", f"calibrating by {bands}", texts, rps, CALIBRATING_S)
        return trace, sample(self._server, plan(trace, texts, self._server), trace)


def check(server: Server, calibrator: Calibrator, trace: Trace, texts: Texts, load: float) -> None:
    """Serves and simulates one trace, and prints both."""
    before = calibrator.machine
    outcomes, took_s = drive(server, plan(trace, texts, server), trace.duration_s)
    calibrator.machine = calibrator.tune(before)
    machine = replace(before, slowness=(before.slowness + calibrator.machine.slowness) / 2)
    ours = Ours(machine.costs, machine.engines, machine.fronts, MAX_WAIT_MS)
    predicted = summarise(play(trace, ours, machine))
    good = [one.latency_ms for one in outcomes if one.is_good]
    served_rps = len(good) / max(took_s, trace.duration_s)
    facts = {"trace": trace.name, "load": load, "requests": len(outcomes),
             "refused": len(outcomes) - len(good),
             "predicted_refused": round(predicted.refused * predicted.requests),
             "slowness": [round(before.slowness, 3), round(calibrator.machine.slowness, 3)]}
    emit("schedule.check_goodput", predicted.goodput_rps / served_rps, "x",
         predicted=round(predicted.goodput_rps, 1), served=round(served_rps, 1), **facts)
    p50, p99 = (percentile(good, percent) for percent in (50, 99))
    emit("schedule.check_p99", predicted.p99_ms / p99, "x", predicted=round(predicted.p99_ms, 1),
         served=round(p99, 1), predicted_p50=round(predicted.p50_ms, 1), served_p50=round(p50, 1),
         **facts)


def tokenised(model: Model, texts: list[str]) -> Texts:
    return Texts(texts, [len(ids) for ids in model.encode(texts)])


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.check_schedule", allow_abbrev=False)
    parser.add_argument("--model", default=str(ROOT / "models" / "sms-spam"))
    parser.add_argument("--texts", type=Path, default=DATA / "eval.tsv", help="predicted")
    parser.add_argument("--other", type=Path, default=DATA / "train.tsv", help="calibrating")
    parser.add_argument("--seconds", type=float, default=8.0, help="a trace (8)")
    parser.add_argument("--engines", type=int, default=2)
    parser.add_argument("--store", type=Path, help="write what was measured, to be simulated")
    options = parser.parse_args(arguments)
    model = Model(options.model)
    found = read_texts(options.texts)
    sets = {"short": tokenised(model, found), "profile": tokenised(
        model, assemble(found, PROFILE, POOL, random.Random(SEED)))}
    machine = Machine(tuple(measured_costs(options.model)), options.engines,
                      len(os.sched_getaffinity(0)), link_ms=LINK_MS)
    with Server(["--model", options.model, "--engines", str(options.engines),
                 "--max-wait-ms", str(int(MAX_WAIT_MS))]) as server:
        machine = replace(machine, fronts=len(server.processes("front")))
        calibrator = Calibrator(server, machine, model, options.other)
        lengths = {name: random.Random(SEED).sample(texts.tokens, STORED_LENGTHS)
                   for name, texts in sets.items()}
        for name, kind, load in CHECKS:
            workload = Workload(model.name, f"by bench.check_schedule on {here()}",
                                calibrator.machine, lengths)
            if options.store:
                write(options.store, workload)
            rps = load * capacity_rps(workload, sets[name].tokens, MAX_WAIT_MS, SEED)
            trace = make(kind, f"{name} {kind}", sets[name], rps, options.seconds)
            check(server, calibrator, trace, sets[name], load)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
