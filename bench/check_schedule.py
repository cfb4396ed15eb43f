"""The simulator's predictions against the server: the same arrivals, simulated and served.

    python -m bench.check_schedule [--model DIR] [--texts FILE] [--other FILE] [--rounds N]
        [--seconds N] [--store FILE]

Each trace is planned, sent open loop, and played through the same scheduler. What batches cost by
texts, tokens and squares of lengths is fitted to all that answers told of. How fast the machine was
in each quarter of a second, and the processor time that a request took of it beside the engines,
are those of the run that is predicted, because they change by half from one run to the next: it is
the schedule that is judged, how batches are made, how long requests wait and who is refused, not
the weather. `foretold` are the rounds' ratios with speed and processor time of the other rounds:
both together. Loads are shares of what was answered a second when last there were too many requests
with such texts: first those of FILE after --other, then those of the round's own traces. One JSON
line a figure, medians of the rounds' ratios:

schedule.check_goodput  predicted by served requests/s
schedule.check_p99, schedule.check_p50  the same of latency, from the planned send time

`pace` is how many times as long as in the calibrating run batches took, in each round; `strangers`
the share of the cores that other programs took. What those take of the fronts' time is not
simulated, so where it is more than 3 % a trace is served again, twice at most. Processor time of
fronts and dispatcher is simulated roughly, as so much a request: enough where batches take many
times as long, as MiniLM's do. With the default model, where serving is half of the work, p99 was
off by half.
"""

import argparse
import os
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.client import read_texts
from bench.figures import ROOT, emit, median, percentile
from bench.figures import machine as here
from bench.load import make_request
from bench.load_client import Planned
from bench.load_plan import Band, assemble
from bench.ours import Model
from bench.running import Server
from bench.schedule_calibrate import LINK_MS, serve, with_host_costs, with_wake
from bench.schedule_machine import Machine
from bench.schedule_pace import fitted, foretold, replay, tuned
from bench.schedule_report import summarise
from bench.schedule_served import Served, batches
from bench.schedule_trace import Trace, bursts, poisson
from bench.schedule_workload import Workload, write

SEED = 4242
POOL = 1000
STORED_LENGTHS = 400
DATA = ROOT / "data" / "sms-spam"
PROFILE = (Band(0.82, 1, 320), Band(0.075, 640, 960), Band(0.075, 1100, 1500),
           Band(0.03, 2600, 5200))
# Loads of the calibrating runs, as shares of what a burst of PROBE requests was answered at: a
# little, for what requests wait for outside of engines, and too much, for the capacity.
LITTLE, TOO_MUCH = 0.3, 2.0
PROBE = 48
CALIBRATING_S = 2.5
MAX_WAIT_MS = 1000.0
# A trace is served again where strangers took a larger share of the cores, so many times.
STRANGERS_MOST, AGAIN_MOST = 0.03, 2
# Traces: set of texts, how they arrive, share of the capacity.
CHECKS = (("short", "poisson", 2.0), ("profile", "poisson", 2.0), ("short", "bursts", 0.5),
          ("short", "poisson", 0.7))


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


def calibrate(server: Server, texts: Texts, load: float) -> Served:
    """Load on the server, as a share of what a burst is answered at."""
    chance = random.Random(f"{SEED} {load}")
    burst = poisson("burst", texts.tokens, 1e6, PROBE / 1e6, chance)
    rps = load * serve(server, burst, plan(burst, texts, server)).goodput_rps
    trace = poisson("calibrating", texts.tokens, rps, CALIBRATING_S, chance)
    return serve(server, trace, plan(trace, texts, server))


def serve_alone(server: Server, trace: Trace, texts: Texts) -> Served:
    """Serves a trace, again where other programs worked meanwhile, and says so."""
    for _ in range(1 + AGAIN_MOST):
        served = serve(server, trace, plan(trace, texts, server))
        if served.strangers <= STRANGERS_MOST:
            break
        print(f"{trace.name}: other programs took {served.strangers:.0%} of the cores",
              file=sys.stderr, flush=True)
    return served


def measured(engines: int, fronts: int, little: Served, much: Served,
             served: Sequence[Served]) -> Machine:
    """The machine by runs at little load and at too much, as fast as it was at the latter, with
    the costs that batches had in all of `served`."""
    machine = Machine((), engines, len(os.sched_getaffinity(0)), fronts, link_ms=LINK_MS)
    machine = fitted(machine, [ran for one in served for ran in batches(one.answers)])
    machine = with_host_costs(with_wake(machine, little), much)
    return tuned(machine, much.trace, batches(much.answers), MAX_WAIT_MS)


def report(machine: Machine, load: float, rounds: Sequence[Served]) -> None:
    """Simulates what was served of one kind of trace, and prints both."""
    machines = [with_host_costs(machine, one) for one in rounds]
    replayed = [replay(one.trace, costs, batches(one.answers), MAX_WAIT_MS)
                for one, costs in zip(rounds, machines)]
    paces = [pace for _, pace in replayed]
    predicted = [summarise(played) for played, _ in replayed]
    before = [summarise(foretold(one.trace, machines[place - 1], paces[:place] + paces[place + 1:],
                                 MAX_WAIT_MS))
              for place, one in enumerate(rounds) if len(rounds) > 1]
    facts = {"trace": rounds[0].trace.name.partition(",")[0], "load": load,
             "offered_rps": [round(len(one.trace.requests) / one.trace.duration_s, 1)
                             for one in rounds],
             "pace": [round(one.mean, 3) for one in paces],
             "strangers": [round(one.strangers, 3) for one in rounds]}
    for name, served, of in (
            ("goodput", [one.goodput_rps for one in rounds], lambda one: one.goodput_rps),
            ("p99", [percentile(one.good_ms, 99) for one in rounds], lambda one: one.p99_ms),
            ("p50", [percentile(one.good_ms, 50) for one in rounds], lambda one: one.p50_ms)):
        ratios = [of(one) / real for one, real in zip(predicted, served)]
        emit(f"schedule.check_{name}", median(ratios), "x", ratios,
             predicted=round(median([of(one) for one in predicted]), 1),
             served=round(median(served), 1),
             foretold=[round(of(one) / real, 3) for one, real in zip(before, served)], **facts)


def read_sets(model: Model, path: Path) -> dict[str, Texts]:
    """The texts of a file, and mixed lengths made of them."""
    found, chance = read_texts(path), random.Random(SEED)
    return {name: Texts(texts, [len(ids) for ids in model.encode(texts)]) for name, texts in (
        ("short", chance.sample(found, min(POOL, len(found)))),
        ("profile", assemble(found, PROFILE, POOL, chance)))}


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
    sets, others = read_sets(model, options.texts), read_sets(model, options.other)
    with Server(["--model", options.model, "--engines", str(options.engines),
                 "--max-wait-ms", str(int(MAX_WAIT_MS))]) as server:
        fronts = len(server.processes("front"))
        little = calibrate(server, others["short"], LITTLE)
        much = {name: calibrate(server, texts, TOO_MUCH) for name, texts in others.items()}
        rates = {name: one.goodput_rps for name, one in much.items()}
        served: dict[tuple[str, str, float], list[Served]] = {check: [] for check in CHECKS}
        for number in range(options.rounds):
            for (name, kind, load), rounds in served.items():
                trace = make(kind, f"{name} {kind}, {number}", sets[name], load * rates[name],
                             options.seconds)
                rounds.append(serve_alone(server, trace, sets[name]))
                if load > 1:
                    rates[name] = rounds[-1].goodput_rps    # the machine's speed drifts
    machine = measured(options.engines, fronts, little, much["short"], [
        little, *much.values(), *(one for rounds in served.values() for one in rounds)])
    print(machine, file=sys.stderr, flush=True)
    for (_, _, load), rounds in served.items():
        report(machine, load, rounds)
    if options.store:
        lengths = {name: random.Random(SEED).sample(texts.tokens, STORED_LENGTHS)
                   for name, texts in sets.items()}
        write(options.store, Workload(model.name, f"by bench.check_schedule on {here()}",
                                      machine, lengths))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
