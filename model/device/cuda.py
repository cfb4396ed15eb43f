"""The port on a CUDA device: two streams with a pool of graphs each, everything asynchronous.

The only file that calls torch.cuda, imported by GPU engines alone. It has not run on a device
yet; its contract is the recorder's, and one suite tests both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

import torch
from torch import Tensor, nn

from model.device.port import CaptureFailed, DeviceBroken, OutOfMemory, Work
from model.device.torch_errors import meaning, said

# Lazy modules, cuBLAS's plans and workspace, and whatever a second call still finds out.
WARM_CALLS = 3
# As CUDA counts: blocks of the high stream's kernels go before those of the low one that wait.
LOW_PRIORITY, HIGH_PRIORITY = 0, -1


class Unusable(Exception):
    """This torch, driver and device do not go together; the message says what is missing."""


class CudaGraph:
    """A captured function and its result in the pool."""

    def __init__(self, graph: torch.cuda.CUDAGraph, lane: CudaLane, tokens: int,
                 output: Tensor) -> None:
        self.graph, self.lane, self.tokens, self.output = graph, lane, tokens, output


class CudaEvent:
    """A place in a lane's stream."""

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self._stream = stream
        self.event = torch.cuda.Event(enable_timing=True)

    def record(self) -> None:
        with _translated():
            self.event.record(self._stream)

    def is_done(self) -> bool:
        with _translated():
            return self.event.query()

    def ms_since(self, earlier: CudaEvent) -> float:
        with _translated():
            return earlier.event.elapsed_time(self.event)


class CudaLane:
    """A model.device.port.Lane: a stream of its own, on which cuBLAS then has a workspace of its
    own, and a pool."""

    def __init__(self, device: torch.device, priority: int, trim: Callable[[], None]) -> None:
        self.stream = torch.cuda.Stream(device, priority=priority)
        self.pool = torch.cuda.graph_pool_handle()
        self.graphs: list[CudaGraph] = []
        self._trim = trim

    def _enter(self) -> None:
        """Makes the stream that of this process's only thread; a context would cost more a call."""
        torch.cuda.set_stream(self.stream)

    def event(self) -> CudaEvent:
        with _translated():
            return CudaEvent(self.stream)

    def put(self, device: Tensor, host: Tensor) -> None:
        with _translated():
            self._enter()
            device.copy_(host, non_blocking=True)

    def get(self, host: Tensor, device: Tensor) -> None:
        with _translated():
            self._enter()
            host.copy_(device, non_blocking=True)

    def run(self, work: Work, tokens: int = 0) -> None:
        with _translated(), _quiet():
            self._enter()
            work()

    def warm(self, work: Work) -> None:
        with _translated(), _quiet():
            self._enter()
            for _ in range(WARM_CALLS):
                work()
            self.stream.synchronize()

    def wait(self) -> None:
        with _translated():
            self.stream.synchronize()

    def capture(self, work: Work, tokens: int) -> CudaGraph:
        self._trim()
        self._enter()
        graph = torch.cuda.CUDAGraph()
        # capture_begin and capture_end, not torch.cuda.graph: that collects garbage each time and
        # hides the first error behind a second.
        try:
            with _quiet():
                graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
                output = work()
                graph.capture_end()
            graph.replay()          # the first launch uploads it: now, not while serving
            self.stream.synchronize()
        except RuntimeError as error:       # also an allocation that failed inside
            raise CaptureFailed(said(error)) from None
        captured = CudaGraph(graph, self, tokens, output)
        self.graphs.append(captured)
        return captured

    def replay(self, graph: CudaGraph) -> None:
        with _translated():
            self._enter()
            graph.graph.replay()


class Cuda:
    """A model.device.port.Port on the one device that CUDA_VISIBLE_DEVICES names. Raises Unusable.

    `spared` tells, of the total, what this process must leave free, in bytes: it then fails itself
    before it makes a neighbour on the device fail.
    """

    kind = "cuda"

    def __init__(self, spared: Callable[[int], float] = lambda total: 0.0) -> None:
        if torch.version.cuda is None:
            raise Unusable("this torch is built without CUDA")
        try:
            torch.cuda.init()
            if torch.cuda.device_count() < 1:
                raise Unusable("CUDA sees no device")
            self.name = torch.cuda.get_device_name(0)
            self.capability = torch.cuda.get_device_capability(0)
            free, total = torch.cuda.mem_get_info(0)
            (torch.zeros(1, device="cuda") + 1).item()      # has it kernels for this device?
        except RuntimeError as error:
            _judge_start(said(error))
        self._free_at_start = free
        most = max(free - spared(total), 0.0)
        torch.cuda.set_per_process_memory_fraction(min(most / total, 1.0), 0)
        self.dtypes = (torch.float16, torch.bfloat16, torch.float32) \
            if self.capability >= (8, 0) else (torch.float16, torch.float32)
        self.eight_bits = ("fp8", "int8") if self.capability >= (8, 9) else \
            ("int8",) if self.capability >= (7, 5) else ()
        # Sums of 16-bit products stay in 32 bits.
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
        self._device = torch.device("cuda", 0)
        self.low = CudaLane(self._device, LOW_PRIORITY, self.trim)
        self.high = CudaLane(self._device, HIGH_PRIORITY, self.trim)

    # ---- memory -----------------------------------------------------------------------------

    def memory(self) -> tuple[int, int]:
        with _translated():
            return torch.cuda.mem_get_info(self._device)

    def taken(self) -> int:
        """What torch holds, and what the context took beside it while nobody else changed much."""
        context = max(self._free_at_start - self.memory()[0], 0)
        return max(context, torch.cuda.memory_reserved(self._device))

    def held(self) -> int:
        return torch.cuda.memory_reserved(self._device)

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        with _translated():
            # The allocator may hand out a block that work of this thread's stream still uses:
            # there it would be in order, on the other lane not.
            self.wait()
            return torch.empty(tuple(shape), dtype=dtype, device=self._device)

    def upload(self, tensor: Tensor) -> Tensor:
        with _translated():
            self.wait()
            there = tensor.to(self._device)
            self.wait()     # both lanes read it
            return there

    def row_kernels(self, wide: torch.dtype, codes: torch.dtype) -> nn.Module:
        from model.cuda.row_kernels import open_row_kernels     # a compiler: where 8 bits are tried
        return open_row_kernels(self.capability, codes, wide,
                                lambda: torch.cuda.current_stream().cuda_stream)

    def staging(self, count: int, dtype: torch.dtype) -> Tensor:
        with _translated():
            return torch.zeros(count, dtype=dtype, pin_memory=True)

    # ---- both lanes -------------------------------------------------------------------------

    def wait(self) -> None:
        with _translated():
            torch.cuda.synchronize(self._device)

    def drop(self, graph: CudaGraph) -> None:
        self.wait()
        graph.lane.graphs.remove(graph)
        graph.graph.reset()

    def flush(self) -> None:
        self.wait()
        for lane in (self.low, self.high):
            for graph in lane.graphs:
                graph.graph.reset()
            lane.graphs.clear()
            lane.pool = torch.cuda.graph_pool_handle()      # the old one is being freed
        clear_workspaces: Callable[[], None] = torch._C._cuda_clearCublasWorkspaces
        clear_workspaces()
        self.trim()

    def trim(self) -> None:
        with _translated():
            self.wait()
            torch.cuda.empty_cache()

    def seal(self) -> None:
        """Nothing to do: what the recorder refuses is not called."""


def _judge_start(words: str) -> NoReturn:
    """A start that failed may succeed later where others only use the device now."""
    if "out of memory" in words:
        raise OutOfMemory(words) from None
    if "busy or unavailable" in words or "unknown error" in words:
        raise DeviceBroken(words) from None
    raise Unusable(f"CUDA does not start: {words}") from None


@contextmanager
def _translated() -> Iterator[None]:
    """torch's errors as the port's."""
    try:
        yield
    except RuntimeError as error:
        raise meaning(error) from None


@contextmanager
def _quiet() -> Iterator[None]:
    """TorchScript without its second thoughts: no profiling, no kernels compiled in between."""
    with torch.inference_mode(), torch.jit.optimized_execution(False):
        yield
