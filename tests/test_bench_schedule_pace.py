"""The speed of a machine is found again in the batches that it ran, and predicts what it served."""

import random
from dataclasses import replace

import pytest

from bench.schedule_machine import BatchTimes, Machine
from bench.schedule_pace import Pace, fitted, foretold, replay, tuned
from bench.schedule_play import Ran, play
from bench.schedule_policies import Ours
from bench.schedule_report import summarise
from bench.schedule_trace import poisson
from tests.scheduler_desk import COSTS

MACHINE = Machine(tuple(COSTS), host_ms=0.2, link_ms=0.1)
WAIT_MS = 500.0


def arrivals(rps, seed=1):
    return poisson("some", (20, 60, 200), rps, 3, random.Random(seed))


def served(trace, machine, pace=lambda now: 1.0):
    """As by a server on that machine."""
    order = Ours(machine.costs, machine.engines, machine.fronts, WAIT_MS)
    return play(trace, order, machine, pace=pace)


def test_fitted_costs_are_those_of_the_batches():
    def ms(lengths):
        return 2 + 0.3 * len(lengths) + 0.1 * sum(lengths) + 0.0002 * sum(
            size ** 2 for size in lengths)
    chance = random.Random(3)
    many = [[chance.randint(4, 400) for _ in range(chance.randint(1, 9))] for _ in range(200)]
    found = BatchTimes(fitted(replace(MACHINE, slowness=3.0), [
        Ran(0.0, len(sizes), sum(sizes), sum(sizes), sum(size ** 2 for size in sizes), ms(sizes))
        for sizes in many]))
    for sizes in ([5], [500], [10] * 8, [300, 20, 7]):
        assert found.work_ms(len(sizes), sum(sizes), sum(size ** 2 for size in sizes)
                             ) == pytest.approx(ms(sizes), rel=0.03)


def test_pace_is_of_the_window_or_of_the_nearest_that_has_one():
    work_ms = BatchTimes(MACHINE).work_ms(1, 100, 10_000)
    pace = Pace(MACHINE, [Ran(0.1, 1, 100, 100, 10_000, work_ms), Ran(0.9, 1, 100, 100, 10_000,
                          3 * work_ms), Ran(0.8, 1, 100, 100, 10_000, work_ms)], 0.5)
    assert (pace(0.2), pace(0.7), pace(9.0)) == pytest.approx((1.0, 2.0, 2.0))
    assert pace.mean == pytest.approx(1.5) and pace.spread == pytest.approx([1.0, 1.5, 0.5])


def test_pace_of_no_batches_says_so():
    with pytest.raises(RuntimeError, match="no answer tells of a batch"):
        Pace(MACHINE, [])


@pytest.mark.parametrize("rps", [120, 600], ids=["little", "too much"])
def test_replay_of_a_machine_that_changes_its_speed_predicts_what_it_served(rps):
    trace = arrivals(rps)
    real = served(trace, MACHINE, pace=lambda now: 0.8 if now < 1.5 else 1.6)
    played, pace = replay(trace, MACHINE, real.batches, WAIT_MS)
    one, other = summarise(played), summarise(real)
    assert one.goodput_rps == pytest.approx(other.goodput_rps, rel=0.05)
    assert one.p99_ms == pytest.approx(other.p99_ms, rel=0.1)
    assert pace(1.0) == pytest.approx(0.8, rel=0.05) and pace(2.5) == pytest.approx(1.6, rel=0.05)


def test_replay_with_another_bound_on_waits_would_not_predict():
    trace = arrivals(600)
    real = served(trace, MACHINE)
    played, _ = replay(trace, MACHINE, real.batches, 2 * WAIT_MS)
    assert summarise(played).p99_ms > 1.3 * summarise(real).p99_ms


def test_foretold_is_as_fast_as_the_other_runs_were():
    paces = [replay(arrivals(600, seed), MACHINE, served(
        arrivals(600, seed), MACHINE, pace=lambda now: 1.5).batches, WAIT_MS)[1]
        for seed in (2, 3)]
    one = summarise(foretold(arrivals(600), MACHINE, paces, WAIT_MS))
    other = summarise(served(arrivals(600), MACHINE, pace=lambda now: 1.5))
    assert one.goodput_rps == pytest.approx(other.goodput_rps, rel=0.05)


def test_tuned_finds_how_slow_the_machine_was():
    slow = replace(MACHINE, slowness=1.7)
    real = served(arrivals(600), slow)
    assert summarise(real).refused > 0.2
    found = tuned(MACHINE, real.trace, real.batches, WAIT_MS)
    assert found.slowness == pytest.approx(1.7, rel=0.05)
