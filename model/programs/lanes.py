"""A model on both lanes of a device: two programs of one network, one that an engine feeds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from model.device.ladder import Shape
from model.device.port import Port
from model.program import Row
from model.programs.device_choice import Choice
from model.programs.graphs import Counts, Finished, GraphProgram


class LanePrograms:
    """A model.program.Program that can also be fed ahead, with batches of either class.

    `low` and `high` are of one port and one network; each has graphs, buffers and staging of its
    own, for they run at once. `choice` says which precision they are of.
    """

    def __init__(self, low: GraphProgram, high: GraphProgram) -> None:
        self.low, self.high = low, high
        self.port: Port = low.port
        self.dtype = low.dtype
        self.token_cap = low.token_cap
        self.choice = Choice("", "")
        self._both = (high, low)

    def prepare(self, is_eager: bool = False) -> None:
        """Both programs' `prepare`, without graphs where `is_eager`; from then on the device
        serves."""
        for program in (self.low, self.high):
            program.prepare(frozenset(program.shapes) if is_eager else frozenset())
        self.port.seal()

    def submit(self, number: int, rows: Sequence[Row], is_high: bool) -> None:
        """As GraphProgram does, on one of the lanes. Numbers are unique over both."""
        (self.high if is_high else self.low).submit(number, rows)

    def poll(self) -> list[Finished]:
        """What is done by now, in each lane in order of submission."""
        return self.high.poll() + self.low.poll()

    @property
    def is_busy(self) -> bool:
        return self.high.is_busy or self.low.is_busy

    def due(self) -> float:
        """When a launch that runs must have ended, in monotonic seconds; infinity for none."""
        return min(program.due() for program in self._both)

    def remaining_s(self) -> float:
        """How long nothing can be done yet, by what launches took before."""
        return min((program.remaining_s() for program in self._both if program.is_busy),
                   default=0.0)

    def take_counts(self) -> Counts:
        high, low = (program.take_counts() for program in self._both)
        return Counts(high.replays + low.replays, high.eager + low.eager,
                      high.padding + low.padding, high.retries + low.retries)

    def costs(self) -> list[tuple[int, int, float]]:
        """(texts, tokens, ms) of the low lane's shapes; the high one's cost the same."""
        return self.low.costs()

    @property
    def shapes(self) -> list[Shape]:
        """Those of both lanes; a shape that both have counts twice."""
        return self.low.shapes + self.high.shapes

    @property
    def captured(self) -> int:
        """How many shapes have a graph."""
        return self.low.captured + self.high.captured

    # ---- a program like any other -------------------------------------------------------------

    def run(self, rows: Sequence[Row]) -> np.ndarray:
        """Logits, float32 [B, C]; alone, not between `submit` and `poll`."""
        return self.low.run(rows)

    def warm(self) -> None:
        """`prepare` did."""

    def idle(self) -> None:
        """Memory is only given back where the device is short of it."""
