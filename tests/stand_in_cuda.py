"""torch.cuda as far as model/device/cuda.py calls it, on CPU tensors: its lines run without a GPU.

A graph here is the list of operations that were dispatched between capture_begin and capture_end;
a replay does them again and leaves each result where the captured one lay. Streams do everything
at once, so nothing is shown of order, overlap or speed.
"""

import time
from types import SimpleNamespace

import torch
from torch.utils._python_dispatch import TorchDispatchMode

GIB = 1 << 30


class Stream:
    """A stream that is always idle."""

    cuda_stream = 0

    def __init__(self, device, priority=0):
        self.priority = priority

    def synchronize(self):
        pass


class Event:
    """A stamp of the host's clock."""

    def __init__(self, enable_timing=False):
        assert enable_timing
        self.at = None

    def record(self, stream):
        self.at = time.perf_counter()

    def query(self):
        return self.at is not None

    def elapsed_time(self, later):
        return (later.at - self.at) * 1e3


class _Recording(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.steps = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        self.steps.append((func, args, kwargs or {}, found))
        return found


class CUDAGraph:
    """See the module."""

    def capture_begin(self, pool, capture_error_mode):
        assert capture_error_mode == "thread_local"
        self._recording = _Recording()
        self._recording.__enter__()

    def capture_end(self):
        self._recording.__exit__(None, None, None)

    def replay(self):
        with torch.inference_mode():
            for func, args, kwargs, before in self._recording.steps:
                _leave(func(*args, **kwargs), before)

    def reset(self):
        self._recording = None


def _leave(found, before):
    if isinstance(found, (tuple, list)):
        for one, other in zip(found, before):
            _leave(one, other)
    elif isinstance(found, torch.Tensor) and found.data_ptr() != before.data_ptr():
        before.copy_(found)


class TorchWithCuda:
    """The module torch with a device that is none; `free` are the bytes that it says are free."""

    def __init__(self, name="NVIDIA Stand-in", capability=(0, 0)):
        self.free = 60 * GIB
        self.version = SimpleNamespace(cuda="13.0")
        self.backends = SimpleNamespace(cuda=SimpleNamespace(matmul=SimpleNamespace()))
        self._C = SimpleNamespace(_cuda_clearCublasWorkspaces=lambda: None)
        pools = iter(range(1000))
        self.cuda = SimpleNamespace(
            Stream=Stream, Event=Event, CUDAGraph=CUDAGraph, init=lambda: None,
            device_count=lambda: 1, get_device_name=lambda device: name,
            get_device_capability=lambda device: capability,
            mem_get_info=lambda device: (self.free, 64 * GIB),
            memory_reserved=lambda device: GIB, graph_pool_handle=lambda: next(pools),
            set_per_process_memory_fraction=lambda fraction, device: None,
            set_stream=lambda stream: None, current_stream=lambda: Stream(None),
            synchronize=lambda device: None, empty_cache=lambda: None,
            OutOfMemoryError=torch.cuda.OutOfMemoryError)

    def __getattr__(self, name):
        return getattr(torch, name)

    def device(self, *named):
        assert named[0] == "cuda"
        return torch.device("cpu")

    def zeros(self, *shape, device=None, pin_memory=False, **more):
        assert pin_memory or device == "cuda"
        return torch.zeros(*shape, **more)
