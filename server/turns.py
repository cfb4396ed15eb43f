"""Whose turn it is: fair queues by milliseconds of work, one a class (pure).

Start-time fair queueing (Goyal, Vin, Cheng 1996) over a clock of fair shares: each connection is a
flow that begins at the class's virtual time, and each job moves its flow on by the job's cost. The
job of the flow that is least far goes. The class's time moves by the work done ÷ the flows that
wait, as in an ideal sharer: so one request of 256 long texts takes its turns like any other
connection, however early it came, while connections with one text each go as they came, long texts
too; ordered by finish times instead, long ones wait for many rounds under overload. The class's
time moves by at least a sixteenth of the work, so that a stream of new connections keeps an old one
waiting for sixteen times its own work at most. Example: A has jobs of 3 ms, B of 1 ms: A and B go
at 0, B at 1 and 2, then both at 3.

Within a flow: deadline, then arrival. A job about to miss its deadline may jump the turn; its flow
pays, and jumps get at most half of the work while others wait.
"""

import heapq
import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:       # it is of entries itself
    from server.blocks import Block

QUEUED, RUNNING, HELD, GONE, JOINED = range(5)
# Of how many flows each gets its whole share; among more the work that each one has queued counts.
MOST_SHARERS = 16


@dataclass(slots=True, eq=False)
class Entry:
    """A job in the dispatcher. `source` is (front, incarnation), `cost_ms` what it adds to a
    batch, `unjudged` deaths whose cause the master has not told yet, `where` one of QUEUED,
    RUNNING, HELD, JOINED (a twin runs) and GONE, `flow` where it waits its turn. Suspects are
    `is_alone`, or `is_for_cpu`: a GPU engine did not answer them."""

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
    is_for_cpu: bool = False
    unjudged: int = 0
    where: int = QUEUED
    twins: "Twins | None" = None
    flow: "Flow | None" = None


@dataclass(slots=True, eq=False)
class Twins:
    """Jobs of one text, by its `key`: those that are waited for in the order they came, the one
    whose batch computes it (cancelled or not), and the queued one that its cost is counted for."""

    key: bytes
    jobs: dict[Entry, None]
    runner: Entry | None = None
    payer: Entry | None = None


class Flow:
    """A connection's jobs of one class: `waiting_ms` is the cost of the `count` that wait,
    `head_ms` that of the next one. It begins with one, and is listed."""

    __slots__ = ("key", "jobs", "virtual_ms", "count", "waiting_ms", "head_ms", "is_listed")

    def __init__(self, key: Hashable, virtual_ms: float, place: "Place", cost_ms: float) -> None:
        self.key = key
        self.jobs = [place]
        self.virtual_ms = virtual_ms
        self.count = 1
        self.waiting_ms = self.head_ms = cost_ms
        self.is_listed = True


# Where a job stands in its flow: (deadline, order, job).
Place = tuple[float, int, Entry]


class Turns:
    """The queue of one class. Jobs leave it by `take`, or lazily after `discount`.

    A flow is known only while something of it waits. `heads_ms` is the cost of all flows' next
    jobs: what a connection that has nothing waiting finds ahead of it.
    """

    def __init__(self) -> None:
        self.heads_ms = 0.0
        self._flows: "dict[Hashable, Flow | Block]" = {}
        # Every flow that has a job to give, once; those of a block are one.
        self._due: "list[tuple[float, bool, int, Flow | Block]]" = []
        self._urgent: list[Place] = []
        self._virtual_ms = 0.0
        self._jumped_ms = 0.0           # by how much jumps are ahead of the others' work
        self._ticket = 0

    def put(self, entry: Entry) -> None:
        """Queues a job; `entry.order` must be new whenever it comes (again)."""
        key = entry.source, entry.connection
        place = entry.deadline, entry.order, entry
        if entry.deadline < math.inf:
            heapq.heappush(self._urgent, place)
        flow = self._flow(key)
        if flow is None:
            cost_ms = entry.cost_ms
            flow = entry.flow = self._flows[key] = Flow(key, self._virtual_ms, place, cost_ms)
            self.heads_ms += cost_ms
            self._ticket += 1
            heapq.heappush(self._due, (self._virtual_ms, False, self._ticket, flow))
            return
        entry.flow = flow
        flow.count += 1
        flow.waiting_ms += entry.cost_ms
        heapq.heappush(flow.jobs, place)
        if not flow.is_listed:
            flow.is_listed = True
            if flow.virtual_ms < self._virtual_ms:
                flow.virtual_ms = self._virtual_ms
            self._set_head(flow, entry.cost_ms)
            heapq.heappush(self._due, self._place(flow, is_new=True))

    def discount(self, entry: Entry) -> None:
        """A job that was put waits no more, taken or gone; called once for each."""
        flow, entry.flow = entry.flow, None
        flow.count -= 1
        flow.waiting_ms -= entry.cost_ms
        if not flow.count:
            self._set_head(flow, 0.0)
            del self._flows[flow.key]           # its place is dropped when it is met
            if not self._flows:
                self.heads_ms = 0.0             # rounding must not add up over days

    def ahead_ms(self, source: tuple[int, int] | None, connection: int,
                 more_ms: float = 0.0) -> float:
        """The work that goes before a new job of that connection: a job of each flow, and as much
        of each, up to MOST_SHARERS, as the connection itself has waiting and `more_ms`."""
        flow = self._flow((source, connection))
        own_ms = more_ms + (flow.waiting_ms if flow is not None else 0.0)
        return self.heads_ms + own_ms * min(len(self._flows), MOST_SHARERS)

    def is_blank(self) -> bool:
        """Whether nothing waits or is still to be dropped, so that `take` would change nothing."""
        return not (self._due or self._urgent or self._jumped_ms)

    def waiting(self, source: tuple[int, int], connection: int) -> int:
        """How many jobs of that connection wait."""
        flow = self._flow((source, connection))
        return flow.count if flow is not None else 0

    def take(self, now: float, slack_s: float, fits: Callable[[Entry], bool]) -> Entry | None:
        """The next job, out of the queue; one with less than `slack_s` to its deadline jumps.

        None where nothing waits, or where the next job does not fit, which stays the next one. The
        caller discounts what it gets.
        """
        urgent = _first(self._urgent, now) if self._urgent else None
        if urgent is not None and urgent.deadline - now < slack_s and self._jumped_ms <= 0.0:
            if not fits(urgent):
                return None
            heapq.heappop(self._urgent)
            self._serve(urgent.flow, urgent.cost_ms)
            self._jumped_ms += urgent.cost_ms
            urgent.where = RUNNING
            return urgent
        due = self._due
        while due:
            due_ms, _, _, flow = due[0]
            if type(flow) is not Flow:
                self.expand(flow)
                continue
            if due_ms < flow.virtual_ms:            # it paid for a jump
                heapq.heapreplace(due, self._place(flow))
                continue
            entry = _first(flow.jobs, now)
            if due_ms > self._virtual_ms:
                self._virtual_ms = due_ms
            if entry is None:                       # all gone, or late: their fronts cancel them
                self._unlist(flow)
                continue
            if not fits(entry):
                return None
            heapq.heappop(flow.jobs)
            self._serve(flow, entry.cost_ms)
            if self._jumped_ms:
                self._jumped_ms = max(self._jumped_ms - entry.cost_ms, 0.0)
            entry.where = RUNNING
            self._list_again(flow, now)
            return entry
        self._urgent.clear()
        self._jumped_ms = 0.0
        return None

    def put_block(self, block: "Block") -> bool:
        """Queues a block as `put` would its jobs; False where one of its connections has more, and
        nothing is queued then."""
        count, flows = len(block.jobs), self._flows
        keys = dict.fromkeys(block.keys(), block)
        if len(keys) < count or not flows.keys().isdisjoint(keys):
            return False
        flows.update(keys)
        block.virtual_ms, block.ticket = self._virtual_ms, self._ticket + 1
        self._ticket += count
        self.heads_ms += block.cost_ms
        heapq.heappush(self._due, (block.virtual_ms, False, block.ticket, block))
        return True

    def expand(self, block: "Block") -> None:
        """The jobs of a queued block take their places one by one, which they have had so far."""
        self._due.remove((block.virtual_ms, False, block.ticket, block))
        for number, entry in enumerate(block.expand()):
            key = entry.source, entry.connection
            place = entry.deadline, entry.order, entry
            entry.flow = self._flows[key] = Flow(key, block.virtual_ms, place, entry.cost_ms)
            self._due.append((block.virtual_ms, False, block.ticket + number, entry.flow))
        heapq.heapify(self._due)

    def blocks(self) -> "list[Block]":
        """What waits, in turn, where all of it is in blocks; else nothing."""
        if self._jumped_ms or self._urgent:
            return []
        self._due.sort()                            # a heap still
        blocks = [waiting for _, _, _, waiting in self._due]
        for block in blocks:
            if type(block) is Flow:
                return []
        return blocks

    def take_blocks(self, blocks: "list[Block]") -> None:
        """Takes all that `blocks` has just given. The clock may stand still: who comes next begins
        at it, whatever it says, and nobody else is there."""
        for block in blocks:
            block.where = RUNNING
        self._due.clear()
        self._flows.clear()
        self.heads_ms = 0.0

    def take_of_block(self, count: int) -> "Block":
        """Takes the first `count` jobs of the first block, as `take` would one by one; the block of
        them."""
        virtual_ms, _, _, first = self._due[0]
        if virtual_ms > self._virtual_ms:
            self._virtual_ms = virtual_ms
        heapq.heappop(self._due)
        block = first if count == len(first) else first.split(count)
        if block is not first:
            heapq.heappush(self._due, (virtual_ms, False, first.ticket, first))
        block.where, flows = RUNNING, self._flows
        virtual_ms, left = self._virtual_ms, len(flows)
        for cost_ms in block.costs.shares_ms(block.lone.tokens):
            virtual_ms += cost_ms / (left if left < MOST_SHARERS else MOST_SHARERS)
            left -= 1
        self._virtual_ms = virtual_ms
        for key in block.keys():
            del flows[key]
        self.heads_ms -= block.cost_ms
        return block

    def _flow(self, key: Hashable) -> Flow | None:
        """A connection's jobs that wait, told apart from those that came with them."""
        flow = self._flows.get(key)
        if flow is not None and type(flow) is not Flow:
            self.expand(flow)
            flow = self._flows[key]
        return flow

    def _serve(self, flow: Flow, cost_ms: float) -> None:
        flow.virtual_ms += cost_ms
        self._virtual_ms += cost_ms / min(len(self._flows), MOST_SHARERS)

    def _list_again(self, flow: Flow, now: float) -> None:
        """Gives the flow that was served, the first of all, its next place."""
        following = _first(flow.jobs, now)
        if following is None:
            self._unlist(flow)
            return
        self._set_head(flow, following.cost_ms)
        heapq.heapreplace(self._due, self._place(flow))

    def _unlist(self, flow: Flow) -> None:
        """Takes the first of all flows from the list."""
        heapq.heappop(self._due)
        flow.is_listed = False
        self._set_head(flow, 0.0)

    def _set_head(self, flow: Flow, cost_ms: float) -> None:
        self.heads_ms += cost_ms - flow.head_ms
        flow.head_ms = cost_ms

    def _place(self, flow: Flow, is_new: bool = False) -> tuple[float, bool, int, Flow]:
        """Of flows that are equally far those that had nothing yet go first."""
        self._ticket += 1
        return flow.virtual_ms, not is_new, self._ticket, flow


def _first(jobs: list[Place], now: float) -> Entry | None:
    """The first of a heap that still waits; what is gone, late, or waits elsewhere is dropped on
    the way."""
    while jobs:
        entry = jobs[0][2]
        if entry.where == QUEUED and entry.deadline > now \
                and not (entry.is_alone or entry.is_for_cpu):
            return entry
        heapq.heappop(jobs)
    return None
