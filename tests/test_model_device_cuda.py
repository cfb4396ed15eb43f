"""The CUDA port's own lines over a stand-in for torch.cuda, and gpucheck's parts over that port.

Shows that the calls go together and that graphs replay what was captured; nothing of a device.
"""

import pytest
import torch

from model.device import cuda
from model.device.port import CaptureFailed, DeviceBroken, OutOfMemory
from tests.gpucheck_rig import Bench
from tests.stand_in_cuda import CUDAGraph, TorchWithCuda
from tests.test_model_device_port import Doubler
from tools.gpucheck import (eight_bits, equality, first, lanes, latency, memory, probes, rates,
                            shortage)


@pytest.fixture
def device(monkeypatch):
    """torch with a stand-in for a device, in the one file that calls torch.cuda."""
    found = TorchWithCuda()
    monkeypatch.setattr(cuda, "torch", found)
    return found


def test_cuda_graphs_replay_what_was_captured_on_what_buffers_hold_now(device):
    doubler = Doubler(cuda.Cuda())
    graphs = doubler.graphs(8, 4)
    for values in ([1.0] * 8, [3.0] * 4, [5.0] * 8, [7.0] * 4):
        assert doubler.ask(values, lambda: doubler.port.low.replay(graphs[len(values)])) == [
            2 * value for value in values]


def test_cuda_says_what_it_is(device):
    port = cuda.Cuda()
    assert (port.kind, port.name, port.capability) == ("cuda", "NVIDIA Stand-in", (0, 0))
    assert port.memory() == (60 << 30, 64 << 30) and port.held() == 1 << 30
    assert port.low.stream.priority > port.high.stream.priority     # lower numbers go first


@pytest.mark.parametrize("error, wanted", [
    (torch.cuda.OutOfMemoryError("CUDA out of memory"), OutOfMemory),
    (RuntimeError("CUDA error: an illegal memory access was encountered"), DeviceBroken)])
def test_cuda_errors_of_a_call_are_the_ports(device, error, wanted):
    port = cuda.Cuda()

    def fail():
        raise error

    with pytest.raises(wanted):
        port.low.run(fail)


def test_cuda_error_inside_a_capture_fails_the_capture(device, monkeypatch):
    def fail(self):
        raise RuntimeError("CUDA error: operation failed due to a previous error during capture")

    doubler = Doubler(cuda.Cuda())
    honest = CUDAGraph.capture_end
    monkeypatch.setattr(CUDAGraph, "capture_end", lambda self: (honest(self), fail(self)))
    with pytest.raises(CaptureFailed, match="previous error"):
        doubler.graphs(4)


class _Room:
    """Another process on a stand-in: what it says is free changes."""

    def __init__(self, device):
        self.device = device

    def take(self):
        self.device.free = 1 << 20

    def release(self):
        self.device.free = 60 << 30


PARTS = {"first": first.run, "probes": probes.run, "equality": equality.run, "latency": latency.run,
         "rates": rates.run, "memory": memory.run, "lanes": lanes.run, "shortage": shortage.run,
         "eight_bits": eight_bits.run}


@pytest.mark.slow
@pytest.mark.parametrize("name", PARTS)
def test_cuda_part_of_gpucheck_runs_on_the_port(device, tmp_path, monkeypatch, name):
    bench = Bench(tmp_path, is_judged=False)
    bench.rig.kind, bench.rig.make_port = "cuda", cuda.Cuda
    monkeypatch.setattr(shortage, "filler", lambda rig, faults: _Room(device))
    PARTS[name](bench.rig)
    assert bench.verdicts() and not bench.failed(), bench.lines
