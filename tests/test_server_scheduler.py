"""The dispatcher's order: admission, turns, classes, deadlines."""

import math
import random

import pytest

from server.dispatch import Measured, RunBatch, SendRefused, SendResults, SendState
from server.filling import DEEP_CAP_MS, HIGH_NEAR_S
from server.jobqueue import BATCH_CAP_MS
from server.messages import HIGH, LOW, Group, Job, Reason
from tests.scheduler_desk import FRONT, Desk


def test_scheduler_idle_engine_gets_a_job_at_once():
    desk = Desk()
    jobs = desk.ask()
    desk.act()
    assert desk.jobs_at(0) == [jobs]
    (results,) = desk.finish()[SendResults]
    assert [r.job for r in results.results] == jobs and results.source == FRONT


def test_scheduler_two_idle_engines_share_the_work():
    desk = Desk(engines=2)
    desk.ask(texts=2, tokens=100)
    desk.act()
    assert [len(batch) for index in (0, 1) for batch in desk.jobs_at(index)] == [1, 1]


@pytest.mark.parametrize("texts, priority, cap_ms", [
    (9, LOW, 90.0), (100, LOW, DEEP_CAP_MS), (100, HIGH, BATCH_CAP_MS)])
def test_scheduler_batch_takes_as_long_as_the_queue_waits_anyway_but_not_beside_high_jobs(
        texts, priority, cap_ms):
    desk = Desk()
    for connection in range(texts):
        desk.ask(tokens=100, connection=connection, priority=priority)
    desk.act()
    (batch,) = desk.jobs_at(0)                          # 10 ms a text
    assert (len(batch) - 1) * 10 < cap_ms <= len(batch) * 10


def test_scheduler_one_clients_backlog_makes_no_batch_longer_for_the_others():
    desk = Desk()
    desk.ask(texts=100, tokens=100)
    desk.act()
    (batch,) = desk.jobs_at(0)
    assert (len(batch) - 1) * 10 < BATCH_CAP_MS <= len(batch) * 10


@pytest.mark.parametrize("later_s, cap_ms", [
    (HIGH_NEAR_S - 1, BATCH_CAP_MS), (HIGH_NEAR_S + 1, DEEP_CAP_MS)])
def test_scheduler_high_jobs_that_came_lately_keep_low_batches_short(later_s, cap_ms):
    desk = Desk()
    desk.ask(priority=HIGH)
    desk.act()
    desk.finish()
    desk.now = later_s
    for connection in range(100):
        desk.ask(tokens=100, connection=connection)
    desk.act()
    (batch,) = desk.jobs_at(0)
    assert (len(batch) - 1) * 10 < cap_ms <= len(batch) * 10


def test_scheduler_short_batches_are_sent_ahead():
    short = Desk()
    short.ask(tokens=10)
    short.act()
    short.ask(tokens=10)
    short.ask(tokens=10)
    short.act()
    assert [len(batch) for batch in short.jobs_at(0)] == [1, 2]


def test_scheduler_turns_go_round_the_connections():
    desk = Desk()
    flood = desk.ask(texts=50, tokens=100, connection=1)
    desk.act()
    (other,) = desk.ask(tokens=100, connection=2)
    desk.finish(ms=25)
    assert other in desk.jobs_at(0)[0] and flood[0] not in desk.jobs_at(0)[0]


def test_scheduler_high_goes_first_but_not_beyond_its_share():
    desk = Desk(high_share=0.8, max_wait_ms=1e9)
    for number in range(60):
        desk.ask(tokens=450, connection=number, priority=LOW)
        desk.ask(tokens=450, connection=number, priority=HIGH)
        desk.ask(tokens=450, connection=number, priority=HIGH)
        desk.ask(tokens=450, connection=number, priority=HIGH)
        desk.ask(tokens=450, connection=number, priority=HIGH)
    order = []
    desk.act()
    for _ in range(100):
        order += desk.jobs_at(0)[0]
        desk.finish(ms=45)
    high = sum(job % 5 != 1 for job in order) / len(order)
    assert order[0] % 5 != 1 and 0.75 <= high <= 0.85


def test_scheduler_wait_over_the_limit_refuses_with_when_to_come_back():
    desk = Desk(max_wait_ms=100)
    desk.ask(texts=50, tokens=100)          # an empty queue takes any group
    assert SendRefused not in desk.act()
    desk.ask()
    (refused,) = desk.act()[SendRefused]
    assert refused.refusal.reason == Reason.WAIT and 300 < refused.refusal.retry_ms < 500
    desk.ask(priority=HIGH)                 # low work is not ahead of it
    assert SendRefused not in desk.act()


def test_scheduler_group_sent_again_is_never_refused():
    desk = Desk(max_wait_ms=100)
    desk.ask(texts=50, tokens=100)
    desk.ask(sends=2)
    assert SendRefused not in desk.act()


def test_scheduler_full_queue_refuses_groups_whole():
    desk = Desk(max_jobs=10, max_wait_ms=1e9)
    desk.ask(texts=9, tokens=1000)
    desk.act()                              # one runs, eight wait
    desk.ask(texts=3, connection=2)
    (refused,) = desk.act()[SendRefused]
    assert refused.refusal.reason == Reason.FULL
    desk.ask(texts=2, connection=2)
    assert SendRefused not in desk.act()


def test_scheduler_connection_with_half_of_the_places_leaves_the_rest_to_others():
    desk = Desk(max_jobs=100, max_wait_ms=1e9)
    desk.ask(texts=51, tokens=1000)
    desk.act()                              # one runs, fifty wait
    desk.ask(texts=1)
    (refused,) = desk.act()[SendRefused]
    assert refused.refusal.reason == Reason.FULL
    desk.ask(texts=40, connection=2)
    assert SendRefused not in desk.act()


def test_scheduler_large_request_makes_nobody_else_wait_or_come_back():
    desk = Desk()
    desk.ask(texts=256, tokens=512, connection=1)       # 13 s of work
    desk.act()
    desk.ask(tokens=10, connection=1)
    (refused,) = desk.act()[SendRefused]
    assert refused.refusal.reason == Reason.WAIT and refused.refusal.retry_ms > 10_000
    (small,) = desk.ask(tokens=10, connection=2)
    assert SendRefused not in desk.act()
    desk.finish(ms=51)
    assert small in desk.jobs_at(0)[0]


def test_scheduler_group_that_could_not_end_in_time_is_refused():
    desk = Desk(max_age_s=60.0)
    for connection in (1, 2):
        desk.ask(texts=256, tokens=512, connection=connection)
    assert SendRefused not in desk.act()                # 26 s of work
    desk.ask(texts=256, tokens=512, connection=3)
    (refused,) = desk.act()[SendRefused]
    assert refused.refusal.reason == Reason.WAIT and 8_000 < refused.refusal.retry_ms < 24_000


def test_scheduler_deadline_shorter_than_the_wait_refuses():
    desk = Desk()
    desk.ask(texts=10, tokens=100, connection=1)
    desk.ask(connection=1, deadline=0.05)
    (refused,) = desk.act()[SendRefused]
    assert refused.refusal.reason == Reason.DEADLINE
    desk.ask(connection=1, deadline=0.5)
    desk.ask(connection=2, deadline=0.05)   # has a turn before the others' last
    assert SendRefused not in desk.act()


def test_scheduler_deadline_passed_no_batch_takes_it():
    desk = Desk()
    desk.ask(tokens=300)
    desk.act()
    (late,) = desk.ask(tokens=10, deadline=0.06)
    desk.now = 0.07
    assert RunBatch not in desk.finish(ms=70)
    desk.scheduler.cancel(FRONT, [late])
    assert desk.scheduler.wait_ms(LOW) == 0.0


def test_scheduler_job_near_its_deadline_jumps_the_turn():
    desk = Desk()
    desk.ask(tokens=300, connection=1)
    desk.act()
    for connection in range(2, 12):
        desk.ask(tokens=300, connection=connection)
    (urgent,) = desk.ask(tokens=100, connection=99, deadline=0.5)
    desk.now = 0.46
    desk.finish(ms=30)
    assert urgent in desk.jobs_at(0)[0]


def test_scheduler_cancelled_job_never_runs():
    desk = Desk()
    desk.ask(tokens=300)
    desk.act()
    gone, kept = desk.ask(texts=2)
    desk.scheduler.cancel(FRONT, [gone])
    desk.finish(ms=30)
    assert desk.jobs_at(0) == [[kept]]


def test_scheduler_parts_of_a_group_wait_for_the_last():
    desk = Desk()
    first, second = (Job(n, 2, 2, 0, 1, b"\1\0") for n in (1, 2))
    desk.scheduler.jobs(FRONT, [Group(5, 1, LOW, math.inf, 2, [first])], 0.0)
    assert RunBatch not in desk.act()
    desk.scheduler.jobs(FRONT, [Group(5, 1, LOW, math.inf, 2, [second])], 0.0)
    (run,) = desk.act()[RunBatch]
    assert len(run.batch.rows) == 2


def test_scheduler_dead_front_takes_its_jobs_along():
    desk = Desk()
    desk.ask(tokens=300)
    desk.act()
    desk.ask(texts=5)
    desk.scheduler.front_gone(FRONT)
    acted = desk.finish(ms=30)
    assert SendResults not in acted and RunBatch not in acted


def test_scheduler_same_front_on_a_new_link_gets_no_result_twice():
    desk = Desk()
    desk.ask()
    desk.act()
    desk.scheduler.front_hello(FRONT)
    desk.scheduler.jobs(FRONT, [Group(1, 1, LOW, math.inf, 1, [Job(1, 10, 10, 0, 2, b"\1\0")])],
                        0.0)
    assert SendResults not in desk.finish()


def test_scheduler_state_is_sent_at_most_every_fifty_milliseconds():
    desk = Desk(max_wait_ms=1e9)
    assert SendState in desk.act()
    states = 0
    for step in range(1000):
        desk.now = step / 1000
        desk.ask(tokens=300, connection=step)
        states += len(desk.act().get(SendState, []))
    assert 15 <= states <= 21
    assert desk.scheduler.next_timer(desk.now) >= desk.now


def test_scheduler_random_work_is_all_answered_once():
    for seed in range(20):
        rng = random.Random(seed)
        desk = Desk(engines=2, max_wait_ms=1e9)
        asked, answered, lives = set(), [], {0: 1, 1: 1}
        for _ in range(400):
            desk.now += rng.random() / 100
            choice = rng.random()
            if choice < 0.5:
                asked.update(desk.ask(rng.randint(1, 5), rng.choice((4, 40, 400)),
                                      rng.randint(1, 9), rng.randint(0, 1)))
                acted = desk.act()
            else:
                index = rng.randint(0, 1)
                if choice > 0.97:
                    acted = desk.die(index, lives[index], fault=False)
                    lives[index] += 1
                    desk.join(index, lives[index])
                elif desk.running[index, lives[index]]:
                    acted = desk.finish(index, lives[index])
                else:
                    acted = desk.act()
            answered += [r.job for a in acted.get(SendResults, []) for r in a.results]
        desk.act()
        while any(desk.running[index, lives[index]] for index in lives):
            for index in lives:
                if desk.running[index, lives[index]]:
                    acted = desk.finish(index, lives[index])
                    answered += [r.job for a in acted.get(SendResults, []) for r in a.results]
        assert sorted(answered) == sorted(asked)
        assert desk.scheduler.wait_ms(LOW) == 0.0


def test_scheduler_finished_batch_is_measured():
    desk = Desk()
    desk.ask(tokens=300)
    desk.act()
    desk.ask(texts=2, priority=HIGH)
    desk.now = 0.03
    desk.finish(ms=30)
    desk.now = 0.04
    (measured,) = desk.finish(ms=2)[Measured]
    assert (measured.size, measured.tokens) == (2, 20)
    assert measured.queued_s == ([(0.03, 1), (0.03, 1)], [])
