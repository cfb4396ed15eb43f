"""The simulator's predictions against the server: the same arrivals, simulated and served.

    python -m bench.check_schedule [--model DIR] [--texts FILE] [--other FILE] [--rounds N]
        [--seconds N] [--store FILE]

Each trace is planned, sent open loop to a server of its own, and simulated. What the simulator
knows of the machine comes from texts of FILE after --other, in other lengths and at another rate
than those predicted: what requests cost outside engines once, and how slow batches are before and
after every round of all traces, whose median counts, because a shared machine's speed drifts. One
JSON line a figure, medians of the rounds:

schedule.check_goodput  predicted by served requests/s
schedule.check_p99, schedule.check_p50  the same of latency, from the planned send time
"""

import argparse
import os
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.client import read_texts
from bench.figures import ROOT, emit, median, percentile
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
# Of the calibrating texts: short ones and longer ones, apart at little load for what requests cost,
# and both at a load that is too much for how slow batches are; as shares of what costs promise.
SHORT, LONGER = Band(1.0, 1, 80), Band(1.0, 400, 900)
LITTLE, TOO_MUCH = 0.3, 1.5
CALIBRATING_S = 2.5
CAPACITY_S = 4.0
MAX_WAIT_MS = 1000.0
# Traces: set of texts, how they arrive, share of the predicted capacity.
CHECKS = (("short", "poisson", 2.0), ("profile", "poisson", 2.0), ("short", "bursts", 0.5),
          ("short", "poisson", 0.7))


@dataclass(frozen=True)
class Texts:
    """A set of texts and the tokens of each."""

    texts: list[str]
    tokens: list[int]


@dataclass(frozen=True)
class Served:
    """What came of one trace at the server: latencies in ms of what was not refused."""

    trace: Trace
    good_ms: list[float]
    goodput_rps: float


def serve(server: Server, trace: Trace, texts: Texts) -> Served:
    return Served(trace, *drive(server, plan(trace, texts, server), trace.duration_s))


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
    """Loads the server with texts that are none of those predicted; `slowness` of every time."""

    def __init__(self, server: Server, machine: Machine, model: Model, source: Path) -> None:
        self._server, self._model = server, model
        self._found = read_texts(source)
        self.slowness: list[float] = []
        short, longer = (self._run(machine, (band,), LITTLE)[1] for band in (SHORT, LONGER))
        self._machine = with_host_costs(machine, short, longer)
        self.tune()

    def tune(self) -> None:
        """Measures how slow batches are now."""
        trace, got = self._run(self._machine, (SHORT, LONGER), TOO_MUCH)
        self.slowness.append(tuned(self._machine, trace, got.goodput_rps, MAX_WAIT_MS).slowness)
        print(f"{got}, slowness {self.slowness[-1]:.3f}", file=sys.stderr)

    @property
    def machine(self) -> Machine:
        """The machine as it was at most times."""
        return replace(self._machine, slowness=median(self.slowness))

    def _run(self, machine: Machine, bands: Sequence[Band], load: float) -> tuple[Trace, Sample]:
        texts = tokenised(self._model,
                          assemble(self._found, bands, POOL, random.Random(SEED)))
        rps = load * promised_rps(machine, texts.tokens)
        trace = make("poisson", f"calibrating by {bands}", texts, rps, CALIBRATING_S)
        return trace, sample(self._server, plan(trace, texts, self._server), trace)


def report(machine: Machine, load: float, rounds: Sequence[Served],
           slowness: Sequence[float]) -> None:
    """Simulates what was served of one kind of trace, and prints both."""
    predicted = []
    for one in rounds:
        ours = Ours(machine.costs, machine.engines, machine.fronts, MAX_WAIT_MS)
        predicted.append(summarise(play(one.trace, ours, machine)))
    facts = {"trace": rounds[0].trace.name.partition(",")[0], "load": load,
             "slowness": [round(one, 3) for one in slowness]}
    for name, theirs, served in (
            ("goodput", [one.goodput_rps for one in predicted],
             [one.goodput_rps for one in rounds]),
            ("p99", [one.p99_ms for one in predicted],
             [percentile(one.good_ms, 99) for one in rounds]),
            ("p50", [one.p50_ms for one in predicted],
             [percentile(one.good_ms, 50) for one in rounds])):
        emit(f"schedule.check_{name}", median(theirs) / median(served), "x",
             [mine / real for mine, real in zip(theirs, served)],
             predicted=round(median(theirs), 1), served=round(median(served), 1), **facts)


def tokenised(model: Model, texts: list[str]) -> Texts:
    return Texts(texts, [len(ids) for ids in model.encode(texts)])


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.check_schedule", allow_abbrev=False)
    parser.add_argument("--model", default=str(ROOT / "models" / "sms-spam"))
    parser.add_argument("--texts", type=Path, default=DATA / "eval.tsv", help="predicted")
    parser.add_argument("--other", type=Path, default=DATA / "train.tsv", help="calibrating")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="a trace (3)")
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
        rates = {name: capacity_rps(calibrator.machine, texts.tokens, MAX_WAIT_MS, SEED,
                                    CAPACITY_S) for name, texts in sets.items()}
        served: dict[tuple[str, str, float], list[Served]] = {check: [] for check in CHECKS}
        for number in range(options.rounds):
            for (name, kind, load), rounds in served.items():
                trace = make(kind, f"{name} {kind}, {number}", sets[name], load * rates[name],
                             options.seconds)
                rounds.append(serve(server, trace, sets[name]))
            calibrator.tune()
    for (_, _, load), rounds in served.items():
        report(calibrator.machine, load, rounds, calibrator.slowness)
    if options.store:
        lengths = {name: random.Random(SEED).sample(texts.tokens, STORED_LENGTHS)
                   for name, texts in sets.items()}
        write(options.store, Workload(model.name, f"by bench.check_schedule on {here()}",
                                      calibrator.machine, lengths))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
