"""The jobs that wait in the dispatcher, and which of them make the next batch (pure).

Suspects run first, on CPU engines: each alone, or those that a GPU engine fell over together.
Else the class is chosen (high, unless it has had its share while low waits), and jobs are taken in
turn up to a cap in milliseconds. Batches grow because work is queued; an engine that is free waits
for more only as server.linked says.
"""

import math
from collections import deque

from server.blocks import Block
from server.costs import CostModel
from server.messages import HIGH, LOW, ROW_LIMIT_BYTES
from server.turns import JOINED, QUEUED, RUNNING, Entry, Turns

# For MiniLM on one core this is some 256 tokens, which reach 93 % of the best rate; 25 ms reached
# 85 %. Larger batches mostly add latency.
BATCH_CAP_MS = 45.0
# A text that takes longer than this joins no batch that it makes longer than the cap: those who
# came before it would wait for it.
# Nor does one of a connection that has more waiting join somebody who has not beyond this: who
# comes upon a greedy client waits for a batch of his, and should not be in a long one besides.
LONG_MS = BATCH_CAP_MS / 2
# A low job may ride along in a high batch while that is shorter than this.
RIDE_ALONG_MS = BATCH_CAP_MS / 4
# Bytes of a row in a BATCH message beside its ids, rounded up.
ROW_OVERHEAD_BYTES = 16


class JobQueue:
    """Both classes' turns and the suspects, with the work in them: `count` jobs, `size_bytes` of
    ids, `backlog_ms` by class."""

    def __init__(self, high_share: float) -> None:
        self.count = 0
        self.size_bytes = 0
        self.backlog_ms = [0.0, 0.0]
        self._counts = [0, 0]
        self._high_share = high_share
        self._high_ahead_ms = 0.0
        self._turns = (Turns(), Turns())
        self._suspects: deque[Entry] = deque()
        self._suspects_ms = 0.0

    def put(self, entry: Entry) -> None:
        """Queues a job, or lets it wait for the batch that its twin is in."""
        if entry.twins is not None and entry.twins.runner is not None:
            entry.where = JOINED
            return
        entry.where, priority = QUEUED, entry.priority
        self.count += 1
        self._counts[priority] += 1
        self.size_bytes += len(entry.ids)
        if entry.twins is None:
            self.backlog_ms[priority] += entry.cost_ms
        else:
            self._owe(entry)
        if entry.is_alone or entry.is_for_cpu:
            self._suspects.append(entry)
            self._suspects_ms += entry.cost_ms
        else:
            self._turns[priority].put(entry)

    def put_block(self, block: Block) -> bool:
        """Queues a block; False, and nothing is queued, where one of its connections has more."""
        if not self._turns[LOW].put_block(block):
            return False
        count = len(block.jobs)
        self.count += count
        self._counts[LOW] += count
        self.size_bytes += len(block.lone.ids)
        self.backlog_ms[LOW] += block.cost_ms
        return True

    def expand(self, block: Block) -> None:
        """Tells the jobs of a queued block apart."""
        self._turns[LOW].expand(block)

    def discount(self, entry: Entry) -> None:
        """A queued job is queued no more; whoever meets it in the queue passes it by."""
        priority = entry.priority
        self.count -= 1
        self._counts[priority] -= 1
        self.size_bytes -= len(entry.ids)
        if entry.twins is None:
            self.backlog_ms[priority] -= entry.cost_ms
        else:
            self._owe_no_more(entry)
        if entry.is_alone or entry.is_for_cpu:
            self._suspects_ms -= entry.cost_ms
        else:
            self._turns[priority].discount(entry)
        if not self.count:
            self._suspects_ms = 0.0
        if not self._counts[priority]:
            self.backlog_ms[priority] = 0.0             # rounding must not add up over days

    def _owe(self, entry: Entry) -> None:
        """Counts the cost of twins once: the first of the higher class stands for all."""
        payer = entry.twins.payer
        if payer is not None:
            if payer.priority <= entry.priority:
                return
            self.backlog_ms[payer.priority] -= payer.cost_ms
        entry.twins.payer = entry
        self.backlog_ms[entry.priority] += entry.cost_ms

    def _owe_no_more(self, entry: Entry) -> None:
        """A twin that stood for all does so no more; a queued one that is left must."""
        twins = entry.twins
        if twins.payer is not entry:
            return
        twins.payer = None
        self.backlog_ms[entry.priority] -= entry.cost_ms
        if twins.runner is None:
            # The youngest, because those before it are likely to go next, one by one.
            for job in reversed(twins.jobs):
                if job.where == QUEUED and job is not entry:
                    self._owe(job)
                    break

    def _begin(self, entry: Entry) -> None:
        """A job is in a batch, and its queued twins wait for that."""
        twins = entry.twins
        if twins is not None:
            twins.runner = entry
            for job in twins.jobs:
                if job.where == QUEUED and job is not entry:
                    self.discount(job)
                    job.where = JOINED
        self.discount(entry)
        entry.where = RUNNING

    def ahead_ms(self, priority: int, source: tuple[int, int] | None = None, connection: int = 0,
                 more_ms: float = 0.0) -> float:
        """The work that goes before a new job of a connection, which asks for `more_ms` before that
        job; without `source` of one that has nothing waiting. High goes before low, but gets no
        more than a batch and its share meanwhile."""
        own_ms = self._turns[priority].ahead_ms(source, connection, more_ms) + self._suspects_ms
        own_ms = min(own_ms, self.backlog_ms[priority])
        if priority == HIGH:
            return own_ms
        low_share = 1.0 - self._high_share
        return own_ms + min(self.backlog_ms[HIGH], BATCH_CAP_MS + (
            own_ms * self._high_share / low_share if low_share else math.inf))

    def waiting(self, priority: int, source: tuple[int, int], connection: int) -> int:
        """How many jobs of that class and connection wait, suspects left out."""
        return self._turns[priority].waiting(source, connection)

    def choose_suspects(self, costs: CostModel, rows: int, now: float) -> list[Entry]:
        """The next batch of suspects, for a CPU engine; one that runs alone, or several."""
        entries: list[Entry] = []
        size, tokens = 0, 0
        while self._suspects and len(entries) < rows:
            entry = self._suspects[0]
            if entry.where == QUEUED and entry.deadline > now:
                size += len(entry.ids) + ROW_OVERHEAD_BYTES
                tokens += entry.tokens
                if entries and (entry.is_alone or size > ROW_LIMIT_BYTES
                                or costs.estimate_ms(len(entries), tokens) > BATCH_CAP_MS):
                    break
                self._begin(entry)
                entries.append(entry)
            self._suspects.popleft()
            if entries and entry.is_alone:
                break
        return entries

    def choose(self, costs: CostModel, rows: int, share: float, cap_ms: float,
               now: float) -> list[Entry]:
        """The next batch of at most `rows` jobs that are no suspects, out of the queue and
        RUNNING, of up to `cap_ms`; may be empty.

        With several engines idle each takes its share, so that two texts run side by side.
        """
        first = self.first_class()
        left_ms = sum(self.backlog_ms) * share
        entries: list[Entry] = []
        for priority in (first, HIGH + LOW - first):
            if priority != first and self._turns[priority].is_blank():
                break
            limit_ms = cap_ms if priority == first or first == LOW else min(cap_ms, RIDE_ALONG_MS)
            spent_ms = self._gather(priority, entries, costs, limit_ms, left_ms, rows, now)
            left_ms -= spent_ms
            self._account(priority, spent_ms, self._counts[LOW] > 0)
        return entries

    def choose_blocks(self, costs: CostModel, rows: int, share: float,
                      cap_ms: float) -> list[Block]:
        """As `choose`, where all that waits is in blocks and could make one batch; none where
        `choose` might leave something of it for other reasons than its share. Most batches are
        such: a free engine, and few short texts of as many clients."""
        count = self.count
        if self._counts[LOW] != count or count > rows \
                or self.size_bytes + ROW_OVERHEAD_BYTES * count > ROW_LIMIT_BYTES:
            return []
        blocks = self._turns[LOW].blocks()
        texts = tokens = 0
        for block in blocks:
            if block.costs is not costs:
                return []
            texts += len(block.jobs)
            tokens += block.tokens
        # Fewer than all of them wait in turn where some are suspects.
        if texts != count or costs.most_ms(count, tokens) >= min(cap_ms, LONG_MS):
            return []
        if share == 1.0:
            self._turns[LOW].take_blocks(blocks)
        else:
            blocks = self._take_share(blocks, costs, share)
        spent_ms = left = 0
        for block in blocks:
            spent_ms += block.cost_ms
            left += len(block.jobs)
            self.size_bytes -= len(block.lone.ids)
        self.count -= left
        self._counts[LOW] -= left
        self.backlog_ms[LOW] = self.backlog_ms[LOW] - spent_ms if self.count else 0.0
        self._account(LOW, spent_ms, self.count > 0)
        return blocks

    def _take_share(self, blocks: list[Block], costs: CostModel, share: float) -> list[Block]:
        """Takes jobs in turn while each brings the batch nearer to its share, one at least."""
        left_ms, taken = self.backlog_ms[LOW] * share, []
        for block in blocks:
            count = 0
            for adds_ms in costs.shares_ms(block.lone.tokens):
                if adds_ms > 2 * left_ms and (count or taken):
                    break
                left_ms -= adds_ms
                count += 1
            if count:
                taken.append(count)
            if count < len(block.jobs):
                break
        return [self._turns[LOW].take_of_block(count) for count in taken]

    def choose_of(self, priority: int, costs: CostModel, rows: int, share: float, now: float,
                  has_low: bool) -> list[Entry]:
        """As `choose`, of one class only, for a lane of an engine; `has_low`: that engine has low
        batches, which wait though they are queued no more.

        Nothing rides along: a high job in a low batch could be overtaken by none, and low ones
        in a high batch delay it.
        """
        if priority == HIGH and has_low and self._high_ahead_ms > 0.0:
            return []
        entries: list[Entry] = []
        spent_ms = self._gather(priority, entries, costs, BATCH_CAP_MS,
                                self.backlog_ms[priority] * share, rows, now)
        self._account(priority, spent_ms, has_low or self._counts[LOW] > 0)
        return entries

    def _gather(self, priority: int, entries: list[Entry], costs: CostModel, limit_ms: float,
                left_ms: float, rows: int, now: float) -> float:
        """Adds jobs of a class to a batch until that takes `limit_ms` as a whole, or they add
        `left_ms`; the milliseconds of this engine that they add."""
        turns, spent_ms, has_guest = self._turns[priority], 0.0, False
        if turns.is_blank():
            return spent_ms
        size = tokens = 0
        for entry in entries:
            size += len(entry.ids) + ROW_OVERHEAD_BYTES
            tokens += entry.tokens
        slack_s = 2 * max(limit_ms, BATCH_CAP_MS) / 1e3
        room, room_ms, greedy_ms, adds_ms = 0, 0.0, 0.0, 0.0

        def fits(entry: Entry) -> bool:
            nonlocal adds_ms
            adds_ms = costs.share_ms(entry.tokens)
            # A row alone always fits: the loader sees to that.
            return not entries or (
                len(entry.ids) <= room
                and adds_ms <= (greedy_ms if entry.flow.count > 1 else room_ms))

        while len(entries) < rows and not turns.is_blank():
            if entries:
                so_far_ms = costs.estimate_ms(len(entries), tokens)
                if so_far_ms >= limit_ms:
                    break
                room = ROW_LIMIT_BYTES - size - ROW_OVERHEAD_BYTES
                room_ms = max(BATCH_CAP_MS - so_far_ms, LONG_MS)
                most_ms = 2 * (left_ms - spent_ms)      # nearest to what it should add
                if room_ms > most_ms:
                    room_ms = most_ms
                greedy_ms = min(room_ms, LONG_MS - so_far_ms) if has_guest else room_ms
            entry = turns.take(now, slack_s, fits)
            if entry is None:
                break
            flow = entry.flow
            self._begin(entry)
            has_guest = has_guest or not flow.count
            size += len(entry.ids) + ROW_OVERHEAD_BYTES
            entries.append(entry)
            tokens += entry.tokens
            spent_ms += adds_ms
        return spent_ms

    def first_class(self) -> int:
        """High first, unless it has had its share while low waits."""
        if not self._counts[HIGH]:
            return LOW
        if self._counts[LOW] and self._high_ahead_ms > 0.0:
            return LOW
        return HIGH

    def _account(self, priority: int, spent_ms: float, low_waits: bool) -> None:
        """How far high is ahead of its share of the work done while low waited."""
        if priority == HIGH:
            self._high_ahead_ms += spent_ms * (1.0 - self._high_share)
        else:
            self._high_ahead_ms -= spent_ms * self._high_share
        # Low that never waits earns no credit, and an old debt is forgotten in a batch or two.
        most_ms = 2 * BATCH_CAP_MS if low_waits else 0.0
        self._high_ahead_ms = min(max(self._high_ahead_ms, -2 * BATCH_CAP_MS), most_ms)
