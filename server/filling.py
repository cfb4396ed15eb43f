"""Which engine gets a batch now, and of what size (pure).

While a GPU engine serves, it has all the work and CPU engines are parked: they get suspects only.
Each class has a lane there, with one batch that runs and one ahead, so a high job is given out at
once whatever the low lane holds; only where high has had its share it waits for a low batch. As
soon as none serves CPU engines have it all.
"""

import math

from server.blocks import Block, batch_of
from server.dispatch import RunBatch
from server.jobqueue import BATCH_CAP_MS, JobQueue
from server.linked import LinkedEngine, Run
from server.messages import CPU, GPU, HIGH, LOW, Batch
from server.pool import Pool
from server.turns import Entry

# Below this the gap between two batches shows, so a second one is sent ahead; to a GPU always. Not
# to a longer one, for what is sent ahead meets no company: where 32 clients of a small model wait
# for their answers, batches were half as large and 7-10 % fewer requests were served.
SHORT_BATCH_MS = 1.5
# So little is not shared between idle engines: waking another one costs as much as it saves.
WHOLE_MS = 0.5
# A parked engine has given its memory back: its first batch takes about twice as long, and those
# who wait have waited for a GPU before.
COLD_CAP_MS = BATCH_CAP_MS / 2
# Where jobs wait for longer than a batch takes anyway, larger ones get 6 % more done; but not while
# high jobs come, which wait for one batch, or came within so many seconds.
DEEP_CAP_MS = 3 * BATCH_CAP_MS
HIGH_NEAR_S = 5.0


class Filling:
    """Takes jobs out of the queue for the engines of the pool. `high_came_at` is when the last high
    job came, `held_until` until when a free engine is kept for those who come back; both in
    monotonic seconds."""

    def __init__(self, pool: Pool, queue: JobQueue) -> None:
        self._pool, self._queue = pool, queue
        self.high_came_at = -math.inf
        self.held_until = math.inf
        self._next_batch = 1
        self._given: list[RunBatch] = []

    def fill(self, now: float) -> list[RunBatch]:
        """What engines get now."""
        self.held_until = math.inf
        if self._queue.count or self._pool.gpus:
            self._fill_engines(now)
        given, self._given = self._given, []
        return given

    def _fill_engines(self, now: float) -> None:
        pool, queue = self._pool, self._queue
        while pool.gpus and any([self._fill_lane(engine, place, depth, now) for depth in (0, 1)
                                 for engine in pool.gpus for place in (0, 1)]):
            pass
        are_parked = bool(pool.gpus)
        for depth in (0, 1):
            for engine in pool.engines.values():
                if engine.hello.kind == GPU:
                    continue
                engine.is_cold = engine.is_cold or are_parked
                runs = engine.runs
                if not queue.count or len(runs) != depth or engine.is_leaving \
                        or depth and runs[0].cost_ms >= SHORT_BATCH_MS:
                    continue
                rows, serving = engine.most_rows, pool.serving
                idle = sum([not other.runs for other in serving])
                if depth == 0 and idle == 1 and self._holds(engine, now):
                    continue
                entries = queue.choose_suspects(pool.costs[CPU], rows, now)
                if not entries and not are_parked:
                    cap_ms = COLD_CAP_MS if engine.is_cold else self._cap_ms(len(serving), now)
                    chosen = pool.costs[CPU], rows, self._share(idle), cap_ms
                    entries = queue.choose_blocks(*chosen) or queue.choose(*chosen, now)
                self._run(engine, entries, now)
                if not (queue.count or are_parked):
                    return

    def _share(self, idle: int) -> float:
        """Of what waits, for one of so many idle engines."""
        return 1.0 if sum(self._queue.backlog_ms) < WHOLE_MS else 1 / max(idle, 1)

    def _holds(self, engine: LinkedEngine, now: float) -> bool:
        """Whether the one free CPU engine is kept for those who come back; nobody of high waits."""
        until = engine.holds_until(self._queue.count)
        if until <= now or self._queue.first_class() == HIGH:
            return False
        self.held_until = min(self.held_until, until)
        return True

    def _cap_ms(self, engines: int, now: float) -> float:
        """How long a CPU engine's batch may take. One client's backlog does not count: newcomers
        go before most of it, and would wait for larger batches of it."""
        if now - self.high_came_at < HIGH_NEAR_S or sum(self._queue.backlog_ms) <= BATCH_CAP_MS:
            return BATCH_CAP_MS
        return min(max(BATCH_CAP_MS, self._queue.ahead_ms(LOW) / engines), DEEP_CAP_MS)

    def _fill_lane(self, engine: LinkedEngine, place: int, depth: int, now: float) -> bool:
        """Gives the first lane (of the class whose turn it is) or the second a batch where it has
        `depth`; whether there was one."""
        priority = self._queue.first_class() if place == 0 else \
            HIGH + LOW - self._queue.first_class()
        if not self._queue.count or engine.lane(priority) != depth:
            return False
        idle = sum(not gpu.lane(priority) for gpu in self._pool.gpus)
        entries = self._queue.choose_of(priority, self._pool.costs[GPU], engine.most_rows,
                                        self._pool.speed / max(idle, 1), now, engine.lane(LOW) > 0)
        self._run(engine, entries, now)
        return bool(entries)

    def _run(self, engine: LinkedEngine, jobs: list[Entry] | list[Block], now: float) -> None:
        if not jobs:
            return
        tokens, work_ms, priority = 0, 0.0, LOW
        for entry in jobs:      # or a block
            tokens += entry.tokens
            work_ms += entry.cost_ms
            if entry.priority < priority:
                priority = entry.priority
        number, are_blocks = self._next_batch, type(jobs[0]) is Block
        texts = sum(map(len, jobs)) if are_blocks else len(jobs)
        run = Run(number, jobs, texts, tokens, self._pool.estimate_ms(engine, texts, tokens),
                  work_ms, priority, now)
        self._next_batch += 1
        engine.runs.append(run)
        engine.is_cold = False
        # An entry has all that a row has.
        batch = batch_of(number, jobs) if are_blocks else Batch(number, priority, jobs)
        self._given.append(RunBatch(*engine.key, batch))
