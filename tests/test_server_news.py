"""Fronts hear at once who is turned away, and never refuse for long what there is room for."""

import random

import pytest

from server.codec import decode, encode_state
from server.dispatch import SendRefused, SendState
from server.inflight import InFlight, Limits
from server.messages import HIGH, LOW, State
from tests.scheduler_desk import Desk



def states(acted):
    return [action.state for action in acted.get(SendState, [])]


def busy(**policy):
    """A desk whose engine has a batch; fronts know that nothing waits."""
    desk = Desk(**policy)
    desk.ask(tokens=100, connection=0)
    desk.act()
    desk.now = 0.001
    return desk


def crowd(desk, count, priority=LOW, first=1):
    """`count` texts of 1 ms, each of a connection of its own."""
    for connection in range(first, first + count):
        desk.ask(tokens=10, connection=connection, priority=priority)


def test_news_first_refusal_is_told_at_once_and_the_next_ones_are_not():
    desk = busy(max_wait_ms=100)
    crowd(desk, 200)
    acted = desk.act()
    assert len(acted[SendRefused]) > 50
    (state,) = states(acted)
    assert state.backlog_low_ms > 100 >= state.backlog_high_ms and not state.is_full
    desk.now = 0.002
    crowd(desk, 10, first=1000)
    acted = desk.act()
    assert len(acted[SendRefused]) == 10 and not states(acted)


def test_news_full_queue_is_told_at_once_to_all_classes():
    desk = busy(max_jobs=50)
    crowd(desk, 52)
    (state,) = states(desk.act())
    assert state.is_full
    held = InFlight(0, 1, 1, Limits(), 0.0)
    held.link_up(0.0)
    held.receive(decode(encode_state(state)), 0.0)
    for priority in (HIGH, LOW):
        outcome = held.early_refusal(priority, 0.0)
        assert (outcome.kind, outcome.reason) == ("refused", "full") and outcome.retry_ms >= 1


def test_news_with_a_cache_the_dispatcher_is_asked_though_it_is_full():
    held = InFlight(0, 1, 1, Limits(cache_bytes=1 << 20), 0.0)
    held.link_up(0.0)
    desk = busy(max_jobs=2, cache_bytes=1 << 20)
    crowd(desk, 4)
    (state,) = states(desk.act())
    held.receive(state, 0.0)
    assert state.is_full and held.early_refusal(LOW, 0.0) is None


def test_news_refusal_of_who_asks_for_too_much_is_told_to_nobody():
    desk = busy(max_wait_ms=100)
    for _ in range(200):
        desk.ask(tokens=10, connection=1)
    acted = desk.act()
    assert acted[SendRefused] and not states(acted)


def test_news_half_worked_off_is_told_before_its_time():
    desk = busy(max_wait_ms=200)
    crowd(desk, 300)
    assert states(desk.act())[0].backlog_low_ms > 200
    told = []
    while not told:
        desk.now += 0.001
        told = states(desk.finish(ms=1))
    assert 0 < told[0].backlog_low_ms <= 100 and desk.now < 0.05


class Overload:
    """Two fronts and a dispatcher under twice the capacity; messages take a millisecond, one that
    runs alone takes 1 ms. Every arrival is judged by what its front knows, and by the truth."""

    def __init__(self, seed, **policy):
        self.chance = random.Random(seed)
        self.desk = desk = Desk(**policy)
        self.fronts = [InFlight(number, 1, 1, Limits(desk.scheduler.policy.max_wait_ms), 0.0)
                       for number in range(2)]
        for front in self.fronts:
            front.link_up(0.0)
            front.set_ready(0.0)
        self.counts = {"early": 0, "late": 0, "served": 0, "idle_ms": 0, "states": 0}
        self.told, self.busy_ms = [], 0

    def step(self, arrivals=2):
        """One millisecond."""
        desk, counts = self.desk, self.counts
        told, self.told = self.told, []
        for state in told:
            for front in self.fronts:
                front.receive(state, desk.now)
        for _ in range(arrivals):
            front, priority = self.chance.choice(self.fronts), LOW
            outcome = front.early_refusal(priority, desk.now)
            if outcome is not None:
                counts["early"] += 1
                wait_ms, policy = front.state.backlog_low_ms, desk.scheduler.policy
                assert front.state.is_full or wait_ms > policy.max_wait_ms
            else:
                desk.ask(tokens=10, connection=desk.next_job, priority=priority)
        desk.now += 0.001
        self._take(desk.act())
        running = desk.running[0, 1]
        counts["idle_ms"] += not running
        self.busy_ms += 1
        if running and self.busy_ms >= len(running[0].rows):
            counts["served"] += len(running[0].rows)
            self.busy_ms = 0
            self._take(desk.finish(ms=max(1, len(running[0].rows) if running else 1)))

    def _take(self, acted):
        self.counts["late"] += len(acted.get(SendRefused, []))
        self.told += states(acted)
        self.counts["states"] += len(states(acted))


@pytest.mark.parametrize("policy", [
    {"max_wait_ms": 300}, {"max_wait_ms": 1e9, "max_jobs": 300}])
def test_news_under_twice_the_capacity_fronts_refuse_nearly_all_themselves(policy):
    run = Overload(1, **policy)
    for _ in range(2000):
        run.step()
    counts = run.counts
    assert counts["early"] > 1000
    assert counts["late"] < 0.1 * (counts["early"] + counts["late"])
    assert counts["idle_ms"] <= 20
    assert counts["states"] < 2 * 45


def test_news_short_waits_leave_no_engine_idle():
    run = Overload(2, max_wait_ms=20)
    for _ in range(1500):
        run.step()
    assert run.counts["early"] > 500
    assert run.counts["idle_ms"] < 100


def test_news_of_a_backlog_of_low_ones_leaves_high_ones_alone():
    run = Overload(3, max_wait_ms=100)
    for _ in range(500):
        run.step()
    assert any(front.early_refusal(LOW, run.desk.now) for front in run.fronts) or \
        run.counts["early"]
    assert not any(front.early_refusal(HIGH, run.desk.now) for front in run.fronts)
    assert run.desk.ask(priority=HIGH, connection=10 ** 6)
    assert SendRefused not in run.desk.act()


def test_news_full_queue_is_no_queue_that_welcomes():
    held = InFlight(0, 1, 1, Limits(), 0.0)
    held.link_up(0.0)
    for is_full in (False, True, False):
        held.receive(State(True, 2, 1, 0.0, 0.0, is_full), 0.0)
        assert held.welcomes(LOW) == held.welcomes(HIGH) == (not is_full)
        assert (held.early_refusal(LOW, 0.0) is None) == (not is_full)
