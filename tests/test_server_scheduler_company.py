"""A free engine waits a moment for the clients whom it answered just now, and for nobody else."""

import pytest

from server.linked import BACK, FEWEST_HELD, RETURN_MS
from server.messages import HIGH, LOW
from tests.scheduler_desk import Desk

TEXTS = 10


def answered(texts=TEXTS, ms=10):
    """A desk whose engine has just answered that many clients after `ms` milliseconds."""
    desk = Desk()
    for connection in range(texts):
        desk.ask(connection=connection)
    desk.act()
    assert [len(batch) for batch in desk.jobs_at(0)] == [texts]
    desk.now = 1.0
    desk.finish(ms=ms)
    return desk


def test_scheduler_first_client_that_comes_back_waits_for_the_others():
    desk = answered()
    for connection in range(int(BACK * TEXTS)):
        desk.act()
        assert desk.jobs_at(0) == []
        desk.ask(connection=connection)
    desk.act()
    assert [len(batch) for batch in desk.jobs_at(0)] == [BACK * TEXTS]


def test_scheduler_client_that_comes_back_alone_waits_a_moment_only():
    desk = answered()
    desk.ask()
    desk.act()
    assert desk.scheduler.next_timer(desk.now) == pytest.approx(1 + RETURN_MS * TEXTS / 1e3)
    desk.now = desk.scheduler.next_timer(desk.now)
    desk.act()
    assert [len(batch) for batch in desk.jobs_at(0)] == [1]


@pytest.mark.parametrize("texts, ms, priority", [
    (FEWEST_HELD - 1, 10, LOW),     # few clients do not load an engine
    (TEXTS, 3, LOW),                # a moment that is much of such a batch
    (TEXTS, 10, HIGH)])             # somebody who is in a hurry
def test_scheduler_nobody_waits_for_company_that_gains_little(texts, ms, priority):
    desk = answered(texts, ms)
    desk.ask(priority=priority)
    desk.act()
    assert [len(batch) for batch in desk.jobs_at(0)] == [1]


def test_scheduler_client_who_comes_later_waits_for_nobody():
    desk = answered()
    desk.now += RETURN_MS * TEXTS / 1e3
    desk.ask()
    desk.act()
    assert [len(batch) for batch in desk.jobs_at(0)] == [1]


def test_scheduler_nobody_waits_while_another_engine_is_free():
    desk = Desk(engines=2)
    for connection in range(2 * TEXTS):
        desk.ask(connection=connection)
    desk.act()
    desk.now = 1.0
    desk.finish(0, ms=10)
    desk.finish(1, ms=10)
    desk.ask()
    desk.act()
    assert [len(batch) for index in (0, 1) for batch in desk.jobs_at(index)] == [1]
