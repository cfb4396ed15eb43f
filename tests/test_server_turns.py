"""Turns go round the connections by the work they got, and nothing is kept of the served."""

import math
import random

import pytest

from server.messages import LOW
from server.turns import GONE, MOST_SHARERS, RUNNING, Entry, Turns

NO_SLACK = 0.0


def anything(entry):
    return True


def to(size):
    """Fits what has at most `size` bytes of ids."""
    return lambda entry: len(entry.ids) <= size


def take(turns, now=0.0, slack_s=NO_SLACK, fits=anything):
    """The next job's entry, discounted as the queue does."""
    found = turns.take(now, slack_s, fits)
    if found is not None:
        turns.discount(found)
    return found


def entry(job, connection=1, cost_ms=1.0, deadline=math.inf, size=4):
    return Entry((0, 1), job, job, connection, LOW, deadline, 0.0, job, 2, 2, b"\0" * size,
                 cost_ms, 0, False)


def order(turns, now=0.0, count=99):
    taken = []
    while len(taken) < count:
        found = take(turns, now)
        if found is None:
            break
        taken.append(found.job)
    return taken


def test_turns_connections_alternate_by_work_not_by_arrival():
    turns = Turns()
    for job in range(6):
        turns.put(entry(job, connection=1, cost_ms=1.0))
    turns.put(entry(10, connection=2, cost_ms=3.0))
    turns.put(entry(11, connection=2, cost_ms=3.0))
    assert order(turns) == [0, 10, 1, 2, 11, 3, 4, 5]


def test_turns_connections_with_one_text_each_go_as_they_came_however_long():
    turns, chance = Turns(), random.Random(7)
    waiting, taken = [], []
    for job in range(500):
        turns.put(entry(job, connection=job, cost_ms=chance.choice((0.5, 1.0, 40.0))))
        waiting.append(job)
        if chance.random() < 0.5:
            taken += order(turns, count=1)
    assert taken + order(turns, count=500) == waiting


@pytest.mark.parametrize("seed", range(5))
def test_turns_one_greedy_connection_costs_the_others_one_job_of_its_own(seed):
    turns, chance = Turns(), random.Random(seed)
    for job in range(2000):
        turns.put(entry(job, connection=0, cost_ms=5.0))
    came, waited = {}, []
    for moment in range(1000):
        if chance.random() < 0.4:
            turns.put(entry(10_000 + moment, connection=moment + 1, cost_ms=1.0))
            came[10_000 + moment] = moment
        job = take(turns).job
        if job in came:
            waited.append(moment - came.pop(job))
    assert len(waited) > 300 and max(waited) <= 2 and len(came) <= 1


def test_turns_within_a_connection_deadline_then_arrival():
    turns = Turns()
    for job, deadline in ((1, math.inf), (2, 9.0), (3, 5.0), (4, math.inf)):
        turns.put(entry(job, deadline=deadline))
    assert order(turns) == [3, 2, 1, 4]


def test_turns_late_job_is_passed_by():
    turns = Turns()
    turns.put(entry(1, deadline=1.0))
    turns.put(entry(2, connection=2))
    assert order(turns, now=1.0) == [2]


def test_turns_job_without_room_stays_first_and_pays_once():
    turns = Turns()
    turns.put(entry(1, connection=1, size=100, deadline=50.0))
    turns.put(entry(2, connection=2))
    assert take(turns, fits=to(50)) is None
    assert take(turns, 0.0, 60.0, to(50)) is None        # the same for one that would jump
    assert [take(turns, fits=to(100)).job, take(turns, fits=to(100)).job] == [1, 2]
    assert take(turns, fits=to(100)) is None


def test_turns_jump_is_paid_by_its_connection():
    turns = Turns()
    turns.put(entry(1, connection=1, cost_ms=2.0))
    turns.put(entry(2, connection=1, cost_ms=2.0, deadline=0.01))
    for job in (3, 4, 5):
        turns.put(entry(job, connection=2, cost_ms=1.0))
    assert take(turns, 0.0, 0.02).job == 2
    assert order(turns) == [3, 4, 1, 5]


def test_turns_rest_earns_no_credit():
    turns = Turns()
    for job in range(8):
        turns.put(entry(job, connection=1))
    assert order(turns, count=4) == [0, 1, 2, 3]
    for job in range(20, 24):
        turns.put(entry(job, connection=2))
    assert order(turns) in ([4, 20, 5, 21, 6, 22, 7, 23], [20, 4, 21, 5, 22, 6, 23, 7])


def test_turns_new_connections_keep_an_old_one_waiting_for_a_multiple_of_its_own_work():
    turns, backlog, own = Turns(), 100, 5
    for job in range(own):
        turns.put(entry(job, connection=0))
    for job in range(1000, 1000 + backlog):
        turns.put(entry(job, connection=job))
    taken = []
    for job in range(2000, 2500):       # two new connections whenever somebody was served
        turns.put(entry(job, connection=job))
        turns.put(entry(1000 + job, connection=1000 + job))
        taken.append(take(turns).job)
    done = [place for place, job in enumerate(taken) if job < own]
    assert len(done) == own and done[-1] <= 2 * backlog + MOST_SHARERS * own
    assert done[-1] > backlog           # or its own work would have weighed nothing


def test_turns_newcomer_has_one_job_ahead_of_one_that_asks_for_much():
    turns = Turns()
    for job in range(100):
        turns.put(entry(job, connection=1, cost_ms=9.0))
    assert turns.ahead_ms((0, 1), 2) == 9.0 and turns.ahead_ms((0, 1), 1) == 909.0
    assert take(turns).job == 0
    turns.put(entry(500, connection=2))
    assert take(turns).job == 500


def test_turns_work_ahead_is_forgotten_with_what_is_cancelled():
    turns = Turns()
    cancelled = [entry(job, connection=job) for job in range(5)]
    for job in cancelled:
        turns.put(job)
    turns.put(entry(9, connection=9, cost_ms=2.0))
    for job in cancelled:
        turns.discount(job)
        job.where = GONE
    assert turns.ahead_ms((0, 1), 77) == 2.0 and turns.waiting((0, 1), 3) == 0
    turns.put(entry(10, connection=3))
    assert [take(turns).job, take(turns).job] == [9, 10] and turns.ahead_ms((0, 1), 77) == 0.0


def test_turns_late_jobs_do_not_hide_a_later_one_of_their_connection():
    turns = Turns()
    turns.put(entry(1, deadline=1.0))
    assert take(turns, now=1.0) is None             # its front has not cancelled it yet
    turns.put(entry(2))
    assert take(turns, now=1.0).job == 2


def test_turns_jumps_leave_half_to_the_others():
    turns = Turns()
    for job in range(20):
        turns.put(entry(job, connection=job))
        turns.put(entry(100 + job, connection=99, deadline=0.01))
    taken = [take(turns, 0.0, 0.02).job for _ in range(20)]
    assert taken[0] == 100 and sum(job < 100 for job in taken) == 10


def test_turns_many_short_lived_connections_leave_nothing_behind():
    turns = Turns()
    turns.put(entry(0, connection=0))
    for job in range(1, 5000):          # one always waits, so that the queue is never empty
        turns.put(entry(job, connection=job, deadline=1e6 + job))
        taken = take(turns)
        assert taken.where == RUNNING
    assert len(turns._flows) < 10 and len(turns._due) < 10 and len(turns._urgent) < 10
