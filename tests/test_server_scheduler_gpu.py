"""GPU and CPU engines at one queue: who works when, and what a GPU's end costs whom."""

import math

import pytest

from server.dispatch import SendNotes, SendRefused, SendResults
from server.filling import COLD_CAP_MS
from server.jobqueue import BATCH_CAP_MS
from server.messages import CPU, GPU, HIGH, LOW, NO_BATCH, Done, EngineHello, Failed, Reason
from tests.scheduler_desk import COSTS, Desk

GPU_LIFE = 1000
# A tenth of a CPU engine's time, and a floor for the launch.
GPU_COSTS = [(1, 10, 0.1), (1, 100, 1.0), (10, 100, 1.0), (10, 1000, 10.0)]


class MixedDesk(Desk):
    """A desk with CPU engines and GPU engines, these by index and life 1000."""

    def add_gpu(self, index=0, incarnation=GPU_LIFE):
        self.scheduler.engine_hello(EngineHello(GPU, index, incarnation, 1, 2, GPU_COSTS))
        self.running[index, incarnation] = []

    def leave(self, index=0, incarnation=GPU_LIFE):
        assert self.scheduler.failed(index, incarnation, Failed(NO_BATCH, True, "pressure"))
        return self.act()


@pytest.fixture
def desk():
    desk = MixedDesk(engines=2)
    desk.add_gpu()
    return desk


def _results(actions):
    return [result for action in actions.get(SendResults, []) for result in action.results]


def test_scheduler_gpu_has_the_work_and_cpu_engines_are_parked(desk):
    desk.ask(texts=3)
    desk.act()
    assert desk.jobs_at(0, GPU_LIFE) == [[1, 2, 3]]
    assert desk.jobs_at(0) == desk.jobs_at(1) == []


def test_scheduler_gpu_always_has_a_second_batch_ahead(desk):
    desk.ask(texts=200, tokens=100)
    desk.act()
    desk.ask(texts=5)
    desk.act()
    assert len(desk.running[0, GPU_LIFE]) == 2 and not desk.jobs_at(0)


def test_scheduler_gpu_answers_are_labelled_as_such(desk):
    desk.ask()
    desk.act()
    (result,) = _results(desk.finish(0, GPU_LIFE))
    assert (result.kind, result.engine) == (GPU, 0)


def test_scheduler_gpu_that_leaves_gets_no_more_and_finishes_what_it_has(desk):
    desk.ask(texts=2)
    desk.act()
    desk.leave()
    desk.ask(texts=2)
    desk.act()
    assert desk.jobs_at(0, GPU_LIFE) == [[1, 2]]
    assert sorted(desk.jobs_at(0) + desk.jobs_at(1)) == [[3], [4]]
    assert len(_results(desk.finish(0, GPU_LIFE))) == 2
    desk.die(0, GPU_LIFE)
    assert desk.scheduler.recomputed == 0


def test_scheduler_gpu_that_the_master_calls_leaving_gets_no_more_though_it_says_nothing(desk):
    desk.scheduler.leaving(0, GPU_LIFE)
    desk.scheduler.leaving(7, GPU_LIFE)         # one that is not linked
    desk.ask(texts=2)
    desk.act()
    assert not desk.jobs_at(0, GPU_LIFE)
    assert sorted(desk.jobs_at(0) + desk.jobs_at(1)) == [[1], [2]]


def test_scheduler_cpu_engine_that_was_parked_begins_with_half_a_batch(desk):
    desk.act()
    desk.leave()
    desk.ask(texts=300)
    desk.act()
    for engine in (0, 1):
        first = len(desk.jobs_at(engine)[0])
        desk.finish(engine, ms=first)
        then = len(desk.jobs_at(engine)[0])
        assert first - 1 < COLD_CAP_MS <= first < BATCH_CAP_MS <= then


def test_scheduler_batch_that_a_leaving_gpu_gives_back_goes_to_cpu_engines_unblamed(desk):
    desk.ask(texts=2)
    desk.act()
    desk.leave()
    number = desk.running[0, GPU_LIFE].pop().batch
    assert desk.scheduler.failed(0, GPU_LIFE, Failed(number, True, "leaving"))
    actions = desk.act()
    assert SendNotes not in actions
    assert desk.jobs_at(0) + desk.jobs_at(1) == [[1, 2]]


@pytest.mark.parametrize("verdict", [None, True])
def test_scheduler_gpu_death_moves_all_it_had_to_cpu_engines_together_and_unblamed(desk, verdict):
    desk.ask(texts=3)
    desk.act()
    desk.ask(texts=2)
    desk.act()
    assert len(desk.running[0, GPU_LIFE]) == 2
    actions = desk.die(0, GPU_LIFE, fault=verdict)
    assert SendNotes not in actions
    assert sorted(job for batch in desk.jobs_at(0) + desk.jobs_at(1) for job in batch) \
        == [1, 2, 3, 4, 5]
    assert len(desk.jobs_at(0)[0]) > 1, "they need not run alone"
    results = _results(desk.finish(0)) + _results(desk.act())
    assert results and all(result.kind == CPU for result in results)


def test_scheduler_job_that_a_gpu_fell_over_is_never_given_to_another_gpu(desk):
    desk.add_gpu(1, GPU_LIFE + 1)
    desk.ask()
    desk.act()
    where = next(key for key, batches in desk.running.items() if batches)
    assert where[1] >= GPU_LIFE
    desk.die(*where)
    assert desk.jobs_at(0) == [[1]] or desk.jobs_at(1) == [[1]]
    desk.ask()
    desk.act()
    survivor = (1, GPU_LIFE + 1) if where[0] == 0 else (0, GPU_LIFE)
    assert desk.jobs_at(*survivor) == [[2]], "the other GPU goes on with what it may have"


def test_scheduler_logits_that_a_gpu_cannot_make_are_asked_of_a_cpu_engine(desk):
    desk.ask(texts=2)
    desk.act()
    number = desk.running[0, GPU_LIFE].pop().batch
    assert desk.scheduler.failed(0, GPU_LIFE, Failed(number, False, "not finite"))
    desk.act()
    assert desk.jobs_at(0) + desk.jobs_at(1) == [[1, 2]]
    desk.ask()
    desk.act()
    assert desk.jobs_at(0, GPU_LIFE) == [[3]], "the GPU itself serves on"


def test_scheduler_suspect_runs_alone_on_a_cpu_engine_while_a_gpu_serves(desk):
    desk.ask(deaths=1)
    desk.ask()
    desk.act()
    assert desk.jobs_at(0) + desk.jobs_at(1) == [[1]] and desk.jobs_at(0, GPU_LIFE) == [[2]]


def test_scheduler_gpu_that_comes_back_takes_over_again(desk):
    desk.die(0, GPU_LIFE)
    desk.ask()
    desk.act()
    assert desk.jobs_at(0) == [[1]]
    desk.add_gpu(0, GPU_LIFE + 2)
    desk.ask(texts=2)
    desk.act()
    assert desk.jobs_at(0, GPU_LIFE + 2) == [[2, 3]] and desk.jobs_at(1) == []


def test_scheduler_wait_is_that_of_whoever_serves(desk):
    with_gpu, cpu_only = (kind(engines=2, max_wait_ms=1e9) for kind in (MixedDesk, Desk))
    with_gpu.add_gpu()
    for one in (with_gpu, cpu_only):
        for connection in range(4):
            one.ask(texts=250, tokens=100, connection=connection)
    # A tenth of the time, and one instead of two.
    assert with_gpu.scheduler.wait_ms(LOW) == pytest.approx(cpu_only.scheduler.wait_ms(LOW) / 5)
    with_gpu.die(0, GPU_LIFE)
    assert with_gpu.scheduler.wait_ms(LOW) == pytest.approx(cpu_only.scheduler.wait_ms(LOW),
                                                            rel=0.2)


def test_scheduler_admission_follows_who_serves(desk):
    desk.scheduler.policy = type(desk.scheduler.policy)(2, max_wait_ms=1000.0)
    desk.ask(texts=256, tokens=100)         # 2.56 s of one CPU engine, 0.26 s of the GPU
    desk.act()
    desk.ask(texts=256, tokens=100)
    assert SendRefused not in desk.act()
    desk.die(0, GPU_LIFE)
    desk.ask(texts=1, tokens=100)
    (refused,) = desk.act()[SendRefused]
    assert refused.refusal.reason == Reason.WAIT and math.isfinite(refused.refusal.retry_ms)


def test_scheduler_first_cpu_costs_count_though_a_gpu_was_first():
    desk = MixedDesk(engines=0)
    desk.add_gpu()
    assert desk.scheduler.is_ready
    desk.join(0, 1)
    assert desk.scheduler.pool.costs[CPU].share_ms(100) == pytest.approx(10.0, rel=0.1)
    assert COSTS[1][2] == 10.0


def _gpu_batches(desk, priority):
    return [len(batch.rows) for batch in desk.running[0, GPU_LIFE] if batch.priority == priority]


def test_scheduler_high_job_goes_to_its_lane_at_once_though_the_low_one_is_full(desk):
    desk.ask(texts=400, tokens=100)
    desk.act()
    assert len(_gpu_batches(desk, LOW)) == 2
    (job,) = desk.ask(priority=HIGH)
    desk.act()
    assert _gpu_batches(desk, HIGH) == [1] and desk.jobs_at(0, GPU_LIFE)[-1] == [job]


def test_scheduler_classes_are_never_mixed_in_a_gpus_batch(desk):
    for round_number in range(30):
        for priority in (HIGH, LOW):
            desk.ask(texts=1 + round_number % 7, connection=round_number % 4, priority=priority)
        desk.act()
        while desk.running[0, GPU_LIFE]:
            for batch in desk.running[0, GPU_LIFE]:
                jobs = {desk.rows[row.ids] for row in batch.rows}
                assert {desk.priority[job] for job in jobs} == {batch.priority}
            desk.finish(0, GPU_LIFE)


def test_scheduler_lanes_finish_in_any_order_and_each_lane_in_its_own(desk):
    desk.ask(texts=400, tokens=100)
    desk.act()
    desk.ask(priority=HIGH)
    desk.act()
    first, second, high = desk.running[0, GPU_LIFE]

    def finish(batch):
        return desk.scheduler.done(0, GPU_LIFE, Done(batch.batch, 1000, 2,
                                                     b"\0" * 8 * len(batch.rows)), desk.now)

    assert not finish(second), "it overtakes its own lane"
    assert finish(high) and finish(first)
    assert len(_results(desk.act())) == 1 + len(first.rows)


@pytest.mark.parametrize("high_share", [0.5, 0.8, 1.0])
def test_scheduler_high_has_its_share_of_a_gpu_while_low_waits(high_share):
    """A device that runs whatever high batch it has first, and both classes without end."""
    desk = MixedDesk(engines=0, high_share=high_share, max_jobs=10**6)
    desk.add_gpu()
    done = {HIGH: 0, LOW: 0}
    for _ in range(600):
        for priority in (HIGH, LOW):
            if desk.scheduler._queue.backlog_ms[priority] < 5000:
                desk.ask(texts=20, tokens=100, connection=priority, priority=priority)
        desk.act()
        running = desk.running[0, GPU_LIFE]
        batch = min(running, key=lambda batch: batch.priority)
        done[batch.priority] += len(batch.rows)
        running.remove(batch)
        running.insert(0, batch)
        desk.finish(0, GPU_LIFE, ms=len(batch.rows))
    assert done[HIGH] / sum(done.values()) == pytest.approx(high_share, abs=0.05)


def test_scheduler_low_batches_that_a_gpu_has_already_count_as_waiting():
    """Few low texts, all given out: high may not keep them on the device for ever."""
    desk = MixedDesk(engines=0)
    desk.add_gpu()
    desk.ask(texts=10, tokens=100)
    desk.act()
    for _ in range(500):
        if desk.scheduler._queue.backlog_ms[HIGH] < 5000:
            desk.ask(texts=20, tokens=100, connection=2, priority=HIGH)
        desk.act()
        running = desk.running[0, GPU_LIFE]
        batch = min(running, key=lambda batch: batch.priority)
        if batch.priority == LOW:
            return
        running.remove(batch)
        running.insert(0, batch)
        desk.finish(0, GPU_LIFE, ms=len(batch.rows))
    raise AssertionError("the low batch never runs")


def test_scheduler_suspects_of_the_low_class_hold_no_high_job_back(desk):
    desk.ask(texts=300, tokens=100, connection=2, priority=HIGH)
    desk.ask(texts=3, tokens=100, deaths=1)
    desk.act()
    for _ in range(50):
        if not desk.running[0, GPU_LIFE]:
            break
        desk.finish(0, GPU_LIFE)
    assert desk.scheduler._queue.backlog_ms[HIGH] == 0.0


def test_scheduler_high_jobs_spread_over_the_high_lanes_of_two_gpus(desk):
    desk.add_gpu(1, GPU_LIFE + 1)
    desk.ask(texts=2, tokens=100, priority=HIGH)
    desk.act()
    assert desk.jobs_at(0, GPU_LIFE) == [[1]] and desk.jobs_at(1, GPU_LIFE + 1) == [[2]]
