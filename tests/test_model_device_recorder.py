"""Every rule of a CUDA device catches its violation on the recorder; faults come as scripted."""

import threading

import pytest
import torch

from model.device.port import CaptureFailed, DeviceBroken, OutOfMemory
from model.device.recorder import EXIT_STATUS, Recorder, RuleBroken
from model.device.script import Script, write
from tests.test_model_device_port import Doubler


class Clock:
    """Monotonic seconds that pass only when told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def doubler(tmp_path):
    """On the low lane of a recorder; `script` is its path."""
    path, clock = str(tmp_path / "faults"), Clock()
    write(path, "")
    found = Doubler(Recorder(Script(path), clock=clock))
    found.script, found.clock = path, clock
    return found


@pytest.fixture
def scripted(tmp_path):
    """A function: script text → (Doubler on a recorder that has it, clock)."""
    def make(text: str):
        path = str(tmp_path / "faults")
        write(path, text)
        clock = Clock()
        return Doubler(Recorder(Script(path), clock=clock)), clock
    return make


def test_recorder_computes_one_launch_a_look_so_that_its_host_hears_in_between():
    doubler = Doubler(Recorder(Script()))
    done = []
    for number in range(3):
        doubler.lane.run(lambda number=number: done.append(number), 1)
    event = doubler.lane.event()
    event.record()
    seen = [(event.is_done(), list(done)) for _ in range(4)]
    assert [len(names) for _, names in seen] == [1, 2, 3, 3]
    assert [is_done for is_done, _ in seen] == [False, False, False, True]


def _capture_cold(doubler):
    doubler.lane.capture(doubler.work(4), 4)


def _capture_larger_later(doubler):
    doubler.graphs(4, 8)


def _capture_while_serving(doubler):
    work = doubler.work(4)
    doubler.lane.warm(work)
    doubler.port.seal()
    doubler.lane.capture(work, 4)


def _allocate_while_serving(doubler):
    doubler.port.seal()
    doubler.port.empty((1,), torch.float32)


def _upload_while_serving(doubler):
    doubler.port.seal()
    doubler.port.upload(torch.ones(1))


def _stage_while_serving(doubler):
    doubler.port.seal()
    doubler.port.staging(1, torch.float32)


def _event_while_serving(doubler):
    doubler.port.seal()
    doubler.lane.event()


def _write_a_slot_early(doubler):
    doubler.lane.put(doubler.device_in, doubler.host_in)
    doubler.host_in[0] = 7.0
    doubler.port.wait()


def _replay_after_a_partial_drop(doubler):
    graphs = doubler.graphs(8, 4)
    doubler.port.drop(graphs[8])
    doubler.lane.replay(graphs[4])


def _capture_after_a_partial_drop(doubler):
    graphs = doubler.graphs(8, 4)
    doubler.port.drop(graphs[8])
    doubler.graphs(2)


def _replay_what_was_flushed(doubler):
    graphs = doubler.graphs(8)
    doubler.port.flush()
    doubler.lane.replay(graphs[8])


def _copy_from_pageable_memory(doubler):
    doubler.lane.put(doubler.device_in, torch.zeros(64))


def _copy_of_another_type(doubler):
    doubler.lane.put(doubler.device_in, doubler.port.staging(64, torch.int32))


def _copy_of_another_size(doubler):
    doubler.lane.put(doubler.device_in, doubler.host_in[:3])


def _copy_with_gaps(doubler):
    doubler.lane.put(doubler.device_in[:32], doubler.host_in[::2])


def _copy_to_the_pool(doubler):
    graphs = doubler.graphs(64)
    doubler.lane.get(doubler.host_out, graphs[64].output)


def _replay_on_the_other_lane(doubler):
    graphs = doubler.graphs(8)
    doubler.port.high.replay(graphs[8])


def _capture_what_ran_on_the_other_lane(doubler):
    work = doubler.work(8)
    doubler.port.high.warm(work)
    doubler.lane.capture(work, 8)


def _capture_into_the_other_lanes_pool(doubler):
    other = Doubler(doubler.port, is_high=True)
    other.lane.pool = doubler.lane.pool
    other.graphs(8)


def _read_a_buffer_that_the_other_lane_writes(doubler):
    doubler.graphs(8)
    doubler.port.high.get(doubler.port.staging(64, torch.float32), doubler.device_out)


def _capture_over_the_other_lanes_buffers(doubler):
    doubler.graphs(8)
    work = doubler.work(4)
    doubler.port.high.warm(work)
    doubler.port.high.capture(work, 4)


def _stage_in_the_other_lanes_slot(doubler):
    doubler.lane.put(doubler.device_in, doubler.host_in)
    doubler.port.high.put(doubler.port.empty((64,), torch.float32), doubler.host_in)


def _write_what_both_lanes_read(doubler):
    weight = doubler.port.upload(torch.ones(1))

    def work():
        return weight.mul_(2)

    doubler.lane.warm(work)
    doubler.lane.capture(work, 1)


def _compare_events_of_two_lanes(doubler):
    other = doubler.port.high.event()
    for event in (doubler.done, other):
        event.record()
    doubler.port.wait()
    other.ms_since(doubler.done)


def _reuse_a_slot_after_the_other_lanes_event(doubler):
    """Its own copy waits behind a launch still."""
    graphs = doubler.graphs(8)
    write(doubler.script, "speed 1e9\n")
    doubler.lane.replay(graphs[8])
    doubler.lane.put(doubler.device_in, doubler.host_in)
    other = doubler.port.high.event()
    other.record()
    assert other.is_done()
    write(doubler.script, "")
    doubler.host_in[0] = 7.0
    doubler.clock.now = 1e9
    doubler.port.wait()


VIOLATIONS = [
    (_capture_cold, "never ran"), (_capture_larger_later, "does not fit"),
    (_capture_while_serving, "captured while serving"),
    (_allocate_while_serving, "asked for while serving"),
    (_upload_while_serving, "asked for while serving"),
    (_stage_while_serving, "asked for while serving"), (_event_while_serving, "while serving"),
    (_write_a_slot_early, "before its copy was done"),
    (_replay_after_a_partial_drop, "was dropped"), (_capture_after_a_partial_drop, "was dropped"),
    (_replay_what_was_flushed, "was dropped"), (_copy_from_pageable_memory, "no staging"),
    (_copy_of_another_type, "differ"), (_copy_of_another_size, "differ"),
    (_copy_with_gaps, "differ"), (_copy_to_the_pool, "none of the device's own"),
    (_replay_on_the_other_lane, "not its own"),
    (_capture_what_ran_on_the_other_lane, "never ran on this lane"),
    (_capture_into_the_other_lanes_pool, "into one pool"),
    (_read_a_buffer_that_the_other_lane_writes, "share a buffer"),
    (_capture_over_the_other_lanes_buffers, "share a buffer"),
    (_stage_in_the_other_lanes_slot, "share a buffer"),
    (_write_what_both_lanes_read, "both lanes read"),
    (_compare_events_of_two_lanes, "two lanes are compared"),
    (_reuse_a_slot_after_the_other_lanes_event, "before its copy was done"),
]


@pytest.mark.parametrize("violate, words", VIOLATIONS, ids=[v[0].__name__[1:] for v in VIOLATIONS])
def test_recorder_rule_catches_its_violation(doubler, violate, words):
    with pytest.raises(RuleBroken, match=words):
        violate(doubler)


def test_recorder_use_by_another_thread_is_caught(doubler):
    caught = []

    def use():
        try:
            doubler.port.wait()
        except RuleBroken as error:
            caught.append(str(error))

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert caught and "another thread" in caught[0]


def test_recorder_pool_output_of_another_graph_is_overwritten(doubler):
    graphs = doubler.graphs(8, 4)
    doubler.ask([1.0] * 8, lambda: doubler.lane.replay(graphs[8]))
    assert graphs[8].output.tolist() == [2.0] * 8
    doubler.ask([1.0] * 4, lambda: doubler.lane.replay(graphs[4]))
    assert graphs[8].output.isnan().all() and not graphs[4].output.isnan().any()


def test_recorder_output_read_before_its_event_is_nan(doubler):
    doubler.lane.put(doubler.device_in, doubler.host_in)
    doubler.lane.get(doubler.host_out, doubler.device_in)
    assert doubler.host_out.isnan().all()


def test_recorder_replay_takes_what_the_script_says(scripted):
    doubler, clock = scripted("speed 1000\n")
    graphs = doubler.graphs(8)
    begin, end = doubler.lane.event(), doubler.lane.event()
    begin.record()
    doubler.lane.replay(graphs[8])
    end.record()
    assert begin.is_done() and not end.is_done()
    clock.now = 0.0079
    assert not end.is_done()
    clock.now = 0.0081
    assert end.is_done() and end.ms_since(begin) == pytest.approx(8.0)


def test_recorder_high_lane_goes_before_all_that_waits_and_after_what_runs(scripted):
    """Low launches of 8 ms each, one running and two behind; a high one of 2 ms comes at 3 ms."""
    low, clock = scripted("speed 1000\n")
    high = Doubler(low.port, is_high=True)
    of_low, of_high = low.graphs(8), high.graphs(2)
    begun = clock.now
    done = []
    for _ in range(3):
        low.lane.replay(of_low[8])
        done.append(low.lane.event())
        done[-1].record()
    assert not done[0].is_done()
    clock.now = begun + 0.003
    high.lane.replay(of_high[2])
    high.done.record()
    clock.now = begun + 1.0
    low.port.wait()
    assert [round((event.at - begun) * 1e3) for event in (*done, high.done)] == [8, 18, 26, 10]


def test_recorder_hang_is_never_done_and_blocks_nobody(scripted):
    doubler, clock = scripted("once replay hang\n")
    graphs = doubler.graphs(8)
    doubler.lane.replay(graphs[8])
    doubler.done.record()
    assert not doubler.done.is_done()
    clock.now = 1e9
    assert not doubler.done.is_done()


def test_recorder_memory_fault_passes_and_an_error_does_not(scripted):
    doubler, _ = scripted("once replay memory\nonce replay error 3\n")
    graphs = doubler.graphs(8)
    with pytest.raises(OutOfMemory):
        doubler.lane.replay(graphs[8])
    doubler.lane.replay(graphs[8])
    for call in (lambda: doubler.lane.replay(graphs[8]), doubler.port.wait, doubler.port.memory,
                 doubler.done.is_done):
        with pytest.raises(DeviceBroken, match="700"):
            call()


@pytest.mark.parametrize("kind", ["memory", "error"])
def test_recorder_capture_fault_fails_the_nth_capture(scripted, kind):
    doubler, _ = scripted(f"once capture {kind} 2\n")
    with pytest.raises(CaptureFailed):
        doubler.graphs(8, 4)


def test_recorder_allocation_fault_is_out_of_memory(scripted):
    with pytest.raises(OutOfMemory):
        scripted("once allocate memory 2\n")


def test_recorder_nan_and_stale_outputs_come_once(scripted):
    doubler, _ = scripted("once replay nan 2\nonce replay stale 4\n")
    graphs = doubler.graphs(2)
    answers = [doubler.ask([float(n), 1.0], lambda: doubler.lane.replay(graphs[2]))
               for n in range(5)]
    assert [answer[0] for answer in answers if answer[0] == answer[0]] == [0.0, 4.0, 4.0, 8.0]


def test_recorder_exit_fault_ends_the_process(scripted, monkeypatch):
    doubler, _ = scripted("once replay exit\n")
    graphs = doubler.graphs(2)

    def leave(status):
        raise SystemExit(status)

    monkeypatch.setattr("os._exit", leave)
    with pytest.raises(SystemExit) as ended:
        doubler.lane.replay(graphs[2])
    assert ended.value.code == EXIT_STATUS


def test_recorder_launch_without_a_graph_takes_time_and_memory_as_scripted(scripted):
    doubler, clock = scripted("eager 500\nonce run memory 2\n")
    doubler.port.low.run(doubler.work(4), tokens=4)
    doubler.done.record()
    assert not doubler.done.is_done()
    clock.now += 501e-6
    assert doubler.done.is_done()
    with pytest.raises(OutOfMemory):
        doubler.port.low.run(doubler.work(4), tokens=4)
