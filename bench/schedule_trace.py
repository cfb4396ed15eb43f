"""Arrival traces for simulated schedules: who asks when, for texts of how many tokens (pure).

A trace is fixed before it is played, whatever the scheduler does with it, and follows from a seed.
Kinds: `short` and `profile` are Poisson arrivals of one text each (their lengths differ), `bursts`
the same at full rate for a part of each second, `high` with 15 % of high priority; `pipelining` and
`large` put one client who wants too much beside Poisson arrivals; `closed` is connections that ask
again as soon as they are answered.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

HIGH_SHARE = 0.15
BURST_S, PERIOD_S = 0.2, 1.0
# What one greedy client asks for: one text after the other without waiting, or all in one request.
PIPELINED_TEXTS = 512
LARGE_TEXTS, LARGE_TOKENS = 256, 512
# The kinds of requests in reports.
SHORT, LONG, GREEDY = "to 128", "above 128", "greedy"
SHORT_TOKENS = 128


@dataclass(frozen=True)
class Asked:
    """One request: when, the tokens of each of its texts, its class, and its connection, None for
    any that is idle. `kind` is what it is reported under."""

    at_s: float
    tokens: tuple[int, ...]
    high: bool = False
    connection: int | None = None
    kind: str = ""


@dataclass(frozen=True)
class Trace:
    """Requests in order of time; with `connections` above 0 times do not count: so many clients
    send the next one each as soon as they are answered, until `duration_s` is over."""

    name: str
    requests: tuple[Asked, ...]
    duration_s: float
    connections: int = 0


def poisson(name: str, lengths: Sequence[int], rps: float, duration_s: float,
            chance: random.Random, high_share: float = 0.0) -> Trace:
    """Requests of one text each, `rps` a second."""
    requests, at = [], chance.expovariate(rps)
    while at < duration_s:
        requests.append(_one(at, chance.choice(lengths), chance.random() < high_share))
        at += chance.expovariate(rps)
    return Trace(name, tuple(requests), duration_s)


def bursts(name: str, lengths: Sequence[int], rps: float, duration_s: float,
           chance: random.Random) -> Trace:
    """`rps` a second on average, all of them in the first BURST_S of each PERIOD_S."""
    steady = poisson(name, lengths, rps, duration_s, chance)
    squeezed = [replace(one, at_s=one.at_s // PERIOD_S * PERIOD_S
                        + one.at_s % PERIOD_S * BURST_S / PERIOD_S) for one in steady.requests]
    return Trace(name, tuple(squeezed), duration_s)


def closed(name: str, lengths: Sequence[int], connections: int, most: int, duration_s: float,
           chance: random.Random) -> Trace:
    """At most `most` requests by clients that wait for each answer."""
    return Trace(name, tuple(_one(0.0, chance.choice(lengths), False) for _ in range(most)),
                 duration_s, connections)


def with_pipelining(trace: Trace, lengths: Sequence[int], chance: random.Random) -> Trace:
    """A connection of its own sends PIPELINED_TEXTS requests at once at every second."""
    greedy = [Asked(float(second), (chance.choice(lengths),), False, -1, GREEDY)
              for second in range(1, int(trace.duration_s)) for _ in range(PIPELINED_TEXTS)]
    return _beside(trace, greedy)


def with_large(trace: Trace) -> Trace:
    """One request of LARGE_TEXTS × LARGE_TOKENS after a second."""
    return _beside(trace, [Asked(1.0, (LARGE_TOKENS,) * LARGE_TEXTS, False, -1, GREEDY)])


def _beside(trace: Trace, more: Sequence[Asked]) -> Trace:
    requests = sorted([*trace.requests, *more], key=lambda one: one.at_s)
    return replace(trace, requests=tuple(requests))


def _one(at_s: float, tokens: int, high: bool) -> Asked:
    return Asked(at_s, (tokens,), high, None, SHORT if tokens <= SHORT_TOKENS else LONG)
