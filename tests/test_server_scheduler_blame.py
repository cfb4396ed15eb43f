"""Whom the scheduler blames when an engine dies or fails, and what runs again."""

import pytest

from server.dispatch import SendNotes, SendResults
from server.messages import Done, Failed
from tests.scheduler_desk import FRONT, Desk


def test_scheduler_dead_engines_batch_runs_again_at_once_and_alone():
    desk = Desk()
    desk.ask(tokens=300)
    desk.act()
    jobs = desk.ask(texts=3, tokens=10)
    desk.finish(ms=30)
    assert desk.jobs_at(0) == [jobs]
    desk.join(1, 1)
    desk.die(0)
    assert desk.jobs_at(1) == [[jobs[0]], [jobs[1]]]
    assert desk.scheduler.recomputed == 3


def test_scheduler_three_faults_blame_the_job_and_outside_kills_nobody():
    desk = Desk()
    (job,) = desk.ask()
    desk.act()
    for incarnation in range(1, 8):
        desk.join(0, incarnation + 1)
        acted = desk.die(0, incarnation, fault=False)
        assert SendNotes not in acted
    notes = []
    for incarnation in range(8, 11):
        desk.join(0, incarnation + 1)
        notes += desk.die(0, incarnation, fault=True).get(SendNotes, [])
    assert [note.notes[0].deaths for note in notes] == [1, 2, 3]
    assert notes[0].notes[0].job == job
    assert desk.jobs_at(0, 11) == []


def test_scheduler_third_death_waits_for_its_verdict():
    desk = Desk(engines=3)
    (job,) = desk.ask(deaths=0)
    desk.act()
    for index in range(3):
        assert desk.jobs_at(index) == [[job]]
        desk.die(index)
    desk.join(0, 2)
    desk.act()
    assert desk.jobs_at(0, 2) == []         # three deaths, none judged: held
    desk.scheduler.death(0, 1, True)
    desk.scheduler.death(1, 1, False)
    desk.act()
    assert desk.jobs_at(0, 2) == [[job]]
    desk.scheduler.death(2, 1, True)
    assert SendResults in desk.finish(0, 2)


def test_scheduler_verdict_before_the_links_end_waits_for_it():
    desk = Desk(engines=2)
    (job,) = desk.ask()
    desk.act()
    desk.scheduler.death(0, 1, True)
    done = desk.running[0, 1][0]
    assert desk.scheduler.done(0, 1, Done(done.batch, 5, 2, b"\0" * 8), 0.0)
    desk.die(0)
    desk.join(0, 2)
    acted = desk.act()
    assert SendNotes not in acted and job not in sum(desk.jobs_at(1), [])


def test_scheduler_batch_sent_ahead_is_not_blamed():
    desk = Desk()
    desk.ask()
    desk.act()
    (ahead,) = desk.ask()
    desk.act()
    assert len(desk.jobs_at(0)) == 2
    desk.join(1, 1)
    notes = desk.die(0, fault=True)[SendNotes]
    assert [note.notes[0].job for note in notes] != [ahead] and len(notes) == 1


@pytest.mark.parametrize("done", [
    Done(99, 5, 2, b"\0" * 8), Done(1, 5, 3, b"\0" * 12), Done(1, 5, 2, b"\0" * 16)])
def test_scheduler_done_that_fits_no_batch_is_refused(done):
    desk = Desk()
    desk.ask()
    desk.act()
    assert not desk.scheduler.done(0, 1, done, 0.0)
    assert not desk.scheduler.done(5, 1, done, 0.0)


def test_scheduler_failed_batch_is_split_and_the_guilty_row_blamed():
    desk = Desk()
    desk.ask(tokens=300)
    desk.act()
    good, bad = desk.ask(texts=2)
    desk.finish(ms=30)
    batch = desk.running[0, 1].pop(0)
    assert desk.scheduler.failed(0, 1, Failed(batch.batch, False, "x"))
    acted, notes = desk.act(), []
    answered = []
    for _ in range(6):
        if not desk.running[0, 1]:
            break
        batch = desk.running[0, 1][0]
        if desk.rows[batch.rows[0].ids] == bad:
            desk.running[0, 1].pop(0)
            desk.scheduler.failed(0, 1, Failed(batch.batch, False, "x"))
            acted = desk.act()
        else:
            acted = desk.finish()
            answered += [r.job for a in acted[SendResults] for r in a.results]
        notes += [n for a in acted.get(SendNotes, []) for n in a.notes]
    assert answered == [good]
    assert [(n.job, n.deaths) for n in notes] == [(bad, 1), (bad, 2), (bad, 3)]


def test_scheduler_failed_batch_whose_company_was_cancelled_blames_nobody():
    desk = Desk()
    desk.ask(tokens=300)
    desk.act()
    kept, gone = desk.ask(texts=2)
    desk.finish(ms=30)
    desk.scheduler.cancel(FRONT, [gone])
    batch = desk.running[0, 1].pop(0)
    assert desk.scheduler.failed(0, 1, Failed(batch.batch, False, "x"))
    acted = desk.act()
    assert SendNotes not in acted and desk.jobs_at(0) == [[kept]]


def test_scheduler_cut_link_of_a_living_engine_blames_nobody_later():
    desk = Desk()
    (job,) = desk.ask()
    desk.act()
    desk.join(1, 1)
    desk.die(0)                             # the link only: the engine joins again
    desk.join(0, 1)
    assert desk.jobs_at(1) == [[job]]
    assert SendNotes not in desk.die(0, fault=True)


def test_scheduler_cut_links_hold_no_job_for_ever():
    desk = Desk()
    (job,) = desk.ask()
    for _ in range(5):
        desk.act()
        assert desk.jobs_at(0) == [[job]]
        desk.die(0)
        desk.join(0, 1)
    desk.act()
    (results,) = desk.finish(0)[SendResults]
    assert [result.job for result in results.results] == [job]


def test_scheduler_nonsense_is_its_rows_fault_once_it_runs_alone():
    desk = Desk()
    (job,) = desk.ask()
    notes = []
    for _ in range(3):
        desk.act()
        batch = desk.running[0, 1].pop()
        assert not desk.scheduler.done(0, 1, Done(batch.batch, 5, 3, b"\0" * 12), 0.0)
        notes += [note for action in desk.die(0).get(SendNotes, []) for note in action.notes]
        desk.join(0, 1)
    assert [(note.job, note.deaths) for note in notes] == [(job, 1), (job, 2), (job, 3)]
    desk.act()
    assert desk.running[0, 1] == []


def test_scheduler_held_job_waits_for_every_verdict_that_may_still_blame_it():
    desk = Desk(engines=4)
    (job,) = desk.ask()
    desk.act()
    for index in (0, 1, 2):
        assert desk.jobs_at(index) == [[job]]
        desk.die(index)
    assert desk.jobs_at(3) == []
    desk.scheduler.death(0, 1, True)
    desk.act()
    assert desk.jobs_at(3) == []
    desk.scheduler.death(1, 1, False)
    desk.act()
    assert desk.jobs_at(3) == [[job]]
