"""What serving costs on this machine, measured by load of other texts than are predicted.

Points of the cost table are measured as a forkserver does, in a process of its own. What a request
costs outside engines comes from two runs against the server, one of short texts and one of longer
ones: processor time of fronts, dispatcher and client before and after. How much longer batches take
in company and at this moment comes from a run of more than the server can answer, that is simulated
too: until as many are answered a second.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection

from bench.load_client import Client, Planned
from bench.ours import Model
from bench.running import Server
from bench.schedule_machine import Machine
from bench.schedule_play import play
from bench.schedule_policies import Ours
from bench.schedule_report import summarise
from bench.schedule_trace import Trace

LINK_MS = 0.12          # half of what a round trip through the dispatcher takes: bench/relay.py
CONNECTIONS = 4096
TUNING_STEPS = 4


@dataclass(frozen=True)
class Sample:
    """One run: requests and their mean tokens; CPU seconds of everything but engines, the client
    included; and how many were answered a second."""

    requests: int
    tokens_mean: float
    other_s: float
    goodput_rps: float


def measured_costs(folder: str) -> list[tuple[int, int, float]]:
    """(texts, tokens, ms) of a few batches; RuntimeError where the model cannot be built."""
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("spawn").Process(target=_measure, args=(theirs, folder))
    child.start()
    theirs.close()
    try:
        return ours.recv()
    except EOFError:
        raise RuntimeError(f"the costs of {folder} could not be measured") from None
    finally:
        child.join()


def _measure(pipe: Connection, folder: str) -> None:
    import torch

    from model.families.table import build
    from model.programs.precision import choose

    torch.set_num_threads(1)
    model = Model(folder)
    images = (model.weights, model.wide)
    program = build(choose(model.card, lambda part: build(part, *images)), *images)
    program.warm()
    pipe.send(program.costs())


def drive(server: Server, planned: Sequence[Planned],
          duration_s: float) -> tuple[list[float], float]:
    """Open-loop load from this process: latencies in ms of what was answered and not refused, and
    how many those were a second until the last answer."""
    client = Client(server.host, server.port, CONNECTIONS)
    good = [one.latency_ms for one in client.run(planned, duration_s) if one.is_good]
    return good, len(good) / max(client.took_s, duration_s)


def sample(server: Server, planned: Sequence[Planned], trace: Trace) -> Sample:
    """One run of a trace's requests, with everything measured around it."""
    before, client_s = _cpu_s(server), time.process_time()
    _, goodput_rps = drive(server, planned, trace.duration_s)
    other_s = _cpu_s(server) - before + time.process_time() - client_s
    tokens = sum(one.tokens[0] for one in trace.requests)
    return Sample(len(planned), tokens / len(planned), other_s, goodput_rps)


def _cpu_s(server: Server) -> float:
    return server.cpu_seconds("front") + server.cpu_seconds("dispatcher")


def with_host_costs(machine: Machine, one: Sample, other: Sample) -> Machine:
    """The machine with what requests cost outside engines, by two samples of unlike length (pure).
    Example: 1.0 ms at 20 tokens and 1.2 ms at 120 are 0.96 ms and 0.002 ms a token."""
    low, high = sorted((one, other), key=lambda found: found.tokens_mean)
    low_ms, high_ms = (1e3 * found.other_s / found.requests for found in (low, high))
    token_ms = max((high_ms - low_ms) / (high.tokens_mean - low.tokens_mean), 0.0)
    return replace(machine, host_token_ms=token_ms,
                   host_ms=max(low_ms - token_ms * low.tokens_mean, 0.0))


def tuned(machine: Machine, trace: Trace, goodput_rps: float, max_wait_ms: float) -> Machine:
    """The machine as slow as answers so many a second of a trace that is too much for it (pure)."""
    for _ in range(TUNING_STEPS):
        ours = Ours(machine.costs, machine.engines, machine.fronts, max_wait_ms)
        simulated_rps = summarise(play(trace, ours, machine)).goodput_rps
        machine = replace(machine, slowness=machine.slowness * simulated_rps / goodput_rps)
    return machine
