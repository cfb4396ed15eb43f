"""GPU and CPU engines at one queue: who works when, and what a GPU's end costs whom."""

import math

import pytest

from server.jobqueue import BATCH_CAP_MS
from server.messages import CPU, GPU, LOW, NO_BATCH, EngineHello, Failed, Reason
from server.scheduler import COLD_CAP_MS, SendNotes, SendRefused, SendResults
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
    desk.ask(texts=200)
    desk.act()
    for engine in (0, 1):
        first = len(desk.jobs_at(engine)[0])
        desk.finish(engine)
        then = len(desk.jobs_at(engine)[0])
        assert first - 1 < COLD_CAP_MS <= first and then - 1 < BATCH_CAP_MS <= then


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
    assert desk.scheduler.costs.share_ms(100) == pytest.approx(10.0, rel=0.1)
    assert COSTS[1][2] == 10.0
