"""A device that is none: the port on CPU tensors, with the rules of a CUDA device enforced.

Work waits in a queue, as in a stream, and is done when somebody asks how far the device is, so a
staging buffer that is written too early really gives wrong answers here. A broken rule raises
RuleBroken: what on a device would be memory that somebody else writes, or a call that waits.
Speed and faults come from a script (model/device/script.py).
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from model.device.guard import CaptureGuard
from model.device.port import CaptureFailed, DeviceBroken, OutOfMemory, Work
from model.device.script import Script

ILLEGAL_ADDRESS = 700
WAIT_S = 0.0002
EXIT_STATUS = 9


class RuleBroken(AssertionError):
    """The port was used in a way that a CUDA device punishes; the message says which."""


class RecordedGraph:
    """A captured function: what it does, and its result in the pool."""

    def __init__(self, work: Work, tokens: int, output: Tensor) -> None:
        self.work, self.tokens, self.output = work, tokens, output


class RecordedEvent:
    """A place in the recorder's queue; `at` is when the device came to it."""

    def __init__(self, device: Recorder) -> None:
        self._device = device
        self.at: float | None = None

    def record(self) -> None:
        self.at = None
        self._device.enqueue(self._pass)

    def _pass(self) -> None:
        self.at = self._device.busy_until

    def is_done(self) -> bool:
        self._device.advance()
        return self.at is not None

    def ms_since(self, earlier: RecordedEvent) -> float:
        return (self.at - earlier.at) * 1e3


class Recorder:
    """A model.device.port.Port. `clock` gives monotonic seconds."""

    kind = "recorder"
    capability = (0, 0)

    def __init__(self, script: Script, dtypes: Sequence[torch.dtype] = (torch.float32,),
                 clock: Callable[[], float] = time.monotonic) -> None:
        self.dtypes = tuple(dtypes)
        self.busy_until = -math.inf
        self._script, self._clock = script, clock
        self._thread = threading.get_ident()
        self._queue: deque[tuple[Callable[[], object], float, bool]] = deque()
        self._warmed: set[Work] = set()
        self._graphs: list[RecordedGraph] = []
        self._smallest = math.inf
        self._own: dict[str, set[int]] = {"device": set(), "staging": set()}
        self._kept: list[Tensor] = []
        self._taken = 0
        self._is_serving = self._is_broken_up = self._gives_nan = False
        self._error = ""

    # ---- memory -----------------------------------------------------------------------------

    def memory(self) -> tuple[int, int]:
        self._begin()
        total, free = self._script.memory()
        return free, total

    def taken(self) -> int:
        return self._taken

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        return self._allocate("device", lambda: torch.empty(tuple(shape), dtype=dtype))

    def upload(self, tensor: Tensor) -> Tensor:
        return self._allocate("device", tensor.clone)

    def staging(self, count: int, dtype: torch.dtype) -> Tensor:
        return self._allocate("staging", lambda: torch.zeros(count, dtype=dtype))

    def event(self) -> RecordedEvent:
        self._begin()
        self._forbid_while_serving("an event is made")
        return RecordedEvent(self)

    def _allocate(self, where: str, make: Callable[[], Tensor]) -> Tensor:
        self._begin()
        self._forbid_while_serving("memory is asked for")
        if self._script.take("allocate"):
            raise OutOfMemory("the script has no room for it")
        tensor = make()
        self._own[where].add(tensor.untyped_storage().data_ptr())
        self._kept.append(tensor)       # or its address might come again
        self._taken += tensor.nbytes
        return tensor

    # ---- stream -----------------------------------------------------------------------------

    def put(self, device: Tensor, host: Tensor) -> None:
        self._begin()
        self._check_pair(device, host)
        as_it_was = host.view(torch.uint8).clone()      # bytes: NaN is not equal to itself

        def copy() -> None:
            if not torch.equal(host.view(torch.uint8), as_it_was):
                raise RuleBroken("a staging buffer was written before its copy was done")
            device.copy_(host)

        self.enqueue(copy)

    def get(self, host: Tensor, device: Tensor) -> None:
        self._begin()
        self._check_pair(device, host)
        if host.is_floating_point():
            host.fill_(math.nan)        # whoever reads too early sees it

        def copy() -> None:
            host.copy_(device)
            if self._gives_nan:
                host.fill_(math.nan)
                self._gives_nan = False

        self.enqueue(copy)

    def run(self, work: Work, tokens: int = 0) -> None:
        self._begin()
        self.enqueue(work, tokens * self._script.speed_us() / 1e6, is_launch=True)

    def warm(self, work: Work) -> None:
        self.run(work)
        self.wait()
        self._warmed.add(work)

    def wait(self) -> None:
        self._begin()
        while self._queue:
            self.advance()
            if self._queue:
                time.sleep(WAIT_S)

    def enqueue(self, act: Callable[[], object], takes_s: float = 0.0,
                is_launch: bool = False) -> None:
        self._begin()
        if not self._queue:
            self.busy_until = max(self.busy_until, self._clock())
        self._queue.append((act, takes_s, is_launch))

    def advance(self) -> None:
        """Does what the device would have done by now, up to one launch: a device computes while
        its host goes on, and a host that computes several is deaf for all of them."""
        self._begin()
        is_launch = False
        while self._queue and self._clock() >= self.busy_until and not is_launch:
            act, takes_s, is_launch = self._queue.popleft()
            with torch.inference_mode(), torch.jit.optimized_execution(False):
                act()
            self.busy_until = max(self.busy_until + takes_s, self._clock())

    # ---- graphs -----------------------------------------------------------------------------

    def capture(self, work: Work, tokens: int) -> RecordedGraph:
        self._begin()
        self._forbid_while_serving("a graph is captured")
        if work not in self._warmed:
            raise RuleBroken("a function is captured that never ran: its first calls would break "
                             "the capture")
        if tokens > self._smallest:
            raise RuleBroken(f"a graph of {tokens} tokens is captured after one of "
                             f"{self._smallest}: it does not fit into the pool's blocks")
        if self._is_broken_up:
            raise RuleBroken("a graph is captured after a part of the others was dropped")
        fault = self._script.take("capture")
        if fault:
            self._error = f"{ILLEGAL_ADDRESS}: so the script says" if fault == "error" else ""
            raise CaptureFailed(f"{fault}: so the script says")
        guard = CaptureGuard()
        try:
            with torch.inference_mode(), torch.jit.optimized_execution(False), guard:
                output = work().clone()
        except RuntimeError as error:
            raise CaptureFailed(guard.found or str(error)) from None
        graph = RecordedGraph(work, tokens, output)
        self._graphs.append(graph)
        self._smallest = tokens
        return graph

    def replay(self, graph: RecordedGraph) -> None:
        self._begin()
        if self._is_broken_up or graph not in self._graphs:
            raise RuleBroken("a graph is replayed after it, or a part of the others, was dropped")
        fault = self._script.take("replay")
        if fault == "memory":
            raise OutOfMemory("so the script says")
        if fault == "error":
            self._error = f"{ILLEGAL_ADDRESS}: so the script says"
        if fault == "exit":
            os._exit(EXIT_STATUS)
        if fault == "nan":
            self._gives_nan = True
        self._begin()
        takes_s = math.inf if fault == "hang" else graph.tokens * self._script.speed_us() / 1e6
        self.enqueue(lambda: self._replay_now(graph, fault == "stale"), takes_s, is_launch=True)

    def _replay_now(self, graph: RecordedGraph, is_stale: bool) -> None:
        if not is_stale:
            graph.output.copy_(graph.work())
        for other in self._graphs:
            if other is not graph and other.output.is_floating_point():
                other.output.fill_(math.nan)

    def drop(self, graph: RecordedGraph) -> None:
        self._begin()
        self._graphs.remove(graph)
        self._is_broken_up = bool(self._graphs)
        if not self._graphs:
            self._smallest = math.inf

    def flush(self) -> None:
        self.wait()
        self._graphs.clear()
        self._is_broken_up = False
        self._smallest = math.inf

    def trim(self) -> None:
        self.wait()

    def seal(self) -> None:
        self._begin()
        self._is_serving = True

    # ---- rules ------------------------------------------------------------------------------

    def _begin(self) -> None:
        if threading.get_ident() != self._thread:
            raise RuleBroken("the device is used by another thread than the one that opened it")
        if self._error:
            raise DeviceBroken(self._error)

    def _forbid_while_serving(self, what: str) -> None:
        if self._is_serving:
            raise RuleBroken(f"{what} while serving")

    def _check_pair(self, device: Tensor, host: Tensor) -> None:
        """A copy that the device can make by itself: else the call would wait for it."""
        if host.untyped_storage().data_ptr() not in self._own["staging"]:
            raise RuleBroken("a copy's host side is no staging memory")
        if device.untyped_storage().data_ptr() not in self._own["device"]:
            raise RuleBroken("a copy's device side is none of the device's own memory")
        if host.dtype != device.dtype or host.shape != device.shape \
                or not host.is_contiguous() or not device.is_contiguous():
            raise RuleBroken("a copy's sides differ in type or shape, or have gaps")
