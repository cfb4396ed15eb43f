"""Who is let in at a glance is let in after a close look too."""

import math
import random

import pytest

from server.admission import Work, is_let_in, refusal
from server.dispatch import Policy
from server.jobqueue import JobQueue
from server.messages import HIGH, LOW, Group, Job
from server.turns import Entry

FRONT = (0, 1)


def queue_of(chance, jobs, share):
    """A queue with jobs of both classes and some suspects, on few connections."""
    queue = JobQueue(share)
    for job in range(jobs):
        queue.put(Entry(FRONT, job, job, chance.randrange(5), chance.choice((HIGH, LOW)), math.inf,
                        0.0, job, 2, 2, b"\0" * chance.randrange(2, 40), chance.uniform(0.1, 90.0),
                        0, chance.random() < 0.1))
    return queue


@pytest.mark.parametrize("seed", range(5))
def test_admission_let_in_at_a_glance_is_never_refused_by_the_rules(seed):
    chance, seen = random.Random(seed), [0, 0]
    for _ in range(400):
        queue = queue_of(chance, chance.randrange(20), chance.choice((0.5, 0.8, 1.0)))
        policy = Policy(1, max_wait_ms=chance.choice((0.0, 50.0, 500.0)),
                        max_jobs=chance.choice((1, 20, 60)), max_bytes=chance.choice((40, 4000)))
        texts, drain = chance.choice((1, 1, 2)), chance.uniform(0.1, 3.0)
        group = Group(1000, chance.randrange(6), chance.choice((HIGH, LOW)),
                      chance.choice((math.inf, math.inf, 1.0)), texts,
                      [Job(1000 + place, 5, 5, 0, 1, b"0123456789") for place in range(texts)])
        if is_let_in(queue, policy, group, drain):
            assert refusal(queue, policy, FRONT, group, 0.0, Work(texts * 3.0, 9.0, drain)) is None
        else:
            seen[refusal(queue, policy, FRONT, group, 0.0,
                         Work(texts * 3.0, 9.0, drain)) is None] += 1
    assert all(seen), "both kinds of a close look came up"
