"""Counters in one mapped file: a page for each place, one writer each, read by any front.

Stores are aligned and 8 bytes wide, so a reader never sees half of one. A successor in a place
starts after its predecessor was reaped: it carries the counters on and zeroes the gauges, so that
counters are monotonic whoever dies. The header of a page also tells the master how its process is:
until when it should be let live, when it last turned, and whether it has worked.
"""

import math
import mmap
import os
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from server.board import Board
from server.metrics_schema import MAX_GPUS, ROLES, SCHEMAS, page_slots, slots

HEADER_SLOTS = 16
PID, INCARNATION, GENERATION, STATE, WORKED, ALIVE_UNTIL, TURN_AT, CPU_UNTIL, SINCE = range(9)
STATES = ("gone", "starting", "up", "draining")
GONE, STARTING, UP, DRAINING = range(4)
# A loop's promise at each turn, and with it the longest that anyone may be stopped unharmed.
LOOP_LEASE_S = 5.0


class Counter:
    """A slot that only grows."""

    __slots__ = ("_values", "_slot")

    def __init__(self, values: memoryview, slot: int) -> None:
        self._values, self._slot = values, slot

    def add(self, count: float = 1) -> None:
        self._values[self._slot] += count


class Gauge(Counter):
    """A slot that is set, and zeroed by a successor."""

    __slots__ = ()

    def set(self, value: float) -> None:
        self._values[self._slot] = value

    def raise_to(self, value: float) -> None:
        if value > self._values[self._slot]:
            self._values[self._slot] = value


class Histogram:
    """One slot a bucket (its upper bound inclusive), one for what is larger, one for the sum."""

    __slots__ = ("_values", "_slot", "_limits", "_sum")

    def __init__(self, values: memoryview, slot: int, limits: tuple) -> None:
        self._values, self._slot, self._limits = values, slot, limits
        self._sum = slot + len(limits) + 1

    def observe(self, value: float, times: int = 1) -> None:
        values = self._values
        values[self._slot + bisect_left(self._limits, value)] += times
        values[self._sum] += value * times

    def observe_all(self, observed: Sequence[float]) -> None:
        values, slot, limits = self._values, self._slot, self._limits
        # What is observed together is mostly alike: a bucket is looked for, and its slot written,
        # once for all values in a row that are in it.
        bucket, low, high, run = slot, math.inf, -math.inf, 0
        for value in observed:
            if not low < value <= high:
                if run:
                    values[bucket] += run
                at = bisect_left(limits, value)
                bucket, run = slot + at, 0
                low = limits[at - 1] if at else -math.inf
                high = limits[at] if at < len(limits) else math.inf
            run += 1
        values[bucket] += run
        values[self._sum] += sum(observed)


class Page:
    """A place's header and its metrics. All values are float64, exact for counts below 2^53."""

    def __init__(self, values: memoryview, role: str, index: int) -> None:
        self.values, self.role, self.index = values, role, index
        self._slots = _SLOTS[role]

    def begin(self, pid: int, incarnation: int, generation: int, now: float,
              lease_s: float = LOOP_LEASE_S) -> None:
        """A new process takes the place; called by the master before it can write itself."""
        values = self.values
        values[PID], values[INCARNATION], values[GENERATION] = pid, incarnation, generation
        values[WORKED], values[SINCE], values[TURN_AT] = 0, now, now
        values[ALIVE_UNTIL], values[CPU_UNTIL] = now + lease_s, 0.0
        values[STATE] = STARTING

    def end(self) -> None:
        """The master reaped the place's process: what it counted stays, what it had is gone."""
        for metric in SCHEMAS.get(self.role, ()):
            if metric.kind in ("gauge", "peak"):
                self.forget(metric.name)
        self.values[STATE] = GONE

    def forget(self, name: str) -> None:
        """Zeroes every sample of a family."""
        metric = next(m for m in SCHEMAS[self.role] if m.name == name)
        first = HEADER_SLOTS + self._slots[(name, *metric.sample(0))]
        for slot in range(first, first + metric.size * metric.width):
            self.values[slot] = 0.0

    def set_state(self, state: int) -> None:
        self.values[STATE] = state

    def turn(self, now: float) -> None:
        """A loop's sign of life, which ends what it promised before."""
        values = self.values
        values[TURN_AT] = now
        values[CPU_UNTIL] = 0.0
        values[ALIVE_UNTIL] = now + LOOP_LEASE_S

    def promise(self, until: float, cpu_until: float = 0.0) -> None:
        """Alive until then on the clock, and until the process has used so much CPU time
        (seconds; 0 for no bound)."""
        self.values[CPU_UNTIL] = cpu_until
        self.values[ALIVE_UNTIL] = until

    def set_worked(self) -> None:
        """The process has done what it is for: its death is no sign that it cannot."""
        self.values[WORKED] = 1.0

    def get(self, slot: int) -> float:
        return self.values[slot]

    def counter(self, name: str, **labels: object) -> Counter:
        return Counter(self.values, self._slot(name, labels))

    def gauge(self, name: str, **labels: object) -> Gauge:
        return Gauge(self.values, self._slot(name, labels))

    def histogram(self, name: str, **labels: object) -> Histogram:
        metric = next(m for m in SCHEMAS[self.role] if m.name == name)
        return Histogram(self.values, self._slot(name, labels), metric.limits)

    def _slot(self, name: str, labels: dict[str, object]) -> int:
        metric = next(m for m in SCHEMAS[self.role] if m.name == name)
        key = (name, *(labels[label] for label in metric.labels))
        return HEADER_SLOTS + self._slots[key]


_SLOTS = {role: slots(role) for role in ROLES}


class Registry:
    """The mapped file: pages for both parities of generation, inherited by every child."""

    def __init__(self, fronts: int, engines: int) -> None:
        self.engines = engines
        places = [("master", 0), ("dispatcher", 0), ("preparer", 0), ("forkserver", 0),
                  *(("front", index) for index in range(fronts)),
                  *(("engine", index) for index in range(engines)), ("gpu_watch", 0),
                  *(("gpu_engine", index) for index in range(MAX_GPUS))]
        self._begin(places, os.memfd_create("firebrick-metrics", os.MFD_CLOEXEC))
        self.board = Board()

    @classmethod
    def attach(cls, descriptor: int, places: list[tuple[str, int]]) -> "Registry":
        """The pages of another process, by its registry's `descriptor` and `places`: for one that
        was exec'd and inherited no mapping. It has no board."""
        registry = cls.__new__(cls)
        registry._begin(places, descriptor)
        return registry

    def _begin(self, places: list[tuple[str, int]], descriptor: int) -> None:
        self.places, self.descriptor = places, descriptor
        self._pages: dict[tuple[str, int, int], Page] = {}
        size = sum(HEADER_SLOTS + page_slots(role) for role, _ in places) * 2 * 8
        os.ftruncate(descriptor, size)
        self._map = mmap.mmap(descriptor, size)
        values, at = memoryview(self._map).cast("d"), 0
        for parity in (0, 1):
            for role, index in places:
                width = HEADER_SLOTS + page_slots(role)
                self._pages[role, index, parity] = Page(values[at:at + width], role, index)
                at += width

    def page(self, role: str, index: int, generation: int = 0) -> Page:
        return self._pages[role, index, generation % 2]

    def begin_model(self, generation: int) -> None:
        """Labels are counted by their number, which may mean another label in a new model: the
        generation counts its predictions from 0."""
        for page in self.pages_of(generation):
            if page.role == "front":
                page.forget("predictions_total")

    def pages_of(self, generation: int) -> Iterator[Page]:
        """The pages that a generation writes."""
        return (page for key, page in self._pages.items() if key[2] == generation % 2)

    def pages(self) -> Iterator[Page]:
        return iter(self._pages.values())

    def processes(self) -> list[dict]:
        """Every place that has a process, as /info shows it."""
        return [{"role": page.role, "index": page.index, "pid": int(page.get(PID)),
                 "incarnation": int(page.get(INCARNATION)),
                 "generation": int(page.get(GENERATION)), "state": STATES[int(page.get(STATE))]}
                for page in self.pages() if page.get(STATE) != GONE]
