"""What answers' heads tell of batches, and what requests cost outside engines."""

import pytest

from bench.load_report import Outcome
from bench.schedule_calibrate import with_host_costs, with_wake
from bench.schedule_machine import Machine
from bench.schedule_play import Ran
from bench.schedule_served import Served, batches
from bench.schedule_trace import Asked, Trace

BEGIN = 100.0


def head(engine=0, batch=1, infer=20.0, queue=2.0):
    return (f"HTTP/1.1 200 OK\r\nServer: x\r\nServer-Timing: tokenize;dur=0.100, "
            f"queue;dur={queue:.3f}, infer;dur={infer:.3f}\r\nX-Engine: cpu-{engine}\r\n"
            f"X-Batch: {batch}").encode()


def served(*requests, host_s=0.0):
    """Of (second, tokens, latency ms, head); one without a head was refused."""
    return Served(Trace("some", tuple(Asked(at, (tokens,)) for at, tokens, _, _ in requests), 2.0),
                  [Outcome(BEGIN + at, BEGIN + at, BEGIN + at + ms / 1e3, 200 if said else 429,
                           head=said) for at, _, ms, said in requests], host_s)


def test_served_answer_tells_its_engine_batch_and_what_was_outside():
    one, = served((1.0, 12, 25.0, head(engine=1, batch=3))).answers
    assert (one.engine, one.batch, one.tokens, one.infer_ms) == (b"cpu-1", 3, 12, 20.0)
    assert one.ended_s == pytest.approx(1.025) and one.outside_ms == pytest.approx(3.0)


def test_served_refused_counts_neither_as_answer_nor_as_goodput():
    run = served((0.5, 12, 25.0, head()), (0.6, 12, 1.0, b""), (3.9, 12, 100.0, head()))
    assert len(run.answers) == len(run.good_ms) == 2
    assert run.goodput_rps == pytest.approx(2 / 4.0)        # until the last answer, past the end


def test_batches_are_what_answers_agree_on():
    run = served((0.10, 10, 40.0, head(0, 2, 30.0)), (0.11, 20, 30.0, head(0, 2, 30.0)),
                 (0.12, 30, 20.0, head(1, 2, 30.0)), (0.13, 40, 10.0, head(1, 2, 30.0)),
                 (0.15, 50, 60.0, head(0, 1, 55.0)))
    assert batches(run.answers) == [
        pytest.approx(Ran(0.11, 2, 30, 30, 500, 30.0)), pytest.approx(Ran(0.11, 2, 70, 70, 2500,
                                                                          30.0)),
        pytest.approx(Ran(0.155, 1, 50, 50, 2500, 55.0))]


def test_batches_that_took_the_same_to_the_microsecond_are_told_by_time():
    run = served((0.1, 10, 40.0, head(0, 2, 30.0)), (0.5, 30, 40.0, head(0, 2, 30.0)),
                 (0.1, 20, 40.0, head(0, 2, 30.0)), (0.5, 40, 40.0, head(0, 2, 30.0)))
    assert [one.tokens for one in batches(run.answers)] == [30, 70]


def test_host_costs_are_the_processor_time_that_tokenising_and_refusals_leave():
    answers = [(0.1 * number, 10, 25.0, head()) for number in range(8)]
    refusals = [(0.9 + 0.01 * number, 10, 1.0, b"") for number in range(5)]
    found = with_host_costs(Machine(()), served(*answers, *refusals, host_s=0.010))
    assert found.host_token_ms == pytest.approx(0.01)
    assert found.host_ms == pytest.approx(9.2 / 9)          # five refusals cost as much as one


def test_wake_is_what_is_neither_queue_nor_engine_nor_processor_time():
    run = served(*((0.1 * number, 10, 25.0, head()) for number in range(10)), host_s=0.010)
    # 25 ms, of them 22 in queue and engine, 1 of processor time, 0.4 on links.
    assert with_wake(Machine((), link_ms=0.2), run).wake_ms == pytest.approx(1.6)
    assert with_wake(Machine((), link_ms=5.0), run).wake_ms == 0.0
