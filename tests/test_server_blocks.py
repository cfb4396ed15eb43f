"""Jobs that stay together fare as each would alone: two schedulers live through the same, and one
of them tells all jobs apart as they come. Costs are sums of powers of two and so is what the clock
of turns is divided by, so that rounding breaks no tie."""

import math
import random
from collections import Counter

import pytest

from server import codec, turns
from server.blocks import Block
from server.dispatch import Answered, Measured, Policy, RunBatch, SendRefused, SendResults
from server.messages import (CPU, GPU, HIGH, LOW, Done, EngineHello, Failed, Group, Job, LoneJobs,
                             PackedBatch)
from server.scheduler import Scheduler

SOURCES = [(0, 7), (1, 7)]
CONNECTIONS = 40
COSTS = [(1, 8, 0.25), (1, 64, 2.0), (8, 512, 16.0)]       # 1/32 ms a token
MOST_TEXTS = 12


def lone_jobs(jobs, connections, rng, priority=LOW, deadline=math.inf, sends=1, deaths=0):
    count, sizes = len(jobs), [2 * rng.randint(2, 100) for _ in jobs]
    tokens = tuple(size // 2 for size in sizes)
    return LoneJobs(tuple(jobs), tuple(connections), (deadline,) * count, (priority,) * count,
                    tuple(jobs), tokens, tokens, tuple(sizes), (deaths,) * count, (sends,) * count,
                    rng.randbytes(sum(sizes)))


class Twin:
    """A scheduler, with what it has told in an order that does not hang on who is told first."""

    def __init__(self, keeps_together, **policy):
        self.scheduler = Scheduler(1, Policy(2, **policy))
        self.keeps_together = keeps_together
        self.running = {}
        self.told = []
        for source in SOURCES:
            self.scheduler.front_hello(source)

    def lone(self, source, lone, now):
        if self.keeps_together:
            self.scheduler.lone(source, lone, now)
        else:
            self.scheduler.jobs(source, lone.as_groups(), now)

    def act(self, now):
        told = []
        for action in self.scheduler.take_actions(now):
            if isinstance(action, RunBatch):
                batch = action.batch
                data = codec.encode_packed(batch) if isinstance(batch, PackedBatch) \
                    else codec.encode_batch(batch)
                self.running.setdefault((action.engine, action.incarnation), []).append(data)
                told.append(("batch", action.engine, action.incarnation, data))
            elif isinstance(action, (Answered, SendResults)):
                told += [("result", action.source, packed) for packed in (
                    codec.pack_answered(action) if isinstance(action, Answered)
                    else codec.pack_results(action.results))]
            elif isinstance(action, Measured):
                told.append(("measured", action._replace(queued_s=[sorted(
                    [seconds for seconds, jobs in waited for _ in range(jobs)])
                    for waited in action.queued_s])))
            elif isinstance(action, SendRefused):
                told.append(("refused", action.source, action.refusal.group))
            else:
                told.append((type(action).__name__, repr(action)))
        self.told.append(sorted(told, key=repr))

    def queue_facts(self):
        queue = self.scheduler._queue
        return [queue.count, queue.size_bytes, *queue.backlog_ms,
                *(queue.ahead_ms(priority) for priority in (HIGH, LOW))]


class Life:
    """What happens to both, from one seed."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        policy = {"max_wait_ms": self.rng.choice((20.0, 2000.0)),
                  "cache_bytes": self.rng.choice((0, 0, 0, 1 << 16))}
        self.both = Twin(True, **policy), Twin(False, **policy)
        self.now, self.job, self.incarnation = 1.0, 1, 1
        self.open = {source: {} for source in SOURCES}      # job → connection
        self.oddity = self.rng.choice((0.0, 0.1, 0.5))
        self.reached = Counter()
        for index in range(2):
            self.hello(index)

    def each(self, what, *given):
        assert self.do(self.both[0], what, *given) == self.do(self.both[1], what, *given)

    def do(self, twin, what, *given):
        return getattr(twin.scheduler, what)(*given)

    def hello(self, index, kind=CPU):
        self.incarnation += 1
        self.each("engine_hello", EngineHello(kind, index, self.incarnation, 1, 2, COSTS))
        for twin in self.both:
            costs = twin.scheduler.pool.costs[kind]
            costs.text_ms, costs.token_ms = 1 / 64, 1 / 32

    def ask(self):
        rng, source = self.rng, self.rng.choice(SOURCES)
        busy = set(self.open[source].values())
        is_odd = rng.random() < self.oddity
        free = [one for one in range(CONNECTIONS) if is_odd or one not in busy]
        connections = rng.sample(free, min(rng.randint(1, MOST_TEXTS), len(free)))
        if not connections:
            return
        jobs = range(self.job, self.job + len(connections))
        self.job += len(connections)
        self.open[source].update(zip(jobs, connections))
        odd = rng.choice(({"priority": HIGH}, {"deadline": self.now + 0.05}, {"sends": 2},
                          {"sends": 7}, {"deaths": 1}, {})) if is_odd else {}
        for twin in self.both:
            twin.lone(source, lone_jobs(jobs, connections, random.Random(self.job), **odd),
                      self.now)

    def ask_many(self):
        """A request of several texts, perhaps in two parts."""
        source, count = self.rng.choice(SOURCES), self.rng.randint(2, 6)
        connection, jobs = self.rng.randrange(CONNECTIONS), []
        for _ in range(count):
            self.open[source][self.job] = connection
            jobs.append(Job(self.job, 30, 30, 0, 1, self.job.to_bytes(4, "little") * 15))
            self.job += 1
        cut = self.rng.randint(1, count)
        for part in filter(None, (jobs[:cut], jobs[cut:])):
            for twin in self.both:
                twin.scheduler.jobs(source, [Group(self.job, connection, LOW, math.inf, count,
                                                   list(part))], self.now)

    def cancel(self):
        source = self.rng.choice(SOURCES)
        if self.open[source]:
            jobs = self.rng.sample(sorted(self.open[source]), 1)
            del self.open[source][jobs[0]]
            self.each("cancel", source, jobs)

    def front_gone(self):
        source = self.rng.choice(SOURCES)
        self.each("front_gone", source)
        self.each("front_hello", source)
        self.open[source].clear()

    def engine(self):
        """One of them answers, fails, or dies."""
        running = self.both[0].running
        key = self.rng.choice(sorted(running)) if running else None
        if not key or not running[key]:
            return
        if self.rng.random() < 0.1 * self.oddity:
            for twin in self.both:
                twin.running.pop(key, None)
            self.each("engine_gone", *key)
            self.each("death", *key, self.rng.random() < 0.5)
            self.hello(key[0], self.rng.choice((CPU, CPU, GPU)))
            self.reached["death"] += 1
            return
        datas = [twin.running[key].pop(0) for twin in self.both]
        assert datas[0] == datas[1]
        batch = codec.decode(datas[0])
        if self.rng.random() < 0.1 * self.oddity:
            self.each("failed", *key, Failed(batch.batch, False, "trap"))
            return
        took_us, texts = self.rng.randint(100, 3000), len(batch.sizes)
        done = Done(batch.batch, took_us, 2, self.rng.randbytes(8 * texts))
        self.each("done", *key, done, self.now)

    def step(self):
        rng = self.rng
        self.now += rng.random() * 0.004
        what = rng.random()
        if what < 0.45:
            self.ask()
        elif what < 0.9 or rng.random() > self.oddity:
            self.engine()
        else:
            rng.choice((self.cancel, self.cancel, self.ask_many, self.front_gone))()
        for twin in self.both:
            twin.act(self.now)
        ours, theirs = self.both
        assert ours.told[-1] == theirs.told[-1]
        assert ours.queue_facts() == pytest.approx(theirs.queue_facts(), abs=1e-6)
        for told in ours.told[-1]:
            if told[0] == "result":
                self.open[told[1]].pop(int.from_bytes(told[2][:8], "little"), None)
        held = [one for jobs in ours.scheduler._by_source.values() for one in jobs.values()]
        self.reached["waiting together"] += any(type(one) is Block for one in held)


def test_blocks_jobs_that_stay_together_fare_as_each_would_alone(monkeypatch):
    monkeypatch.setattr(turns, "MOST_SHARERS", 1)
    reached = Counter()
    for seed in range(40):
        life = Life(seed)
        for _ in range(250):
            life.step()
        reached += life.reached
    assert reached["waiting together"] > 1000 and reached["death"] > 10


@pytest.mark.parametrize("count", range(1, 6))
def test_block_split_keeps_every_job_and_finds_it(count):
    lone, held = lone_jobs(range(5, 10), range(5), random.Random(1)), {}
    scheduler = Scheduler(1, Policy(1))
    scheduler.engine_hello(EngineHello(CPU, 0, 1, 1, 2, COSTS))
    block = Block((0, 1), held, lone, scheduler.pool.costs[CPU], 1.0, 1)
    held.update(dict.fromkeys(lone.jobs, block))
    if count == 5:
        entries = block.expand()
    else:
        first = block.split(count)
        assert (len(first), len(block)) == (count, 5 - count)
        entries = first.expand() + block.expand()
    assert [entry.job for entry in entries] == [5, 6, 7, 8, 9]
    assert [entry.order for entry in entries] == [1, 2, 3, 4, 5]
    assert b"".join(entry.ids for entry in entries) == lone.ids
    assert held == {entry.job: entry for entry in entries}
