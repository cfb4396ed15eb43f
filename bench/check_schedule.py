"""The simulator's predictions against the server: the same arrivals, simulated and served.

    python -m bench.check_schedule [--model DIR] [--texts FILE] [--other FILE] [--seconds N]
        [--store FILE]

Costs are calibrated by texts of FILE after --other, which are none of those predicted; then each
trace is planned, simulated and sent open loop to a server of its own. One JSON line a figure:

schedule.check_goodput  predicted by served requests/s
schedule.check_p99      predicted by served p99, from the planned send time
"""

import argparse
import os
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.client import read_texts
from bench.figures import ROOT, emit, percentile
from bench.load import make_request
from bench.load_client import Planned
from bench.load_plan import Band, assemble
from bench.ours import Model
from bench.running import Server
from bench.schedule_calibrate import drive, fit, measured_costs, sample
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
# Of the calibrating texts: short ones, then longer ones; both at so much of a first estimate.
CALIBRATING = ((Band(1.0, 1, 80),), (Band(1.0, 400, 900),))
CALIBRATING_LOAD, CALIBRATING_S = 0.8, 4.0
MAX_WAIT_MS = 1000.0
# Traces: set of texts, how they arrive, share of the predicted capacity.
CHECKS = (("short", "poisson", 0.7), ("short", "poisson", 1.4), ("profile", "poisson", 0.7),
          ("profile", "poisson", 1.4), ("short", "bursts", 0.5))


@dataclass(frozen=True)
class Texts:
    """A set of texts and the tokens of each."""

    texts: list[str]
    tokens: list[int]


def plan(trace: Trace, texts: Texts, place: str, chance: random.Random) -> list[Planned]:
    """The requests of a trace, each with a text of its length."""
    by_tokens: dict[int, list[str]] = {}
    for text, tokens in zip(texts.texts, texts.tokens):
        by_tokens.setdefault(tokens, []).append(text)
    return [Planned(one.at_s, make_request(place, "/infer", chance.choice(
        by_tokens[one.tokens[0]]), one.high, None), one.high) for one in trace.requests]


def make(kind: str, name: str, texts: Texts, rps: float, seconds: float) -> Trace:
    chance = random.Random(f"{SEED} {name}")
    return (bursts if kind == "bursts" else poisson)(name, texts.tokens, rps, seconds, chance)


def first_estimate_rps(machine: Machine, tokens: Sequence[int]) -> float:
    """Requests/s that keep all engines busy, by the cost table alone."""
    mean = round(sum(tokens) / len(tokens))
    return 1e3 * machine.engines / CostModel(machine.costs).share_ms(mean)


def check(server: Server, machine: Machine, kind: str, texts: Texts, name: str, load: float,
          rps: float, seconds: float) -> None:
    """Simulates and serves one trace, and prints both."""
    trace = make(kind, name, texts, rps, seconds)
    ours = Ours(machine.costs, machine.engines, machine.fronts, MAX_WAIT_MS)
    predicted = summarise(play(trace, ours, machine))
    outcomes, took_s = drive(server, plan(trace, texts, f"{server.host}:{server.port}",
                                          random.Random(SEED)), seconds)
    good = [one.latency_ms for one in outcomes if one.is_good]
    served_rps, p50, p99 = (len(good) / max(took_s, seconds), percentile(good, 50),
                            percentile(good, 99))
    facts = {"trace": name, "load": load, "rps": round(rps, 1), "requests": len(outcomes)}
    emit("schedule.check_goodput", predicted.goodput_rps / served_rps, "x",
         predicted=round(predicted.goodput_rps, 1), served=round(served_rps, 1), **facts)
    emit("schedule.check_p99", predicted.p99_ms / p99, "x", predicted=round(predicted.p99_ms, 1),
         served=round(p99, 1), predicted_p50=round(predicted.p50_ms, 1), served_p50=round(p50, 1),
         **facts)


def calibrate(server: Server, costs: Sequence[tuple[int, int, float]], model: Model,
              source: Path, engines: int) -> Machine:
    """The machine as two runs of other texts show it."""
    cores, fronts = len(os.sched_getaffinity(0)), len(server.processes("front"))
    machine, found, samples = Machine(tuple(costs), engines), read_texts(source), []
    for number, bands in enumerate(CALIBRATING):
        texts = tokenised(model, assemble(found, bands, POOL, random.Random(SEED + number)))
        rps = CALIBRATING_LOAD * first_estimate_rps(machine, texts.tokens)
        trace = make("poisson", f"calibrating {number}", texts, rps, CALIBRATING_S)
        samples.append(sample(
            server, plan(trace, texts, f"{server.host}:{server.port}", random.Random(SEED)),
            [one.tokens[0] for one in trace.requests], CALIBRATING_S))
        print(f"calibrated by {samples[-1]}", file=sys.stderr)
    return fit(costs, engines, cores, fronts, samples)


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
    costs = measured_costs(options.model)
    with Server(["--model", options.model, "--engines", str(options.engines),
                 "--max-wait-ms", str(int(MAX_WAIT_MS))]) as server:
        machine = calibrate(server, costs, model, options.other, options.engines)
        print(machine, file=sys.stderr)
        lengths = {name: random.Random(SEED).sample(texts.tokens, STORED_LENGTHS)
                   for name, texts in sets.items()}
        workload = Workload(model.name, f"by bench.check_schedule, {machine.cores} cores",
                            machine, lengths)
        if options.store:
            write(options.store, workload)
        for name, kind, load in CHECKS:
            rps = load * capacity_rps(workload, sets[name].tokens, MAX_WAIT_MS, SEED)
            check(server, machine, kind, sets[name], f"{name} {kind}", load, rps,
                  options.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
