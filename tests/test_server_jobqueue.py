"""What makes the next batch: class, share, milliseconds and bytes."""

import math

from server.costs import CostModel
from server.jobqueue import BATCH_CAP_MS, LONG_MS, JobQueue
from server.messages import HIGH, LOW, ROW_LIMIT_BYTES
from server.turns import RUNNING, Entry

COSTS = CostModel([(1, 10, 1.0), (1, 100, 10.0), (10, 100, 10.0), (10, 1000, 100.0)])


def entry(job, priority=LOW, tokens=10, deadline=math.inf, size=20, connection=1):
    return Entry((0, 1), job, job, connection, priority, deadline, 0.0, job, tokens, tokens,
                 b"\0" * size, tokens / 10, 0, False)


def choose(queue, rows=1000, now=0.0):
    return [entry.job for entry in queue.choose_suspects(COSTS, rows, now)
            or queue.choose(COSTS, rows, 1.0, BATCH_CAP_MS, now)]


def test_jobqueue_batch_keeps_to_the_message_and_forgets_nobody():
    queue = JobQueue(0.8)
    for job in range(100):
        # Deadlines far off, so that each job stands in two heaps.
        queue.put(entry(job, tokens=2, size=2000, deadline=1000.0))
    seen = []
    while queue.count:
        batch = queue.choose(COSTS, 1000, 1.0, BATCH_CAP_MS, 0.0)
        assert 0 < sum(len(one.ids) for one in batch) <= ROW_LIMIT_BYTES
        assert all(one.where == RUNNING for one in batch)
        seen += [one.job for one in batch]
    assert sorted(seen) == list(range(100)) and queue.size_bytes == 0


def test_jobqueue_low_batches_are_whole_again_after_high_has_gone():
    queue = JobQueue(0.8)
    third = entry(1, HIGH, tokens=1)
    for job, cost in enumerate((0.1, 0.2, 0.3)):        # 0.1 + 0.2 + 0.3 - 0.1 - 0.2 - 0.3 > 0
        high = entry(job, HIGH)
        high.cost_ms = cost
        queue.put(high)
    for job in range(100, 200):
        queue.put(entry(job, LOW, tokens=10))
    choose(queue, rows=3)
    assert queue.backlog_ms[HIGH] == 0.0
    assert len(choose(queue)) >= BATCH_CAP_MS - 1
    queue.put(third)
    assert choose(queue)[0] == 1


def test_jobqueue_suspects_run_alone_and_first():
    queue = JobQueue(0.8)
    queue.put(entry(1, HIGH))
    suspect = entry(2)
    suspect.is_alone = True
    queue.put(suspect)
    assert choose(queue) == [2] and choose(queue) == [1]


def test_jobqueue_long_text_joins_no_batch_that_it_makes_longer_than_the_cap():
    queue = JobQueue(0.8)
    for job, tokens in enumerate((20, 300, 20, 4)):     # a token takes 0.1 ms
        queue.put(entry(job, tokens=tokens, connection=job))
    assert [choose(queue) for _ in range(3)] == [[0, 1, 2, 3], [], []]
    for job, tokens in enumerate((200, 300, 20, 4)):
        queue.put(entry(10 + job, tokens=tokens, connection=10 + job))
    assert [choose(queue) for _ in range(3)] == [[10], [11, 12, 13], []]


def test_jobqueue_batch_with_a_guest_is_kept_short_by_who_has_more_waiting():
    queue = JobQueue(0.8)
    for job in range(60):                               # a millisecond each
        queue.put(entry(job, connection=1))
    for job in range(100, 110):
        queue.put(entry(job, connection=job))           # those who have one
    first, second = choose(queue), choose(queue)
    assert {job for job in first if job >= 100} == set(range(100, 110))
    assert LONG_MS - 1 <= len(first) <= LONG_MS
    assert BATCH_CAP_MS - 1 <= len(second)              # of the greedy one alone
    for job in range(200, 260):
        queue.put(entry(job, connection=job))
    assert len(choose(queue)) >= BATCH_CAP_MS - 1       # guests among themselves
