"""Asks programs and takes the time: the device's own by its events, and the wall's."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from model.program import Row
from model.programs.graphs import GraphProgram


# Batches given ahead: one that runs, one whose input is filled meanwhile, one behind it.
OPEN = 3


class Took(NamedTuple):
    """One batch: its logits, what the device took between its events, and what passed until the
    host had the answer."""

    logits: np.ndarray
    device_ms: float
    wall_ms: float


def ask(program: GraphProgram, rows: Sequence[Row], clock: Callable[[], float]) -> Took:
    """One batch, alone; the host looks without a pause."""
    begun = clock()
    program.submit(0, rows)
    finished = program.poll()
    while not finished:
        finished = program.poll()
    return Took(finished[0].logits, finished[0].device_ms, (clock() - begun) * 1e3)


def ask_in_turn(programs: dict[str, GraphProgram], rows: Sequence[Row], calls: int,
                clock: Callable[[], float]) -> dict[str, list[Took]]:
    """So many calls of each, in turn, so that what disturbs one disturbs all; without garbage
    collections in between."""
    found: dict[str, list[Took]] = {name: [] for name in programs}
    gc.collect()
    gc.disable()
    try:
        for _ in range(calls):
            for name, program in programs.items():
                found[name].append(ask(program, rows, clock))
    finally:
        gc.enable()
    return found


def rate(program: GraphProgram, rows: Sequence[Row], seconds: float,
         clock: Callable[[], float]) -> float:
    """Texts a second while the program always has a batch waiting."""
    program.run(rows)
    number = done = 0
    begun = clock()
    took_s = 0.0
    while took_s < seconds or not done:
        while number - done < OPEN:
            program.submit(number, rows)
            number += 1
        done += len(program.poll())
        took_s = clock() - begun
    while program.is_busy:
        program.poll()
    return done * len(rows) / took_s
