"""Whose turn it is: fair queues by milliseconds of work, one a class (pure).

Start-time fair queueing (Goyal, Vin, Cheng 1996): each connection is a flow with a virtual time
that advances by the cost of what it was served; the flow that is furthest behind goes next. So one
request of 256 long texts takes its turn like any other connection, however early it came. Within a
flow: deadline, then arrival. A job about to miss its deadline may jump the turn; its flow pays.
"""

import heapq
import math
from collections.abc import Hashable
from dataclasses import dataclass

QUEUED, RUNNING, HELD, GONE = range(4)


@dataclass(slots=True, eq=False)
class Entry:
    """A job in the dispatcher. `source` is (front, incarnation), `cost_ms` what it adds to a
    batch, `unjudged` deaths whose cause the master has not told yet, `where` one of QUEUED,
    RUNNING, HELD and GONE."""

    source: tuple[int, int]
    job: int
    group: int
    connection: int
    priority: int
    deadline: float
    arrived_at: float
    order: int
    tokens: int
    split: int
    ids: bytes
    cost_ms: float
    deaths: int
    is_alone: bool
    unjudged: int = 0
    where: int = QUEUED
    started_at: float = 0.0


class _Flow:
    __slots__ = ("jobs", "virtual_ms", "is_listed")

    def __init__(self, virtual_ms: float) -> None:
        self.jobs: list[tuple[float, int, Entry]] = []
        self.virtual_ms = virtual_ms
        self.is_listed = False


class Turns:
    """The queue of one class. Jobs leave it by `take`, or lazily after they became GONE."""

    def __init__(self) -> None:
        self._flows: dict[Hashable, _Flow] = {}
        self._ready: list[tuple[float, int, _Flow]] = []
        self._urgent: list[tuple[float, int, Entry]] = []
        self._virtual_ms = 0.0
        self._ticket = 0

    def put(self, entry: Entry) -> None:
        flow = self._flow(entry)
        heapq.heappush(flow.jobs, (entry.deadline, entry.order, entry))
        if entry.deadline < math.inf:
            heapq.heappush(self._urgent, (entry.deadline, entry.order, entry))
        if not flow.is_listed:
            # An idle flow starts where the others are: rest earns no credit.
            flow.virtual_ms = max(flow.virtual_ms, self._virtual_ms)
            self._list(flow)

    def take(self, now: float, slack_s: float) -> Entry | None:
        """The next job, out of the queue; one with less than `slack_s` to its deadline jumps."""
        urgent = self._peek_urgent(now)
        if urgent is not None and urgent.deadline - now < slack_s:
            heapq.heappop(self._urgent)
            self._flow(urgent).virtual_ms += urgent.cost_ms
            urgent.where = RUNNING
            return urgent
        while self._ready:
            virtual_ms, _, flow = heapq.heappop(self._ready)
            entry = self._first(flow, now)
            if entry is None:
                flow.is_listed = False
                continue
            if virtual_ms < flow.virtual_ms:    # it paid for a jump meanwhile
                self._list(flow)
                continue
            heapq.heappop(flow.jobs)
            self._virtual_ms = virtual_ms
            flow.virtual_ms += entry.cost_ms
            self._list(flow)
            entry.where = RUNNING
            return entry
        self._flows.clear()                     # nothing waits: nobody is ahead or behind
        self._urgent.clear()
        return None

    def _flow(self, entry: Entry) -> _Flow:
        key = (entry.source, entry.connection)
        flow = self._flows.get(key)
        if flow is None:
            flow = self._flows[key] = _Flow(self._virtual_ms)
        return flow

    def _list(self, flow: _Flow) -> None:
        self._ticket += 1
        flow.is_listed = True
        heapq.heappush(self._ready, (flow.virtual_ms, self._ticket, flow))

    def _first(self, flow: _Flow, now: float) -> Entry | None:
        while flow.jobs:
            entry = flow.jobs[0][2]
            if _is_waiting(entry, now):
                return entry
            heapq.heappop(flow.jobs)
        return None

    def _peek_urgent(self, now: float) -> Entry | None:
        while self._urgent:
            entry = self._urgent[0][2]
            if _is_waiting(entry, now):
                return entry
            heapq.heappop(self._urgent)
        return None


def _is_waiting(entry: Entry, now: float) -> bool:
    """Whether a queued tuple still stands for its job: not gone, late, or waiting elsewhere."""
    return entry.where == QUEUED and not entry.is_alone and entry.deadline > now
