"""What serving costs on this machine, measured by load of other texts than are predicted.

Points of the cost table are measured as a forkserver does, in a process of its own. What a request
costs outside engines comes from two runs against the server, one of short texts and one of longer
ones: processor time of fronts, dispatcher and client before and after. How much longer batches take
in company and at this moment comes from a run that is simulated too: until the simulated batches
take as long together as the server's metrics say that its own did.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection

from bench.load_client import Client, Planned
from bench.load_report import Outcome
from bench.ours import Model
from bench.running import Server
from bench.schedule_machine import Machine
from bench.schedule_play import play
from bench.schedule_policies import Ours
from bench.schedule_trace import Trace

LINK_MS = 0.12          # half of what a round trip through the dispatcher takes: bench/relay.py
CONNECTIONS = 4096
TUNING_STEPS = 4


@dataclass(frozen=True)
class Sample:
    """One run: requests and their mean tokens; CPU seconds of everything but engines, the client
    included; the seconds that all batches took together."""

    requests: int
    tokens_mean: float
    other_s: float
    infer_s: float


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


def drive(server: Server, planned: Sequence[Planned], duration_s: float,
          obeys: bool = False) -> tuple[list[Outcome], float]:
    """Open-loop load from this process: outcomes, and seconds until the last answer."""
    client = Client(server.host, server.port, CONNECTIONS, obeys)
    outcomes = client.run(planned, duration_s)
    return outcomes, client.took_s


def sample(server: Server, planned: Sequence[Planned], trace: Trace) -> Sample:
    """One run of a trace's requests, with everything measured around it."""
    before, client_s = _read(server), time.process_time()
    drive(server, planned, trace.duration_s)
    client_s = time.process_time() - client_s
    other_s, infer_s = (later - sooner for later, sooner in zip(_read(server), before))
    tokens = sum(one.tokens[0] for one in trace.requests)
    return Sample(len(planned), tokens / len(planned), other_s + client_s, infer_s)


def _read(server: Server) -> tuple[float, float]:
    return (server.cpu_seconds("front") + server.cpu_seconds("dispatcher"),
            sum(server.metric("firebrick_infer_seconds_sum")))


def with_host_costs(machine: Machine, one: Sample, other: Sample) -> Machine:
    """The machine with what requests cost outside engines, by two samples of unlike length (pure).
    Example: 1.0 ms at 20 tokens and 1.2 ms at 120 are 0.96 ms and 0.002 ms a token."""
    low, high = sorted((one, other), key=lambda found: found.tokens_mean)
    low_ms, high_ms = (1e3 * found.other_s / found.requests for found in (low, high))
    token_ms = max((high_ms - low_ms) / (high.tokens_mean - low.tokens_mean), 0.0)
    return replace(machine, host_token_ms=token_ms,
                   host_ms=max(low_ms - token_ms * low.tokens_mean, 0.0))


def tuned(machine: Machine, trace: Trace, infer_s: float, max_wait_ms: float) -> Machine:
    """The machine as slow as makes the trace's batches take `infer_s` together (pure)."""
    for _ in range(TUNING_STEPS):
        ours = Ours(machine.costs, machine.engines, machine.fronts, max_wait_ms)
        simulated_s = sum(batch[3] for batch in play(trace, ours, machine).batches) / 1e3
        machine = replace(machine, slowness=machine.slowness * infer_s / simulated_s)
    return machine
