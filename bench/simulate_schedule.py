"""Arrival traces played through the server's own scheduler, and through what others use.

    python -m bench.simulate_schedule [--workload FILE] [--only TRACE ...] [--seconds N]
        [--max-wait-ms N] [--seed N]

One JSON line a figure on stdout, tables on stderr. The machine is simulated: what batches and
requests cost comes from FILE, which `python -m bench.check_schedule --store FILE` measures (the
stored one is MiniLM's). Loads are shares of the capacity that the server's scheduler reaches with
32 connections that never pause; `double` means twice of it, sent again as Retry-After says.

schedule.goodput_rps  requests/s answered, refused ones not counted
schedule.refused      their share
schedule.p50_ms, schedule.p99_ms  from the planned send time, of what was answered
schedule.padding      share of the tokens computed that is none of any text
schedule.batch_texts  texts a batch, mean
"""

import argparse
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.figures import emit
from bench.schedule_machine import Machine
from bench.schedule_play import play
from bench.schedule_policies import Ours, orders
from bench.schedule_report import Summary, summarise, table
from bench.schedule_trace import (HIGH_SHARE, Trace, bursts, closed, poisson, with_large,
                                  with_pipelining)
from bench.schedule_workload import STORED, Workload, read

SEED = 7919
CONNECTIONS = 32
CAPACITY_S = 10.0
MOST_RPS = 20_000
# Names of traces: the set of lengths, the share of capacity, and what is made of it.
TRACES = {
    "short": ("short", 0.7, "poisson"), "profile": ("profile", 0.7, "poisson"),
    "bursts": ("short", 0.5, "bursts"), "short-double": ("short", 2.0, "poisson"),
    "profile-double": ("profile", 2.0, "poisson"), "pipelining": ("short", 0.5, "pipelining"),
    "large": ("short", 0.5, "large"), "high": ("short", 0.9, "high")}


def capacity_rps(machine: Machine, lengths: Sequence[int], max_wait_ms: float, seed: int,
                 seconds: float = CAPACITY_S) -> float:
    """What the server's scheduler reaches in a closed loop."""
    trace = closed("closed", lengths, CONNECTIONS, int(MOST_RPS * seconds), seconds,
                   random.Random(seed))
    ours = Ours(machine.costs, machine.engines, machine.fronts, max_wait_ms)
    return summarise(play(trace, ours, machine)).goodput_rps


def make(name: str, lengths: Sequence[int], rps: float, kind: str, seconds: float,
         seed: int) -> Trace:
    """One of TRACES at so many requests a second, all clients together but for the greedy one."""
    chance = random.Random(f"{seed} {name}")
    if kind == "bursts":
        return bursts(name, lengths, rps, seconds, chance)
    trace = poisson(name, lengths, rps, seconds, chance, HIGH_SHARE if kind == "high" else 0.0)
    if kind == "pipelining":
        return with_pipelining(trace, lengths, chance)
    return with_large(trace) if kind == "large" else trace


def report(trace: Trace, order: str, one: Summary, facts: dict[str, object]) -> None:
    """Prints the figures of one played trace."""
    facts = {"trace": trace.name, "order": order, **facts}
    by_class = {name: {"count": count, "p50_ms": round(p50, 2), "p99_ms": round(p99, 2)}
                for name, (count, p50, p99) in one.by_class.items()}
    emit("schedule.goodput_rps", one.goodput_rps, "requests/s", requests=one.requests, **facts)
    emit("schedule.refused", one.refused, "share", tries_most=one.tries_most, **facts)
    emit("schedule.p50_ms", one.p50_ms, "ms", **facts)
    emit("schedule.p99_ms", one.p99_ms, "ms", by_class=by_class, **facts)
    emit("schedule.padding", one.padding, "share", **facts)
    emit("schedule.batch_texts", one.batch_texts, "texts",
         longest_ms=round(one.longest_batch_ms, 2), **facts)


def simulate(workload: Workload, names: Sequence[str], seconds: float, max_wait_ms: float,
             seed: int, show: Callable[[str], None]) -> None:
    """Plays the traces of those names through all orders and prints figures."""
    machine = workload.machine
    capacities = {name: capacity_rps(machine, lengths, max_wait_ms, seed)
                  for name, lengths in workload.lengths.items()}
    for name in names:
        lengths, load, kind = TRACES[name]
        rps = load * capacities[lengths]
        trace = make(name, workload.lengths[lengths], rps, kind, seconds, seed)
        rows = []
        for order in orders(machine.costs, machine.engines, machine.fronts, max_wait_ms):
            played = summarise(play(trace, order, machine, obeys=load > 1))
            rows.append((order.name, played))
            report(trace, order.name, played, {"load": load, "rps": round(rps, 1),
                                               "model": workload.model, "simulated": True})
        show(table(f"{name}: {load:.0%} of {capacities[lengths]:.0f}/s, {workload.model}", rows))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.simulate_schedule", allow_abbrev=False)
    parser.add_argument("--workload", type=Path, default=STORED, help="costs and lengths")
    parser.add_argument("--only", nargs="+", choices=TRACES, default=list(TRACES),
                        metavar="TRACE", help=", ".join(TRACES))
    parser.add_argument("--seconds", type=float, default=20.0, help="simulated, a trace (20)")
    parser.add_argument("--max-wait-ms", type=float, default=2000.0, help="as the server's (2000)")
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args(arguments)
    try:
        workload = read(options.workload)
    except (OSError, ValueError) as error:
        parser.exit(2, f"{error}\n")
    simulate(workload, options.only, options.seconds, options.max_wait_ms, options.seed,
             lambda text: print(text, file=sys.stderr, flush=True))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
