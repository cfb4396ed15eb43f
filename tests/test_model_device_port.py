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
    """Doubles `count` numbers of a device buffer into another; what every test here runs."""

    def __init__(self, port, room: int = 64) -> None:
        self.port = port
        self.device_in = port.empty((room,), torch.float32)
        self.device_out = port.empty((room,), torch.float32)
        self.host_in = port.staging(room, torch.float32)
        self.host_out = port.staging(room, torch.float32)
        self.done = port.event()

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
            self.port.warm(work)
            found[count] = self.port.capture(work, count)
        return found

    def ask(self, values: list[float], launch) -> list[float]:
        """Sends values through `launch()` and waits."""
        count = len(values)
        self.host_in[:count] = torch.tensor(values)
        self.port.put(self.device_in[:count], self.host_in[:count])
        launch()
        self.port.get(self.host_out[:count], self.device_out[:count])
        self.done.record()
        while not self.done.is_done():
            pass
        return self.host_out[:count].tolist()


def test_port_function_without_a_graph_runs_in_stream_order(port):
    doubler = Doubler(port)
    assert doubler.ask([1, 2, 3], lambda: port.run(doubler.work(3))) == [2, 4, 6]


def test_port_graphs_replay_in_any_order_on_what_the_buffers_hold(port):
    doubler = Doubler(port)
    graphs = doubler.graphs(16, 8, 4)
    port.seal()
    for begin, count in enumerate((4, 16, 8, 16, 4, 4)):
        values = [float(begin + place) for place in range(count)]
        assert doubler.ask(values, lambda: port.replay(graphs[count])) == [2 * v for v in values]


def test_port_events_tell_order_and_time(port):
    doubler = Doubler(port)
    graphs = doubler.graphs(8)
    first, second = port.event(), port.event()
    first.record()
    port.replay(graphs[8])
    second.record()
    port.wait()
    assert first.is_done() and second.is_done() and second.ms_since(first) >= 0


def test_port_flush_lets_graphs_be_captured_anew(port):
    doubler = Doubler(port)
    doubler.graphs(4)
    port.flush()
    graphs = doubler.graphs(16, 8)      # larger than the one that was
    assert doubler.ask([5.0], lambda: port.replay(graphs[8])) == [10.0]


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

    port.warm(work)
    with pytest.raises(CaptureFailed):
        port.capture(work, 1)
