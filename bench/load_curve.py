"""Latency, goodput and refusals by load: open loop, from a tenth to twice a measured capacity.

    python -m bench.load_curve [--short] [--model DIR] [--texts FILE] [--engines N]

Capacity is what a closed loop of 32 connections gets. Then each round offers every load once, in an
order that moves on; latencies count from the planned send times, of 2xx answers only. The client
shares the cores with the server. One JSON line a figure; values are medians of rounds, `load` is
offered requests as a share of capacity:

load.capacity   requests/s
load.p50_ms     and p90, p99, p99.9: the last two only where a round has enough answers
load.goodput    2xx answers as a share of capacity, by the time until the last answer
load.refused    429 as a share of requests
load.retry_ok   of the requests that were refused at twice the capacity and obeyed Retry-After, the
                share that succeeded
"""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.client import drive, read_texts
from bench.figures import emit, median
from bench.front import ENGINE_CONNECTIONS
from bench.load import allowed_connections, make_request
from bench.load_client import Client, Planned
from bench.load_plan import plan
from bench.load_report import Run, summary
from bench.options import read_options
from bench.running import Server

LOADS = (0.1, 0.3, 0.5, 0.7, 0.9, 1.0, 1.5, 2.0)
LOADS_SHORT = (0.1, 0.5, 0.7, 0.9, 1.0, 2.0)
# The answers that a round needs for a percentile: two are beyond it, so that it is not the worst.
COUNTS = {"p50": 4, "p90": 20, "p99": 200, "p99.9": 2000}
CONNECTIONS_MOST = 15_000  # the queue of --max-wait-ms must fit in, and who is being refused
OVERLOAD_TIMES = 2.5  # as long above capacity: the queue needs a while to be as full as it may be
SEED = 104729


class Curve:
    """Rounds of open-loop runs against one server, and what they measured."""

    def __init__(self, server: Server, texts: Sequence[str], capacity_rps: float,
                 loads: Sequence[float], facts: Mapping[str, object]) -> None:
        self._server, self._texts, self._capacity_rps = server, texts, capacity_rps
        self._loads, self._facts = loads, facts
        self._runs: dict[float, list[Run]] = {}
        self._connections = allowed_connections(CONNECTIONS_MOST)

    def offer(self, load: float, seconds: float, obey_retry_after: bool = False) -> Run:
        """One run at `load` times the capacity."""
        rps = load * self._capacity_rps
        chance = random.Random(f"{SEED} {load} {len(self._runs.get(load, ()))}")
        host, port = self._server.host, self._server.port
        arrivals = plan(rps, seconds, 0.0, len(self._texts), chance)
        requests = [make_request(f"{host}:{port}", "/infer", text, False, None)
                    for text in self._texts]
        planned = [Planned(one.at_s, requests[one.text]) for one in arrivals]
        client = Client(host, port, self._connections, obey_retry_after,
                        opened_ahead=self._connections if load > 1 else 0)
        outcomes = client.run(planned, seconds)
        return Run(outcomes, rps, seconds, client.cpu_share, client.starved, client.opened,
                   None, client.took_s)

    def measure(self, rounds: int, seconds: float) -> None:
        """All loads once a round."""
        for number in range(rounds):
            first = number % len(self._loads)
            for load in (*self._loads[first:], *self._loads[:first]):
                run = self.offer(load, seconds * (OVERLOAD_TIMES if load > 1 else 1))
                self._runs.setdefault(load, []).append(run)
                print(f"round {number + 1} of {rounds}, {load:.0%} of capacity done",
                      file=sys.stderr, flush=True)

    def report(self) -> None:
        """Emits latencies, goodput and refusals of each load."""
        for load in self._loads:
            self._report_load(load, [summary(run) for run in self._runs[load]])

    def _report_load(self, load: float, found: Sequence[dict]) -> None:
        facts = {"load": load, "asked_rps": round(found[0]["asked_rps"], 1), **self._facts}
        answered = [one["latency_ms"].get("all", {"count": 0}) for one in found]
        least = min(one["count"] for one in answered)
        for percent, needed in COUNTS.items():
            if least >= needed:
                values = [one[percent] for one in answered]
                emit(f"load.{percent}_ms", median(values), "ms", values, answers=least, **facts)
        good = [one["goodput_rps"] for one in found]
        shares = [rps / self._capacity_rps for rps in good]
        limits = sorted({reason for one in found for reason in one["client_limits"]})
        emit("load.goodput", median(shares), "of capacity", shares,
             requests_per_s=round(median(good), 1), planned=sum(one["planned"] for one in found),
             client_cpu_share=round(median([one["client_cpu_share"] for one in found]), 2),
             client_limits=limits, faults=_added(found, "faults"), **facts)
        refused = [one["statuses"].get("429", 0) / max(1, one["planned"]) for one in found]
        emit("load.refused", median(refused), "of requests", refused,
             statuses=_added(found, "statuses"), **facts)

    def report_retries(self, seconds: float) -> None:
        """Twice the capacity, and a client that does as Retry-After says."""
        twice = self._loads[-1]
        found = summary(self.offer(twice, seconds, obey_retry_after=True))
        if found["retried"]:
            emit("load.retry_ok", found["retried_ok"] / found["retried"], "of refused requests",
                 retried=found["retried"], refusals_obeyed=found["refusals_obeyed"],
                 planned=found["planned"], took_s=found["took_s"], load=twice, **self._facts)


def _added(found: Sequence[dict], field: str) -> dict[str, int]:
    total: dict[str, int] = {}
    for one in found:
        for name, count in one[field].items():
            total[name] = total.get(name, 0) + count
    return total


def measure_capacity(server: Server, texts: Path, rounds: int, seconds: float,
                     facts: Mapping[str, object]) -> float:
    """Requests/s of a closed loop, after a short one that warms."""
    drive(server.url, texts, ENGINE_CONNECTIONS, 1)
    loads = [drive(server.url, texts, ENGINE_CONNECTIONS, seconds) for _ in range(rounds)]
    rates = [load.requests_per_s for load in loads]
    emit("load.capacity", median(rates), "requests/s", rates, client=loads[0].client,
         connections=ENGINE_CONNECTIONS, others=loads[-1].others, **facts)
    return median(rates)


def main() -> None:
    options = read_options("bench.load_curve", (3, 3), (5, 10))
    facts = {"model": options.name, "texts": options.texts.name, "engines": options.engines}
    with Server(options.flags) as server:
        capacity = measure_capacity(server, options.texts, options.rounds, options.seconds, facts)
        curve = Curve(server, read_texts(options.texts), capacity,
                      LOADS_SHORT if options.is_short else LOADS, facts)
        curve.measure(options.rounds, options.seconds)
        curve.report()
        curve.report_retries(options.seconds)


if __name__ == "__main__":
    main()
