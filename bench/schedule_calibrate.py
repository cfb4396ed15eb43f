"""What serving costs on this machine, measured by load of other texts than are predicted.

Points of the cost table are measured as a forkserver does, in a process of its own. How much longer
batches take in company, and what a request costs outside engines, come from two runs against the
server, one of short texts and one of longer ones: processor time of its processes and of the client
before and after, beside the batches that its metrics counted.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

from bench.load_client import Client, Planned
from bench.load_report import Outcome
from bench.ours import Model
from bench.running import Server
from bench.schedule_machine import Machine
from server.costs import CostModel

LINK_MS = 0.12          # half of what a round trip through the dispatcher takes: bench/relay.py
CONNECTIONS = 4096


@dataclass(frozen=True)
class Sample:
    """One run: requests and their mean tokens; CPU seconds of engines and of everything else, the
    client included; the batches that ran, with their texts and tokens."""

    requests: int
    tokens_mean: float
    engine_s: float
    other_s: float
    batches: float
    texts: float
    tokens: float


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


def sample(server: Server, planned: Sequence[Planned], tokens: Sequence[int],
           duration_s: float) -> Sample:
    """One run, with everything measured around it; `tokens` are those of the planned requests."""
    before, client_s = _read(server), time.process_time()
    drive(server, planned, duration_s)
    client_s = time.process_time() - client_s
    engine_s, other_s, batches, texts, counted = (
        later - sooner for later, sooner in zip(_read(server), before))
    return Sample(len(planned), sum(tokens) / len(tokens), engine_s, other_s + client_s,
                  batches, texts, counted)


def _read(server: Server) -> tuple[float, ...]:
    return (server.cpu_seconds("engine"),
            server.cpu_seconds("front") + server.cpu_seconds("dispatcher"),
            sum(server.metric("firebrick_batch_size_count")),
            sum(server.metric("firebrick_batch_size_sum")),
            sum(server.metric("firebrick_tokens_total")))


def fit(costs: Sequence[tuple[int, int, float]], engines: int, cores: int, fronts: int,
        samples: Sequence[Sample]) -> Machine:
    """The machine that the samples tell of (pure); two, of unlike length, tell what a token costs
    outside engines. Example: 1.0 ms at 20 tokens and 1.2 ms at 120 are 0.96 ms + 0.002 ms each."""
    line = CostModel(costs)
    expected_ms = sum(line.base_ms * one.batches + line.text_ms * one.texts
                      + line.token_ms * one.tokens for one in samples)
    slowness = 1e3 * sum(one.engine_s for one in samples) / expected_ms
    low, high = sorted(samples, key=lambda one: one.tokens_mean)
    low_ms, high_ms = (1e3 * one.other_s / one.requests for one in (low, high))
    token_ms = max((high_ms - low_ms) / (high.tokens_mean - low.tokens_mean), 0.0)
    return Machine(tuple(costs), engines, cores, fronts, slowness,
                   max(low_ms - token_ms * low.tokens_mean, 0.0), 0.0, token_ms, LINK_MS)
