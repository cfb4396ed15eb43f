"""What requests cost outside engines on this machine, by load on a server.

What fronts, dispatcher and client do for a request is processor time; what it waits for there
besides, at little load, is waking up.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import psutil

from bench.figures import median
from bench.load_client import Client, Planned
from bench.running import Server
from bench.schedule_machine import Machine
from bench.schedule_play import ADMISSION_SHARE
from bench.schedule_served import Served
from bench.schedule_trace import Trace

LINK_MS = 0.12          # half of what a round trip through the dispatcher takes: bench/relay.py
CONNECTIONS = 4096


def serve(server: Server, trace: Trace, planned: Sequence[Planned]) -> Served:
    """Open-loop load from this process, the requests of a trace."""
    client = Client(server.host, server.port, CONNECTIONS, keeps_heads=True)
    before = _Spent.now(server)
    outcomes = client.run(planned, trace.duration_s)
    after = _Spent.now(server)
    host_s, engines_s = after.host_s - before.host_s, after.engines_s - before.engines_s
    cores_s = (after.at_s - before.at_s) * len(os.sched_getaffinity(0))
    strangers = (after.machine_s - before.machine_s - host_s - engines_s) / cores_s
    return Served(trace, sorted(outcomes, key=lambda one: one.planned), host_s,
                  max(strangers, 0.0))


class _Spent(NamedTuple):
    """Processor time so far, in seconds: of fronts, dispatcher and client; of engines; of all."""

    at_s: float
    host_s: float
    engines_s: float
    machine_s: float

    @classmethod
    def now(cls, server: Server) -> "_Spent":
        machine = psutil.cpu_times()
        return cls(time.perf_counter(), sum(map(server.cpu_seconds, ("front", "dispatcher")))
                   + time.process_time(), server.cpu_seconds("engine"),
                   sum(machine[:3]) + machine.irq + machine.softirq)


def with_host_costs(machine: Machine, served: Served) -> Machine:
    """The machine with what requests of a run cost outside engines, those that were refused by the
    share that a refusal costs (pure).
    Example: 10 ms for 8 answers, each with 0.1 ms for tokenising 10 tokens, and for 5 refusals are
    0.01 ms a token and 9.2 / 9 = 1.02 ms a request, since 5 refusals cost as much as one."""
    answers = served.answers
    # The median, because what a front is interrupted by costs no processor time of it.
    token_ms = median([one.tokenize_ms / one.tokens for one in answers])
    refused = len(served.outcomes) - len(answers)
    rest_ms = 1e3 * served.host_s - token_ms * sum(one.tokens for one in answers)
    return replace(machine, host_token_ms=token_ms, host_ms=max(
        rest_ms / (len(answers) + ADMISSION_SHARE * refused), 0.0))


def with_wake(machine: Machine, served: Served) -> Machine:
    """The machine with what answers at little load waited for, at the median, that was neither
    queue nor engine, nor processor time, nor on the links to engines (pure)."""
    costs = with_host_costs(machine, served)
    idle_ms = median([one.outside_ms - costs.host_ms - costs.host_token_ms * one.tokens
                      for one in served.answers]) - 2 * machine.link_ms
    return replace(machine, wake_ms=max(idle_ms, 0.0))
