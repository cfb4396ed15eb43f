"""High priority while low priority has all that the device can do."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from model.device.ladder import Shape, shapes
from model.program import Row
from model.programs.graphs import TOLERANCES, Finished
from model.programs.lanes import LanePrograms
from tools.gpucheck.asking import OPEN
from tools.gpucheck.networks import Networks, random_model, rows_of
from tools.gpucheck.report import percentile
from tools.gpucheck.rig import Rig

# Promised: how far low load may move the p99 of high batches, and how many launches of a low
# batch a high one waits for at most (one, and the reading of the clock).
MOVES, WAITS = 1.05, 1.2
ROUNDS = 5


class Asked(NamedTuple):
    """High batches one after another: milliseconds until the host had each answer."""

    alone: list[float]
    loaded: list[float]


def run(rig: Rig) -> None:
    """One text of high priority at a time, alone and beside the largest low batches, in turn."""
    model = random_model(rig.sizes.small)
    port = rig.open()
    networks = Networks(port, model, port.dtypes[0])
    length, vocab = rig.sizes.rate_length, model.card["vocab_size"]
    low_shape, high_shape = shapes([length], rig.sizes.token_cap)[0], Shape(length, 1)
    programs = LanePrograms(networks.program([low_shape]),
                            networks.program([high_shape], is_high=True))
    programs.prepare()
    low, high = rows_of(low_shape, [], vocab, 0), rows_of(high_shape, [], vocab, 1)
    right = programs.low.run(low), programs.high.run(high)
    client = Client(rig, programs, low, high, right)
    calls = max(rig.sizes.latency_calls // ROUNDS, 1)
    asked = Asked([], [])
    gc.collect()
    for _ in range(ROUNDS):
        asked.alone.extend(client.ask(calls, False))
        asked.loaded.extend(client.ask(calls, True))
    rig.report.figure("low_texts", client.low_done * len(low) / client.loaded_s, "texts/s",
                      tokens=length, batch=low_shape.batch, model=model.name)
    rig.report.claim("both_answer_right", client.wrong == 0,
                     f"{client.wrong} of {client.done} batches were answered otherwise than alone")
    tell(rig, asked, min(ms for _, _, ms in programs.low.costs()))
    port.flush()


def tell(rig: Rig, asked: Asked, low_ms: float) -> None:
    """Figures and targets; `low_ms` is what a low batch takes."""
    late = {name: percentile(times, 99) for name, times in asked._asdict().items()}
    for name, times in asked._asdict().items():
        rig.report.figure(f"high_{name}_p50", percentile(times, 50), "ms", calls=len(times))
        rig.report.figure(f"high_{name}_p99", late[name], "ms", calls=len(times))
    rig.report.figure("low_batch", low_ms, "ms")
    words = (f"p99 of a high text alone {late['alone']:.4g} ms, under full low load "
             f"{late['loaded']:.4g} ms, where a low batch takes {low_ms:.4g} ms; promised: ")
    rig.report.target("high_is_not_moved", late["loaded"] <= MOVES * late["alone"],
                      words + f"{MOVES - 1:.0%} more at most")
    rig.report.target("high_waits_for_one", late["loaded"] <= WAITS * (late["alone"] + low_ms),
                      words + "not behind more than one low batch")


class Client:
    """Asks high batches one by one, and keeps the low lane full or empty."""

    def __init__(self, rig: Rig, programs: LanePrograms, low: Sequence[Row], high: Sequence[Row],
                 right: tuple[np.ndarray, np.ndarray]) -> None:
        self._clock, self._programs, self._low, self._high = rig.clock, programs, low, high
        self._right, self._number, self._low_open = right, 0, 0
        self._highs: set[int] = set()
        self.wrong = self.done = self.low_done = 0
        self.loaded_s = 0.0

    def ask(self, calls: int, is_loaded: bool) -> list[float]:
        """Milliseconds of each call."""
        taken, begun = [], self._clock()
        for _ in range(calls):
            self._fill(is_loaded)
            asked = self._clock()
            self._submit(self._high, True)
            while self._highs:
                self._poll()
                self._fill(is_loaded)
            taken.append((self._clock() - asked) * 1e3)
        if is_loaded:
            self.loaded_s += self._clock() - begun
        while self._programs.is_busy:
            self._poll()
        return taken

    def _fill(self, is_loaded: bool) -> None:
        while is_loaded and self._low_open < OPEN:
            self._submit(self._low, False)
            self._low_open += 1

    def _submit(self, rows: Sequence[Row], is_high: bool) -> None:
        self._number += 1
        if is_high:
            self._highs.add(self._number)
        self._programs.submit(self._number, rows, is_high)

    def _poll(self) -> None:
        for finished in self._programs.poll():
            is_high = finished.number in self._highs
            self._highs.discard(finished.number)
            self._low_open -= not is_high
            self.low_done += not is_high
            self.done += 1
            self.wrong += not self._is_right(finished, self._right[is_high])

    def _is_right(self, finished: Finished, right: np.ndarray) -> bool:
        allowed = TOLERANCES[self._programs.dtype] * np.maximum(np.abs(right), 1)
        return bool((np.abs(finished.logits - right) <= allowed).all())
