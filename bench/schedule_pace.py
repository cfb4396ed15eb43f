"""How fast a machine was while it served, by the batches that it ran (pure).

A shared machine's speed changes by half from second to second, and a schedule can be judged only
with the speed that it met. So what batches took, beside what the machine's costs promise of their
size, is told by those of the very run that is predicted: the mean in each WINDOW_S of it, and how
single ones lie about that. How batches are made, how long requests wait for them and who is refused
is all the simulation's. It is played a few times until its batches take as long as the served ones,
since on both sides a batch also stretches where fronts, dispatcher and client want its core.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from bench.schedule_machine import BatchTimes, Machine, fit
from bench.schedule_play import GRACE_S, Played, Ran, play
from bench.schedule_policies import Ours
from bench.schedule_trace import Trace

SEED = 2417
WINDOW_S = 0.25
STEPS = 3
# (texts, tokens) of the points that tell costs which were fitted to batches of all sizes.
SHAPES = ((1, 16), (1, 64), (4, 64), (1, 256), (8, 128), (8, 256), (16, 512), (2, 1024))


def fitted(machine: Machine, ran: Sequence[Ran]) -> Machine:
    """The machine with the costs that these batches had; they should be of many sizes."""
    factors = fit([((1.0, one.texts, one.computed, one.squares), one.ms) for one in ran],
                  (1.0, 0.1, 0.1, 1e-5))
    return replace(machine, slowness=1.0, costs=tuple(
        (texts, tokens, sum(factor * term for factor, term in zip(
            factors, (1.0, texts, tokens, tokens ** 2 / texts)))) for texts, tokens in SHAPES))


class Pace:
    """How many times as long as the machine's costs promise batches took, by windows of time; where
    none began it is that of the nearest window in which one did."""

    def __init__(self, machine: Machine, ran: Sequence[Ran], window_s: float = WINDOW_S) -> None:
        """RuntimeError without batches."""
        if not ran:
            raise RuntimeError("no answer tells of a batch, for none came in time; try more "
                               "--seconds")
        self._window_s = window_s
        promised = BatchTimes(machine)
        work_ms = [promised.work_ms(one.texts, one.computed, one.squares) for one in ran]
        sums: dict[int, tuple[float, float]] = {}
        for one, work in zip(ran, work_ms):
            took, all_work = sums.get(self._window(one.at_s), (0.0, 0.0))
            sums[self._window(one.at_s)] = took + one.ms, all_work + work
        self.factors = {window: took / work for window, (took, work) in sorted(sums.items())}
        self.spread = [one.ms / work / self(one.at_s) for one, work in zip(ran, work_ms)]

    def __call__(self, now: float) -> float:
        return self.of(self._window(now))

    def of(self, window: int) -> float:
        if window not in self.factors:
            window = min(self.factors, key=lambda other: abs(other - window))
        return self.factors[window]

    @property
    def mean(self) -> float:
        return sum(self.factors.values()) / len(self.factors)

    def _window(self, now: float) -> int:
        return int(max(now, 0.0) / self._window_s)


def replay(trace: Trace, machine: Machine, ran: Sequence[Ran], max_wait_ms: float,
           window_s: float = WINDOW_S) -> tuple[Played, Pace]:
    """The trace played on the machine when it was as fast as it ran those batches, and its pace."""
    served = Pace(machine, ran, window_s)
    pace = Pace(machine, ran, window_s)
    for step in range(STEPS):
        chance = random.Random(SEED)
        order = Ours(machine.costs, machine.engines, machine.fronts, max_wait_ms)
        played = play(trace, order, machine,
                      pace=lambda now: pace(now) * chance.choice(pace.spread))
        if step < STEPS - 1:
            simulated = Pace(machine, played.batches, window_s)
            pace.factors = {window: pace.of(window) * factor / simulated.of(window)
                            for window, factor in served.factors.items()}
    return played, pace


def foretold(trace: Trace, machine: Machine, others: Sequence[Pace],
             max_wait_ms: float) -> Played:
    """The trace played on the machine when it is as fast as it was in other runs, on the mean."""
    spread = [ratio for pace in others for ratio in pace.spread]
    mean, chance = sum(pace.mean for pace in others) / len(others), random.Random(SEED)
    return play(trace, Ours(machine.costs, machine.engines, machine.fronts, max_wait_ms), machine,
                pace=lambda now: mean * chance.choice(spread))


def tuned(machine: Machine, trace: Trace, ran: Sequence[Ran], max_wait_ms: float) -> Machine:
    """The machine as slow as it was on the whole when it ran those batches of a trace."""
    _, pace = replay(trace, machine, ran, max_wait_ms, 2 * trace.duration_s + GRACE_S)
    return replace(machine, slowness=machine.slowness * pace.of(0))
