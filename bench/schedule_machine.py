"""The machine of a simulated schedule: cores shared by engines and everything else (pure).

Engines compute at low priority beside fronts, dispatcher and client, as the server's own do: a
process of those takes a core almost whole when it has something to do. Example: two cores, two
engines, one front at work: the front has 1 core, the engines share the other, each at half speed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from server.costs import CostModel

# Linux's weights of nice 0 and nice 10: 1024 and 110.
ENGINE_WEIGHT = 110 / 1024
FIT_STEPS = 1000


@dataclass(frozen=True)
class Machine:
    """What a machine and a model cost.

    `costs` are points (texts, tokens, ms) of one engine on a core of its own; a batch really takes
    `slowness` times that. `host_ms` is the processor time of fronts, dispatcher and client for a
    request, and `host_text_ms` and `host_token_ms` for each text and token in it. Beside that
    `wake_ms` passes before a request is looked at, and `link_ms` on each way between scheduler and
    engine.
    """

    costs: tuple[tuple[int, int, float], ...]
    engines: int = 2
    cores: int = 2
    fronts: int = 2
    slowness: float = 1.0
    host_ms: float = 0.0
    host_text_ms: float = 0.0
    host_token_ms: float = 0.0
    link_ms: float = 0.0
    wake_ms: float = 0.0


class BatchTimes:
    """What batches take of a core, in ms: base + text · texts + token · tokens + square · Σ length²
    as fitted to the points. The scheduler under test knows nothing of squares, nor does the
    server's."""

    def __init__(self, machine: Machine) -> None:
        self._slowness = machine.slowness
        line = CostModel(machine.costs)
        self._factors = fit([((1.0, texts, tokens, tokens ** 2 / texts), ms)
                              for texts, tokens, ms in machine.costs],
                             [line.base_ms, line.text_ms, line.token_ms, 0.0])

    def work_ms(self, texts: int, tokens: int, squares: int) -> float:
        """Of `tokens` as computed, padding included, and `squares`, their Σ length²."""
        base, text, token, square = self._factors
        return self._slowness * (base + text * texts + token * tokens + square * squares)


def fit(points: Sequence[tuple[Sequence[float], float]], first: Sequence[float]) -> list[float]:
    """Factors that are not negative and give each point's ms of its terms, by least squares of
    relative errors: coordinate descent from `first`."""
    rows = [[term / ms for term in terms] for terms, ms in points]
    factors = list(first)
    left = [1.0 - math.fsum(map(float.__mul__, row, factors)) for row in rows]
    for _ in range(FIT_STEPS):
        for place in range(len(factors)):
            column = [row[place] for row in rows]
            step = math.fsum(map(float.__mul__, column, left)) / math.fsum(
                value * value for value in column)
            step = max(step, -factors[place])
            factors[place] += step
            left = [rest - step * value for rest, value in zip(left, column)]
    return factors


@dataclass(eq=False)
class Task:
    """Work on a core; `work_ms` is what is left of it, `what` its owner's."""

    work_ms: float
    is_engine: bool
    what: object


class Cores:
    """Tasks under way, each at the speed that the others leave it."""

    def __init__(self, cores: int) -> None:
        self._cores = cores
        self._tasks: list[Task] = []
        self._now = 0.0
        self._speeds = (1.0, 1.0)       # of an engine's task, of another
        self.engine_busy_s = 0.0

    def add(self, task: Task, now: float) -> None:
        self.advance(now)
        self._tasks.append(task)
        self._share()

    def advance(self, now: float) -> None:
        """Lets all tasks go on until `now`, which must not be after `next_end`."""
        passed_ms = (now - self._now) * 1e3
        self._now = now
        engine_speed, other_speed = self._speeds
        for task in self._tasks:
            task.work_ms -= passed_ms * (engine_speed if task.is_engine else other_speed)
            self.engine_busy_s += passed_ms / 1e3 if task.is_engine else 0.0

    def next_end(self) -> float:
        """When the next task ends if none is added; inf without tasks."""
        engine_speed, other_speed = self._speeds
        return self._now + min(
            (max(task.work_ms, 0.0) / (engine_speed if task.is_engine else other_speed)
             for task in self._tasks), default=math.inf) / 1e3

    def take_ended(self, now: float) -> list[Task]:
        """The tasks that are through at `now`, removed."""
        self.advance(now)
        ended = [task for task in self._tasks if task.work_ms <= 1e-9]
        if ended:
            self._tasks = [task for task in self._tasks if task.work_ms > 1e-9]
            self._share()
        return ended

    def _share(self) -> None:
        engines = sum(task.is_engine for task in self._tasks)
        self._speeds = speeds(self._cores, engines, len(self._tasks) - engines)


def speeds(cores: int, engines: int, others: int) -> tuple[float, float]:
    """Of each engine's task and of each other task, in cores; none has more than one."""
    if engines + others <= cores:
        return 1.0, 1.0
    other = min(1.0, cores / (others + ENGINE_WEIGHT * engines))
    return min(1.0, (cores - other * others) / engines) if engines else 1.0, other
