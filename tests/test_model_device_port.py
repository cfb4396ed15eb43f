"""What a program may expect of a device: one suite over the recorder and, with a GPU, over CUDA."""

import pytest
import torch

from model.device.port import CaptureFailed
from model.device.recorder import Recorder
from model.device.script import Script


def _open_recorder():
    return Recorder(Script())


def _open_cuda():
    from model.device.cuda import Cuda
    return Cuda()


@pytest.fixture(params=[pytest.param(_open_recorder, id="recorder"),
                        pytest.param(_open_cuda, id="cuda", marks=pytest.mark.gpu)])
def port(request):
    return request.param()


class Doubler:
    """Doubles `count` numbers of a device buffer into another on a lane; what every test here
    runs."""

    def __init__(self, port, room: int = 64, is_high: bool = False) -> None:
        self.port = port
        self.lane = port.high if is_high else port.low
        self.device_in = port.empty((room,), torch.float32)
        self.device_out = port.empty((room,), torch.float32)
        self.host_in = port.staging(room, torch.float32)
        self.host_out = port.staging(room, torch.float32)
        self.done = self.lane.event()

    def work(self, count: int):
        def work():
            doubled = self.device_in[:count] * 2
            self.device_out[:count].copy_(doubled)
            return doubled
        return work

    def graphs(self, *counts: int) -> dict:
        found = {}
        for count in counts:
            work = self.work(count)
            self.lane.warm(work)
            found[count] = self.lane.capture(work, count)
        return found

    def ask(self, values: list[float], launch) -> list[float]:
        """Sends values through `launch()` and waits."""
        count = len(values)
        self.host_in[:count] = torch.tensor(values)
        self.lane.put(self.device_in[:count], self.host_in[:count])
        launch()
        self.lane.get(self.host_out[:count], self.device_out[:count])
        self.done.record()
        while not self.done.is_done():
            pass
        return self.host_out[:count].tolist()


def test_port_lanes_have_pools_of_their_own_and_answer_at_once(port):
    """Two graphs in flight, each with buffers of its own lane."""
    low, high = Doubler(port), Doubler(port, is_high=True)
    of_low, of_high = low.graphs(16, 8), high.graphs(8, 4)
    assert port.low.pool != port.high.pool
    port.seal()
    low.host_in[:8], high.host_in[:4] = torch.arange(8.0), torch.arange(4.0) + 100
    for doubler, graph, count in ((low, of_low[8], 8), (high, of_high[4], 4)):
        doubler.lane.put(doubler.device_in[:count], doubler.host_in[:count])
        doubler.lane.replay(graph)
        doubler.lane.get(doubler.host_out[:count], doubler.device_out[:count])
        doubler.done.record()
    port.wait()
    assert low.done.is_done() and high.done.is_done()
    assert low.host_out[:8].tolist() == [2.0 * value for value in range(8)]
    assert high.host_out[:4].tolist() == [200.0, 202.0, 204.0, 206.0]


def test_port_flush_lets_both_lanes_capture_anew(port):
    low, high = Doubler(port), Doubler(port, is_high=True)
    low.graphs(4)
    high.graphs(4)
    port.flush()
    for doubler in (low, high):
        graphs = doubler.graphs(16)
        assert doubler.ask([3.0], lambda: doubler.lane.replay(graphs[16])) == [6.0]


def test_port_function_without_a_graph_runs_in_stream_order(port):
    doubler = Doubler(port)
    assert doubler.ask([1, 2, 3], lambda: port.low.run(doubler.work(3))) == [2, 4, 6]


def test_port_graphs_replay_in_any_order_on_what_the_buffers_hold(port):
    doubler = Doubler(port)
    graphs = doubler.graphs(16, 8, 4)
    port.seal()
    for begin, count in enumerate((4, 16, 8, 16, 4, 4)):
        values = [float(begin + place) for place in range(count)]
        answer = doubler.ask(values, lambda: port.low.replay(graphs[count]))
        assert answer == [2 * value for value in values]


def test_port_events_tell_order_and_time(port):
    doubler = Doubler(port)
    graphs = doubler.graphs(8)
    first, second = port.low.event(), port.low.event()
    first.record()
    port.low.replay(graphs[8])
    second.record()
    port.wait()
    assert first.is_done() and second.is_done() and second.ms_since(first) >= 0


def test_port_flush_lets_graphs_be_captured_anew(port):
    doubler = Doubler(port)
    doubler.graphs(4)
    port.flush()
    graphs = doubler.graphs(16, 8)      # larger than the one that was
    assert doubler.ask([5.0], lambda: port.low.replay(graphs[8])) == [10.0]


def test_port_memory_is_told_and_grows_with_what_is_taken(port):
    free, total = port.memory()
    assert 0 < free <= total
    before = port.taken()
    port.empty((4 << 20,), torch.float32)
    assert port.taken() >= before + (16 << 20)


def test_port_upload_is_a_copy(port):
    tensor = torch.ones(3)
    there = port.upload(tensor)
    tensor.zero_()
    assert there.tolist() == [1, 1, 1]


def test_port_capture_of_what_a_graph_cannot_hold_fails(port):
    doubler = Doubler(port)

    def work():
        if doubler.device_in[0].item() > 0:
            doubler.device_out.zero_()
        return doubler.device_out

    port.low.warm(work)
    with pytest.raises(CaptureFailed):
        port.low.capture(work, 1)
