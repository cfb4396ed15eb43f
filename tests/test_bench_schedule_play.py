"""Simulated schedules: traces worked by hand, one for each order, and what they promise."""

import math
import random

import pytest

from bench.schedule_machine import BatchTimes, Cores, Machine, Task, speeds
from bench.schedule_play import play
from bench.schedule_policies import Buckets, Fifo, Ours, Shortest
from bench.schedule_report import summarise
from bench.schedule_trace import Asked, Trace, closed, poisson, with_large, with_pipelining
from tests.scheduler_desk import COSTS

POINTS = tuple(COSTS)                       # 0.1 ms a token
ALONE = Machine(POINTS, engines=1, cores=1, fronts=1)
PAIR = Machine(POINTS, host_ms=0.2, host_token_ms=0.001, link_ms=0.1)
# The first runs while the others come.
WORKED = Trace("worked", (Asked(0.0, (100,)), Asked(0.001, (300,)), Asked(0.001, (100,)),
                          Asked(0.001, (200,))), 1.0)


def latencies(order, trace=WORKED, machine=ALONE, **given):
    """Of the trace's requests in its own order, in ms."""
    played = play(trace, order, machine, **given)
    found = {id(one.asked): one.latency_ms for one in played.outcomes}
    return [found[id(asked)] for asked in trace.requests]


def test_schedule_fifo_keeps_the_order_and_the_cap():
    # 10 ms; then 300 + 100 tokens make 40 ms, a third would pass 45; then 20 ms.
    assert latencies(Fifo(POINTS, 1, 2000)) == pytest.approx([10, 49, 49, 69], abs=0.1)


def test_schedule_shortest_pads_to_its_longest():
    # 10 ms; then 2 x 200 = 400 tokens for the two shortest, 40 ms; then 30 ms.
    assert latencies(Shortest(POINTS, 1, 2000)) == pytest.approx([10, 79, 49, 49], abs=0.1)


def test_schedule_buckets_pad_each_and_take_the_oldest():
    # 128, 384, 128, 256 tokens one after the other: each in a bucket of its own.
    assert latencies(Buckets(POINTS, 1, 2000)) == pytest.approx([12.8, 50.2, 63, 88.6], abs=0.1)


def test_schedule_padding_is_what_was_computed_for_nothing():
    one = summarise(play(WORKED, Buckets(POINTS, 1, 2000), ALONE))
    assert one.padding == pytest.approx(1 - 700 / 896) and one.batch_texts == 1
    assert summarise(play(WORKED, Fifo(POINTS, 1, 2000), ALONE)).padding == 0


def test_schedule_firebrick_computes_each_text_once_without_padding():
    played = play(WORKED, Ours(POINTS, 1, 1, 2000), ALONE)
    assert sum(batch.texts for batch in played.batches) == 4
    assert sum(batch.computed for batch in played.batches) == 700
    assert played.took_s == pytest.approx(0.070, abs=1e-4)


def test_schedule_refusal_obeyed_comes_back_after_whole_seconds():
    # 10 s of work in one request, then one that would wait for longer than 100 ms.
    trace = Trace("full", (Asked(0.0, (100,)), Asked(0.001, (1000,) * 100), Asked(0.002, (10,))),
                  3.0)
    order = Fifo(POINTS, 1, 100)
    refused = next(one for one in play(trace, order, ALONE).outcomes if one.asked.tokens == (10,))
    assert not refused.is_good and refused.latency_ms == pytest.approx(0.0, abs=0.1)
    obeyed = next(one for one in play(trace, Fifo(POINTS, 1, 100), ALONE, obeys=True).outcomes
                  if one.asked.tokens == (10,))
    assert obeyed.is_good and obeyed.tries == 2 and 9_900 < obeyed.latency_ms < 11_100


def test_schedule_same_seed_is_the_same_to_the_last_digit():
    def once():
        trace = poisson("again", (10, 40, 200), 150, 3, random.Random(5), 0.15)
        return play(trace, Ours(POINTS, 2, 2, 2000), PAIR)
    one, two = once(), once()
    assert one.outcomes == two.outcomes and one.batches == two.batches and len(one.outcomes) > 300


@pytest.mark.parametrize("order", [Fifo(POINTS, 2, 500), Shortest(POINTS, 2, 500),
                                   Buckets(POINTS, 2, 500), Ours(POINTS, 2, 2, 500)],
                         ids=lambda order: order.name)
def test_schedule_overload_every_request_ends_once(order):
    trace = poisson("much", (10, 40, 200), 600, 3, random.Random(6))
    played = play(trace, order, PAIR, obeys=True)
    assert sorted(id(one.asked) for one in played.outcomes) == sorted(map(id, trace.requests))
    assert 0 < sum(one.is_good for one in played.outcomes)


def test_schedule_closed_loop_never_has_more_open_than_connections():
    played = play(closed("loop", (100,), 1, 10_000, 1.0, random.Random(1)),
                  Fifo(POINTS, 1, 2000), ALONE)
    assert len(played.outcomes) == pytest.approx(100, abs=1)       # 10 ms each, one at a time
    assert all(one.latency_ms == pytest.approx(10, abs=0.1) for one in played.outcomes)


def test_schedule_slower_machine_takes_longer():
    slow = latencies(Fifo(POINTS, 1, 2000), pace=lambda now: 2.0)
    assert slow == pytest.approx([20, 99, 99, 139], abs=0.2)


def test_schedule_greedy_clients_come_beside_the_others():
    base = poisson("base", (10,), 50, 3, random.Random(2))
    assert len(with_large(base).requests) == len(base.requests) + 1
    greedy = [one for one in with_pipelining(base, (10,), random.Random(3)).requests
              if one.kind == "greedy"]
    assert len({one.connection for one in greedy}) == 1 and len(greedy) == 1024


@pytest.mark.parametrize("cores, engines, others, wanted", [
    (2, 2, 0, (1.0, 1.0)), (2, 1, 1, (1.0, 1.0)), (2, 0, 1, (1.0, 1.0)), (2, 2, 1, (0.5, 1.0)),
    (1, 1, 0, (1.0, 1.0))])
def test_schedule_cores_are_shared_by_weight(cores, engines, others, wanted):
    assert speeds(cores, engines, others) == pytest.approx(wanted)


def test_schedule_more_than_the_cores_leaves_engines_their_weight():
    engine, other = speeds(2, 2, 2)
    assert 2 * engine + 2 * other == pytest.approx(2) and 0.05 < engine / other < 0.15


def test_schedule_task_beside_others_ends_when_its_share_is_done():
    cores = Cores(1)
    cores.add(Task(10.0, False, "a"), 0.0)
    cores.add(Task(10.0, False, "b"), 0.005)            # a has 5 ms left, both at half speed
    assert cores.next_end() == pytest.approx(0.015)
    assert [task.what for task in cores.take_ended(0.015)] == ["a"]
    assert cores.next_end() == pytest.approx(0.020)
    assert [task.what for task in cores.take_ended(0.020)] == ["b"]
    assert cores.next_end() == math.inf


def test_schedule_batch_times_know_that_attention_grows_with_the_square():
    def ms(texts, length):
        return 2 + 0.1 * texts + 0.1 * texts * length + 0.0002 * texts * length ** 2
    points = tuple((texts, texts * length, ms(texts, length)) for texts, length in (
        (1, 16), (4, 16), (1, 64), (8, 16), (8, 32), (1, 256), (8, 64)))
    times = BatchTimes(Machine(points, slowness=2.0))
    assert times.work_ms(2, 528, 16 ** 2 + 512 ** 2) == pytest.approx(
        2 * (2 + 0.2 + 52.8 + 0.0002 * (16 ** 2 + 512 ** 2)), rel=0.05)
