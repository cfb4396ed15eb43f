"""A scheduler with one front and engines, and short words for what happens to them."""

import math

from server.dispatch import Policy, RunBatch
from server.messages import LOW, Done, EngineHello, Group, Job
from server.scheduler import Scheduler

FRONT = (0, 100)
COSTS = [(1, 10, 1.0), (1, 100, 10.0), (10, 100, 10.0), (10, 1000, 100.0)]   # 0.1 ms a token


class Desk:
    """A scheduler with one front and `engines` engines, and short words for what happens."""

    def __init__(self, engines=1, **policy):
        self.scheduler = Scheduler(1, Policy(engines, **policy))
        self.scheduler.front_hello(FRONT)
        self.now = 0.0
        self.next_job = 1
        self.running = {}
        self.rows = {}
        self.priority = {}
        for index in range(engines):
            self.join(index, 1)

    def join(self, index, incarnation):
        self.scheduler.engine_hello(EngineHello(0, index, incarnation, 1, 2, COSTS))
        self.running[index, incarnation] = []

    def ask(self, texts=1, tokens=10, connection=1, priority=LOW, deadline=math.inf, sends=1,
            deaths=0, group=None):
        jobs = []
        for _ in range(texts):
            ids = self.next_job.to_bytes(4, "little") * (tokens // 2)
            jobs.append(Job(self.next_job, tokens, tokens, deaths, sends, ids))
            self.rows[ids] = self.next_job
            self.priority[self.next_job] = priority
            self.next_job += 1
        group = group or 1000 + self.next_job
        self.scheduler.jobs(FRONT, [Group(group, connection, priority, deadline, texts, jobs)],
                            self.now)
        return [job.job for job in jobs]

    def act(self):
        """Takes actions; notes batches as running and returns the others by kind."""
        found = {}
        for action in self.scheduler.take_actions(self.now):
            if isinstance(action, RunBatch):
                self.running[action.engine, action.incarnation].append(action.batch)
            found.setdefault(type(action), []).append(action)
        return found

    def jobs_at(self, index, incarnation=1):
        return [[self.rows[row.ids] for row in batch.rows]
                for batch in self.running[index, incarnation]]

    def finish(self, index=0, incarnation=1, ms=1):
        batch = self.running[index, incarnation].pop(0)
        assert self.scheduler.done(index, incarnation, Done(
            batch.batch, ms * 1000, 2, b"\0" * 8 * len(batch.rows)), self.now)
        return self.act()

    def die(self, index=0, incarnation=1, fault=None):
        self.scheduler.engine_gone(index, incarnation)
        if fault is not None:
            self.scheduler.death(index, incarnation, fault)
        return self.act()
