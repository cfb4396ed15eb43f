"""What the scheduler promises under load, in simulation: MiniLM's costs, two cores, two engines."""

import random

import pytest

from bench.schedule_play import play
from bench.schedule_policies import Ours
from bench.schedule_report import summarise
from bench.schedule_trace import GREEDY, poisson, with_large, with_pipelining
from bench.schedule_workload import STORED, read
from bench.simulate_schedule import capacity_rps
from server.jobqueue import BATCH_CAP_MS

MAX_WAIT_MS = 1000.0
WORKLOAD = read(STORED)
MACHINE = WORKLOAD.machine


def played(trace, **given):
    return play(trace, Ours(MACHINE.costs, MACHINE.engines, MACHINE.fronts, MAX_WAIT_MS), MACHINE,
                **given)


@pytest.fixture(scope="module")
def capacities():
    return {name: capacity_rps(MACHINE, lengths, MAX_WAIT_MS, 1, 3.0)
            for name, lengths in WORKLOAD.lengths.items()}


def arrivals(capacities, name, load, seconds, seed=2):
    return poisson(name, WORKLOAD.lengths[name], load * capacities[name], seconds,
                   random.Random(seed))


@pytest.mark.parametrize("name", ["short", "profile"])
def test_schedule_twice_the_capacity_those_let_in_wait_as_promised(name, capacities):
    one = summarise(played(arrivals(capacities, name, 2.0, 5.0)))
    assert one.p99_ms <= MAX_WAIT_MS + 2 * one.longest_batch_ms
    assert one.goodput_rps >= 0.85 * capacities[name] and one.refused > 0.2


def test_schedule_twice_the_capacity_who_obeys_retry_after_is_served(capacities):
    outcomes = played(arrivals(capacities, "short", 2.0, 3.0), obeys=True).outcomes
    assert all(one.is_good for one in outcomes) and max(one.tries for one in outcomes) > 1


def test_schedule_machine_that_halves_its_speed_keeps_its_promise_to_newcomers(capacities):
    trace = arrivals(capacities, "short", 1.5, 9.0)
    later = [one for one in played(trace, pace=lambda now: 1.0 + (now > 3.0)).outcomes
             if one.is_good and one.asked.at_s > 6.0]
    assert len(later) > 0.25 * 3.0 * capacities["short"]
    assert max(one.latency_ms for one in later) < 1.25 * MAX_WAIT_MS


@pytest.mark.parametrize("greed", ["large", "pipelining"])
def test_schedule_greedy_client_costs_the_others_a_batch_and_no_refusal(greed, capacities):
    alone = arrivals(capacities, "short", 0.4, 4.0)
    trace = with_large(alone) if greed == "large" else with_pipelining(
        alone, WORKLOAD.lengths["short"], random.Random(3))
    before, beside = summarise(played(alone)), played(trace)
    others = [one for one in beside.outcomes if one.asked.kind != GREEDY]
    assert len(others) == len(alone.requests) and all(one.is_good for one in others)
    (_, _, p99_ms), = (figures for kind, figures in summarise(beside).by_class.items()
                       if kind != GREEDY)
    # A batch of the greedy one, and what has come meanwhile is a batch as well.
    assert p99_ms <= before.p99_ms + summarise(beside).longest_batch_ms + BATCH_CAP_MS
