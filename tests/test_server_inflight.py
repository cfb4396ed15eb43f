"""A front's requests in flight: one answer each, whatever the dispatcher does."""

import random

import pytest

from server.actions import Finish, SendCancel, SendGroups, SendHello
from server.inflight import NEVER, InFlight, Limits
from server.messages import (CACHE, CPU, HIGH, LOW, RESULT_OK, Note, Notes, Reason, Refusal,
                             Refused, Result, Results, Row, State)

ROW = Row(3, 3, b"\1\0\2\0\3\0")


def ready(limits=None):
    held = InFlight(0, 7, 1, limits or Limits(), 0.0)
    held.set_ready(0.0)
    held.link_up(0.0)
    assert isinstance(held.take_actions()[0], SendHello)
    held.receive(State(True, 2, 1, 0.0, 0.0), 0.0)
    return held


def sent(held):
    """The (group, job, sends) that the next actions send."""
    return [(group.group, job.job, job.sends) for action in held.take_actions()
            if isinstance(action, SendGroups) for group in action.groups for job in group.jobs]


def finished(held):
    return [(action.group, action.outcome.kind) for action in held.take_actions()
            if isinstance(action, Finish)]


def result(job, status=0):
    return Results([Result(job, status, 0, 0, 1, 10, 20, b"\0\0\0\0")])


def test_inflight_results_of_all_rows_finish_the_group_once():
    held = ready()
    held.open(1, 9, LOW, None, [ROW, ROW], 0.0)
    assert sent(held) == [(1, 1, 1), (1, 2, 1)]
    held.receive(result(2), 0.1)
    assert finished(held) == []
    held.receive(result(1), 0.1)
    held.receive(result(1), 0.2)
    (action,) = held.take_actions()
    assert [r.job for r in action.outcome.results] == [1, 2]
    assert held.stale_results == 1 and held.open_jobs == held.open_groups == 0


def test_inflight_new_link_sends_open_jobs_again_in_arrival_order():
    held = ready()
    for number in (1, 2, 3):
        held.open(number, 9, LOW, None, [ROW], 0.0)
    sent(held)
    held.receive(result(2), 0.0)
    assert finished(held) == [(2, "ok")]
    held.link_down(0.1)
    held.open(4, 9, LOW, None, [ROW], 0.1)
    assert sent(held) == []
    held.link_up(0.2)
    assert sent(held) == [(1, 1, 2), (3, 3, 2), (4, 4, 1)]


def test_inflight_link_lost_in_the_same_turn_leaves_nothing_to_send():
    held = InFlight(0, 7, 1, Limits(), 0.0)
    held.link_up(0.0)
    held.open(1, 9, LOW, 0.5, [ROW], 0.0)
    held.tick(1.0)
    held.link_down(0.0)
    assert [type(action) for action in held.take_actions()] == [Finish]


def next_dispatcher(held, died, is_fault, verdict_first=False):
    """The dispatcher of that incarnation dies; its successor's STATE is here."""
    if verdict_first:
        held.dispatcher_died(died, is_fault)
    held.link_down(0.0)
    if not verdict_first:
        held.dispatcher_died(died, is_fault)
    held.link_up(0.0)
    held.receive(State(True, 2, died + 1, 0.0, 0.0), 0.0)


def test_inflight_job_sent_five_times_travels_alone_and_is_blamed_after_three_faults():
    held = ready()
    for number in (1, 2):
        held.open(number, 9, LOW, None, [ROW], 0.0)
    for life in range(1, 6):
        assert len(sent(held)) == 2
        next_dispatcher(held, life, True)
    for life in (6, 7, 8):
        assert [job for _, job, _ in sent(held)] == [1]
        assert held.next_timer(0.0) > 0.0
        next_dispatcher(held, life, True, verdict_first=life != 6)
    actions = held.take_actions()
    assert [a.group for a in actions if isinstance(a, Finish)] == [1]
    assert [g.group for a in actions if isinstance(a, SendGroups) for g in a.groups] == [2]
    held.receive(result(2), 0.0)
    assert finished(held) == [(2, "ok")]


def test_inflight_suspect_waits_until_the_dispatcher_says_which_life_it_is():
    held = ready()
    held.open(1, 9, LOW, None, [ROW], 0.0)
    for life in range(1, 6):
        sent(held)
        next_dispatcher(held, life, True)
    sent(held)
    held.link_down(0.0)
    held.link_up(0.0)
    assert sent(held) == [] and held.next_timer(0.0) > 0.0
    held.receive(State(False, 0, 7, 0.0, 0.0), 0.0)
    assert held.next_timer(0.0) == 0.0 and len(sent(held)) == 1


def test_inflight_late_verdict_on_an_older_dispatcher_blames_nobody():
    held = ready()
    held.open(1, 9, LOW, None, [ROW], 0.0)
    for life in range(1, 6):
        sent(held)
        held.link_down(0.0)
        held.link_up(0.0)
        held.receive(State(True, 2, life + 1, 0.0, 0.0), 0.0)
    assert len(sent(held)) == 1             # alone at the sixth, which lives
    for life in range(1, 6):
        held.dispatcher_died(life, True)
    held.receive(result(1), 0.0)
    assert finished(held) == [(1, "ok")]


def test_inflight_outside_kills_of_the_dispatcher_blame_nobody():
    held = ready()
    held.open(1, 9, LOW, None, [ROW], 0.0)
    for life in range(1, 41):
        assert len(sent(held)) == 1
        next_dispatcher(held, life, False)
    held.receive(result(1), 0.0)
    assert (1, "ok") in finished(held)


def test_inflight_three_faults_noted_fail_the_group_and_cancel_its_rest():
    held = ready()
    held.open(1, 9, LOW, None, [ROW, ROW], 0.0)
    sent(held)
    held.receive(Notes([Note(1, 2)]), 0.0)
    assert finished(held) == []
    held.receive(Notes([Note(1, 3)]), 0.0)
    actions = held.take_actions()
    assert [a.outcome.kind for a in actions if isinstance(a, Finish)] == ["failed"]
    assert [a.cancel.jobs for a in actions if isinstance(a, SendCancel)] == [[1, 2]]


def test_inflight_blame_outlives_the_dispatcher():
    held = ready()
    held.open(1, 9, LOW, None, [ROW], 0.0)
    held.take_actions()
    held.receive(Notes([Note(1, 2)]), 0.0)
    held.link_down(0.0)
    held.link_up(0.0)
    (job,) = [job for action in held.take_actions() if isinstance(action, SendGroups)
              for group in action.groups for job in group.jobs]
    assert job.deaths == 2


def test_inflight_partial_group_keeps_the_other_rows():
    held = ready()
    held.open(1, 9, LOW, None, [ROW, ROW], 0.0, partial=True)
    sent(held)
    held.receive(result(1, status=1), 0.0)
    held.receive(result(2), 0.0)
    (action,) = held.take_actions()
    assert action.outcome.kind == "ok" and action.outcome.results[0] is None
    assert action.outcome.results[1].job == 2


def test_inflight_deadline_passed_finishes_and_cancels():
    held = ready()
    held.open(1, 9, LOW, 1.0, [ROW], 0.0)
    held.open(2, 9, LOW, 5.0, [ROW], 0.0)
    sent(held)
    assert held.next_timer(0.0) == 1.0
    held.tick(0.99)
    assert held.take_actions() == []
    held.tick(1.0)
    actions = held.take_actions()
    assert [(a.group, a.outcome.kind) for a in actions if isinstance(a, Finish)] == [
        (1, "deadline")]
    assert [a.cancel.jobs for a in actions if isinstance(a, SendCancel)] == [[1]]
    assert held.next_timer(1.0) == 5.0


def test_inflight_age_passed_finishes():
    held = ready(Limits(max_age_s=60))
    held.open(1, 9, LOW, None, [ROW], 3.0)
    sent(held)
    assert held.next_timer(3.0) == 63.0
    held.tick(62.9)
    assert finished(held) == []
    held.tick(63.0)
    assert finished(held) == [(1, "aged")]


def test_inflight_refused_group_finishes_with_when_to_come_back():
    held = ready()
    held.open(1, 9, LOW, None, [ROW], 0.0)
    sent(held)
    held.receive(Refused([Refusal(1, Reason.WAIT, 1500), Refusal(99, Reason.FULL, 1)]), 0.0)
    (action,) = [a for a in held.take_actions() if isinstance(a, Finish)]
    assert (action.outcome.kind, action.outcome.reason, action.outcome.retry_ms) == (
        "refused", "wait", 1500)


def test_inflight_client_gone_cancels_and_answers_nothing():
    held = ready()
    held.open(1, 9, LOW, None, [ROW, ROW], 0.0)
    sent(held)
    held.cancel(1)
    held.cancel(1)
    (action,) = held.take_actions()
    assert action.cancel.jobs == [1, 2]
    held.receive(result(1), 0.0)
    assert held.take_actions() == [] and held.stale_results == 1


@pytest.mark.parametrize("priority,state,kind", [
    (LOW, State(True, 2, 1, 0.0, 0.0), None), (LOW, State(True, 2, 1, 0.0, 2500.0), "refused"),
    (HIGH, State(True, 2, 1, 0.0, 2500.0), None), (HIGH, State(True, 2, 1, 2001.0, 0), "refused"),
])
def test_inflight_known_backlog_refuses_before_tokenising(priority, state, kind):
    held = ready()
    held.receive(state, 0.0)
    outcome = held.early_refusal(priority, 0.0)
    assert (outcome and outcome.kind) == kind


def test_inflight_with_a_cache_the_dispatcher_is_asked_though_much_waits():
    held = InFlight(0, 7, 1, Limits(max_jobs=2, cache_bytes=1), 0.0)
    held.link_up(0.0)
    held.receive(State(True, 1, 1, 0.0, 9000.0), 0.0)
    for number in range(4):
        assert held.early_refusal(LOW, 0.0) is None
        held.open(number, 9, LOW, None, [ROW], 0.0)
    assert held.early_refusal(LOW, 0.0).reason == "full"


def test_inflight_text_known_here_is_answered_without_the_dispatcher():
    held = InFlight(0, 7, 1, Limits(cache_bytes=1 << 20), 0.0)
    held.link_up(0.0)
    held.receive(State(True, 1, 1, 0.0, 0.0), 0.0)
    other = Row(ROW.tokens, ROW.split - 1, ROW.ids)
    for group, kind in ((1, CPU), (2, CACHE)):
        held.open(group, 9, LOW, None, [ROW], 0.0)
        held.receive(Results([Result(group, RESULT_OK, kind, 0, 1, 0, 0, b"same")]), 0.0)
    held.take_actions()
    held.open(3, 9, LOW, None, [ROW, ROW], 0.0)
    assert held.next_timer(0.0) == 0.0
    (finish,) = held.take_actions()
    assert (finish.group, finish.outcome.kind, held.hits) == (3, "ok", 2)
    assert [(one.kind, one.logits) for one in finish.outcome.results] == [(CACHE, b"same")] * 2
    held.open(4, 9, LOW, None, [ROW, other], 0.0)       # a part is known, the other split is not
    (send,) = held.take_actions()
    (job,) = send.groups[0].jobs
    assert job.split == other.split
    held.receive(Results([Result(job.job, RESULT_OK, CPU, 0, 1, 0, 0, b"else")]), 0.0)
    (finish,) = held.take_actions()
    assert [one.logits for one in finish.outcome.results] == [b"same", b"else"]


def test_inflight_answer_that_no_cache_gave_is_not_kept():
    held = InFlight(0, 7, 1, Limits(cache_bytes=1 << 20), 0.0)
    held.link_up(0.0)
    for group in (1, 2):
        held.open(group, 9, LOW, None, [ROW], 0.0)
        assert any(isinstance(action, SendGroups) for action in held.take_actions())
        held.receive(Results([Result(group, RESULT_OK, CPU, 0, 1, 0, 0, b"same")]), 0.0)
    assert held.hits == 0


def test_inflight_before_first_ready_refuses_and_after_it_queues_until_the_outage():
    held = InFlight(0, 7, 1, Limits(outage_s=10), 0.0)
    assert held.early_refusal(LOW, 0.0).kind == "not_ready"
    held.link_up(0.0)
    held.receive(State(True, 1, 1, 0.0, 0.0), 1.0)
    assert held.early_refusal(LOW, 100.0) is None
    held.link_down(100.0)
    assert held.early_refusal(LOW, 109.0) is None
    assert held.early_refusal(LOW, 110.1).kind == "outage"
    held.link_up(111.0)
    held.receive(State(True, 0, 2, 0.0, 0.0), 111.0)
    assert held.early_refusal(LOW, 111.0).kind == "outage"
    held.receive(State(True, 1, 2, 0.0, 0.0), 112.0)
    assert held.early_refusal(LOW, 112.0) is None


def test_inflight_full_front_resends_in_slices():
    held = ready()
    for number in range(1000):
        held.open(number, 9, LOW, None, [ROW], 0.0)
    total = 0
    while held.next_timer(0.0) == 0.0:
        part = len(sent(held))
        assert 0 < part <= 256
        total += part
    assert total == 1000


def test_inflight_welcomes_nobody_whom_it_would_refuse():
    rng, welcome = random.Random(2), 0
    for _ in range(500):
        held = InFlight(0, 7, 1, Limits(max_wait_ms=100.0, max_jobs=3, max_bytes=15,
                                        cache_bytes=rng.choice((0, 1 << 20))), 0.0)
        held.link_up(0.5)
        for step in rng.choices(("state", "lone", "ready", "link"), (3, 3, 1, 1), k=8):
            if step == "state":
                held.receive(State(rng.random() < 0.8, rng.randrange(3), 1,
                                   rng.choice((0.0, 200.0)), rng.choice((0.0, 200.0)),
                                   rng.random() < 0.2), 1.0)
            elif step == "lone":
                held.open_lone(rng.getrandbits(60), 1, LOW, NEVER, 3, 3, ROW.ids, 1.0)
            elif step == "ready":
                held.set_ready(1.0)
            else:
                held.link_down(1.0)
                held.link_up(1.0)
        for priority in (HIGH, LOW):
            if held.welcomes(priority):
                welcome += 1
                assert held.early_refusal(priority, 100.0) is None
    assert 50 < welcome < 900
