"""Contenders timed in turn on the same rows: bursts, rounds, and what is said of them.

One round runs each contender once, in an order that moves on by one from round to round, so that
what drifts on the machine meets all of them. A contender's value in a round is the median of a
burst of runs; ratios are taken within a round.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from bench.figures import median

BURST_MS = 60.0
BURST_RUNS_MOST = 30
TRIAL_RUNS = 3


class Burst(NamedTuple):
    """Some runs of the same rows: milliseconds of each, and the last one's logits, float32 [B, C].

    `cpu_ms` is processor time of all threads of the contender's process: on one core it is what the
    wall clock would show if nothing else ran there.
    """

    wall_ms: list[float]
    cpu_ms: list[float]
    logits: np.ndarray


class Contender(Protocol):
    """A way to compute one model, loaded and warmed by its maker."""

    key: str
    """What it is called on the command line and in figures: int8, ort-int8."""
    name: str
    """The same for readers, with version and kernel."""
    modes: tuple[str, ...]
    """How it may be called with rows of many lengths, from bench.peers.calls."""

    def run(self, rows: Sequence[np.ndarray], mode: str, repeats: int) -> Burst:
        """Runs all rows so many times; a row is an integer array of token ids."""


@dataclass
class Timing:
    """What one contender in one mode took, over all rounds; milliseconds for all rows together."""

    contender: Contender
    mode: str
    logits: np.ndarray
    runs: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    best_ms: float = float("inf")

    @property
    def median_ms(self) -> float:
        return median(self.runs)

    @property
    def wall_ms(self) -> float:
        return median(self.wall)

    def add(self, burst: Burst) -> None:
        self.runs.append(median(burst.cpu_ms))
        self.wall.append(median(burst.wall_ms))
        self.best_ms = min(self.best_ms, *burst.cpu_ms)


def time_runs(work: Callable[[], np.ndarray], repeats: int) -> Burst:
    """Times `work`, which gives logits, so many times in this process."""
    wall, spent = [], []
    for _ in range(repeats):
        begun, spent_before = time.perf_counter(), time.process_time()
        logits = work()
        spent.append((time.process_time() - spent_before) * 1e3)
        wall.append((time.perf_counter() - begun) * 1e3)
    return Burst(wall, spent, logits)


def time_in_turn(entries: Sequence[tuple[Contender, str]], rows: Sequence[np.ndarray],
                 rounds: int) -> list[Timing]:
    """A Timing for each (contender, mode), from `rounds` interleaved rounds; warmed before."""
    timings, repeats = [], []
    for contender, mode in entries:
        contender.run(rows, mode, 1)
        trial = contender.run(rows, mode, 2)
        timings.append(Timing(contender, mode, trial.logits))
        repeats.append(burst_runs(min(trial.cpu_ms)))
    for number in range(rounds):
        for place in range(len(entries)):
            at = (place + number) % len(entries)
            contender, mode = entries[at]
            timings[at].add(contender.run(rows, mode, repeats[at]))
    return timings


def burst_runs(run_ms: float) -> int:
    """How many runs make a burst of about BURST_MS."""
    return max(1, min(BURST_RUNS_MOST, round(BURST_MS / max(run_ms, 1e-3))))


def fastest_mode(contender: Contender, rows: Sequence[np.ndarray], modes: Sequence[str]) -> str:
    """The one of the modes with the least processor time over a few runs, warmed before."""
    def trial(mode: str) -> float:
        warming = contender.run(rows, mode, 1).cpu_ms[0]
        return min(contender.run(rows, mode, min(TRIAL_RUNS, burst_runs(warming))).cpu_ms)
    return modes[0] if len(modes) == 1 else min(modes, key=trial)


def ratios(ours: Timing, other: Timing) -> list[float]:
    """Round by round how many times as long the other took: above 1 where ours is faster."""
    return [theirs / mine for mine, theirs in zip(ours.runs, other.runs)]


def largest_change(logits: np.ndarray, reference: np.ndarray) -> float:
    """max |Δlogit|."""
    return float(np.abs(logits - reference).max())


def agreement(logits: np.ndarray, reference: np.ndarray) -> float:
    """The share of rows with the same arg-max."""
    return float((logits.argmax(1) == reference.argmax(1)).mean())
