"""A device that is none: the port on CPU tensors, with the rules of a CUDA device enforced.

Work waits in two queues, as in streams, and is done when somebody asks how far the device is, so a
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
from typing import Any, NamedTuple

import torch
from torch import Tensor

from model.device.guard import CaptureGuard
from model.device.port import CaptureFailed, DeviceBroken, OutOfMemory, Work
from model.device.script import Script

ILLEGAL_ADDRESS = 700
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
WAIT_S = 0.0002
EXIT_STATUS = 9


class RuleBroken(AssertionError):
    """The port was used in a way that a CUDA device punishes; the message says which."""


class RecordedPool:
    """Where a lane's graphs keep their results, as far as its rules are concerned."""

    def __init__(self, lane: RecordedLane) -> None:
        self.lane = lane
        self.graphs: list[RecordedGraph] = []
        self.smallest = math.inf
        self.is_broken_up = False

    def flush(self) -> None:
        self.graphs.clear()
        self.smallest, self.is_broken_up = math.inf, False


class RecordedGraph:
    """A captured function: what it does, and its result in the pool."""

    def __init__(self, lane: RecordedLane, work: Work, tokens: int, output: Tensor) -> None:
        self.lane, self.work, self.tokens, self.output = lane, work, tokens, output


class RecordedEvent:
    """A place in a lane's queue; `at` is when the device came to it."""

    def __init__(self, lane: RecordedLane) -> None:
        self._lane = lane
        self.at: float | None = None

    def record(self) -> None:
        self.at = None
        self._lane.enqueue(self._pass)

    def _pass(self) -> None:
        self.at = self._lane.free_at

    def is_done(self) -> bool:
        self._lane.device.advance()
        return self.at is not None

    def ms_since(self, earlier: RecordedEvent) -> float:
        if earlier._lane is not self._lane:
            raise RuleBroken("events of two lanes are compared: nothing orders them")
        return (self.at - earlier.at) * 1e3


class _Item(NamedTuple):
    """What waits in a lane. What computes needs the device, which does one such thing at a time;
    copies and events only wait for what is before them in their lane."""

    act: Callable[[], object]
    enqueued_at: float
    computes: bool
    takes_s: float


class RecordedLane:
    """A model.device.port.Lane of a Recorder. `free_at` is when what was done last had ended."""

    def __init__(self, device: Recorder) -> None:
        self.device = device
        self.pool = RecordedPool(self)
        self.free_at = -math.inf
        self._queue: deque[_Item] = deque()
        self._warmed: set[Work] = set()
        self._gives_nan = False

    def event(self) -> RecordedEvent:
        self.device.forbid_while_serving("an event is made")
        return RecordedEvent(self)

    def put(self, device: Tensor, host: Tensor) -> None:
        self.device.check_pair(device, host, self)
        as_it_was = host.view(torch.uint8).clone()      # bytes: NaN is not equal to itself

        def copy() -> None:
            if not torch.equal(host.view(torch.uint8), as_it_was):
                raise RuleBroken("a staging buffer was written before its copy was done")
            device.copy_(host)

        self.enqueue(copy)

    def get(self, host: Tensor, device: Tensor) -> None:
        self.device.check_pair(device, host, self)
        if host.is_floating_point():
            host.fill_(math.nan)        # whoever reads too early sees it

        def copy() -> None:
            host.copy_(device)
            if self._gives_nan:
                host.fill_(math.nan)
                self._gives_nan = False

        self.enqueue(copy)

    def run(self, work: Work, tokens: int = 0) -> None:
        if self.device.script.take("run"):
            raise OutOfMemory("so the script says")
        self.enqueue(work, True, self.device.script.launch_s(tokens, is_eager=True))

    def warm(self, work: Work) -> None:
        self.run(work)
        self.wait()
        self._warmed.add(work)

    def wait(self) -> None:
        self.device.check()
        while self._queue:
            self.device.advance()
            if self._queue:
                time.sleep(WAIT_S)

    # ---- graphs -----------------------------------------------------------------------------

    def capture(self, work: Work, tokens: int) -> RecordedGraph:
        device, pool = self.device, self.pool
        device.forbid_while_serving("a graph is captured")
        if pool.lane is not self:
            raise RuleBroken("two lanes capture into one pool: their graphs may run at once")
        if work not in self._warmed:
            raise RuleBroken("a function is captured that never ran on this lane: its first calls "
                             "would break the capture")
        if tokens > pool.smallest:
            raise RuleBroken(f"a graph of {tokens} tokens is captured after one of "
                             f"{pool.smallest}: it does not fit into the pool's blocks")
        if pool.is_broken_up:
            raise RuleBroken("a graph is captured after a part of the others was dropped")
        fault = device.script.take("capture")
        if fault:
            if fault == "error":
                device.break_down()
            raise CaptureFailed(f"{fault}: so the script says")
        witness = _Witness()
        try:
            with torch.inference_mode(), torch.jit.optimized_execution(False), witness:
                output = work().clone()
        except RuntimeError as error:
            raise CaptureFailed(witness.found or str(error)) from None
        device.claim_all(witness, self)
        graph = RecordedGraph(self, work, tokens, output)
        pool.graphs.append(graph)
        pool.smallest = tokens
        return graph

    def replay(self, graph: RecordedGraph) -> None:
        device = self.device
        device.check()
        if graph.lane is not self:
            raise RuleBroken("a graph is replayed on a lane that is not its own: two of a pool "
                             "could run at once")
        if self.pool.is_broken_up or graph not in self.pool.graphs:
            raise RuleBroken("a graph is replayed after it, or a part of the others, was dropped")
        fault = device.script.take("replay")
        if fault == "memory":
            raise OutOfMemory("so the script says")
        if fault == "error":
            device.break_down()
        if fault == "exit":
            os._exit(EXIT_STATUS)
        if fault == "nan":
            self._gives_nan = True
        takes_s = math.inf if fault == "hang" else device.script.launch_s(graph.tokens)
        self.enqueue(lambda: self._replay_now(graph, fault == "stale"), True, takes_s)

    def _replay_now(self, graph: RecordedGraph, is_stale: bool) -> None:
        if not is_stale:
            graph.output.copy_(graph.work())
        for other in self.pool.graphs:
            if other is not graph and other.output.is_floating_point():
                other.output.fill_(math.nan)

    # ---- time -------------------------------------------------------------------------------

    def enqueue(self, act: Callable[[], object], computes: bool = False,
                takes_s: float = 0.0) -> None:
        self.device.check()
        self._queue.append(_Item(act, self.device.clock(), computes, takes_s))

    def next_start(self, device_free_at: float) -> float:
        """When its next item can begin; infinity where none waits."""
        if not self._queue:
            return math.inf
        item = self._queue[0]
        start = max(self.free_at, item.enqueued_at)
        return max(start, device_free_at) if item.computes else start

    def do_next(self, start: float) -> bool:
        """Does its next item, which begins at `start`; whether that had the device."""
        item = self._queue.popleft()
        self.free_at = start
        begun = self.device.clock()
        with torch.inference_mode(), torch.jit.optimized_execution(False):
            item.act()
        if item.computes:
            self.free_at = start + max(item.takes_s, self.device.clock() - begun)
        return item.computes


class _Witness(CaptureGuard):
    """Also notes whose memory a function reads and writes, by the addresses of storages."""

    def __init__(self) -> None:
        super().__init__()
        self.touched: set[int] = set()
        self.written: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {**dict(zip((a.name for a in func._schema.arguments), args)), **(kwargs or {})}
        for argument in func._schema.arguments:
            value = given.get(argument.name)
            for tensor in value if isinstance(value, (list, tuple)) else (value,):
                if isinstance(tensor, Tensor):
                    address = tensor.untyped_storage().data_ptr()
                    self.touched.add(address)
                    if argument.is_write:
                        self.written.add(address)
        return super().__torch_dispatch__(func, types, args, kwargs)


class Recorder:
    """A model.device.port.Port. `dtypes` are the script's unless given; `clock` gives monotonic
    seconds.

    Its two lanes share one device that does one piece of computing at a time, to its end; of two
    that could begin it takes the high lane's.
    """

    kind = name = "recorder"
    capability = (0, 0)

    def __init__(self, script: Script, dtypes: Sequence[torch.dtype] = (),
                 clock: Callable[[], float] = time.monotonic) -> None:
        arithmetic = script.arithmetic()
        self.dtypes = tuple(dtypes) or tuple(DTYPES[name] for name in arithmetic if name in DTYPES)
        self.eight_bits = tuple(name for name in arithmetic if name not in DTYPES)
        self.script, self.clock = script, clock
        self.low, self.high = RecordedLane(self), RecordedLane(self)
        self._thread = threading.get_ident()
        self._free_at = -math.inf
        self._staging: set[int] = set()
        self._device: set[int] = set()
        self._uploaded: set[int] = set()
        self._owner: dict[int, RecordedLane] = {}
        self._kept: list[Tensor] = []
        self._taken = 0
        self._is_serving = False
        self._error = ""

    # ---- memory -----------------------------------------------------------------------------

    def memory(self) -> tuple[int, int]:
        self.check()
        total, free = self.script.memory()
        return free, total

    def taken(self) -> int:
        return self._taken

    def held(self) -> int:
        return self._taken

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        return self._allocate(self._device, lambda: torch.empty(tuple(shape), dtype=dtype))

    def upload(self, tensor: Tensor) -> Tensor:
        return self._allocate(self._uploaded, tensor.clone)

    def row_kernels(self, wide: torch.dtype, codes: torch.dtype) -> None:
        """It has none of its own."""

    def staging(self, count: int, dtype: torch.dtype) -> Tensor:
        return self._allocate(self._staging, lambda: torch.zeros(count, dtype=dtype))

    def _allocate(self, own: set[int], make: Callable[[], Tensor]) -> Tensor:
        self.forbid_while_serving("memory is asked for")
        if self.script.take("allocate"):
            raise OutOfMemory("the script has no room for it")
        tensor = make()
        own.add(tensor.untyped_storage().data_ptr())
        self._kept.append(tensor)       # or its address might come again
        self._taken += tensor.nbytes
        return tensor

    # ---- both lanes -------------------------------------------------------------------------

    def wait(self) -> None:
        self.high.wait()
        self.low.wait()

    def advance(self) -> None:
        """Does what the device would have done by now, up to one launch: a device computes while
        its host goes on, and a host that computes several is deaf for all of them."""
        self.check()
        has_computed = False
        while not has_computed:
            lane = min((self.high, self.low), key=lambda lane: lane.next_start(self._free_at))
            start = lane.next_start(self._free_at)
            if start == math.inf or start > self.clock():
                return
            has_computed = lane.do_next(start)
            if has_computed:
                self._free_at = lane.free_at

    def drop(self, graph: RecordedGraph) -> None:
        self.check()
        pool = graph.lane.pool
        pool.graphs.remove(graph)
        pool.is_broken_up = bool(pool.graphs)
        if not pool.graphs:
            pool.flush()

    def flush(self) -> None:
        self.wait()
        for lane in (self.low, self.high):
            lane.pool.flush()

    def trim(self) -> None:
        self.wait()

    def seal(self) -> None:
        self.check()
        self._is_serving = True

    # ---- rules, for its lanes ---------------------------------------------------------------

    def break_down(self) -> None:
        """From now on every call fails."""
        self._error = f"{ILLEGAL_ADDRESS}: so the script says"

    def check(self) -> None:
        """Of every call. Raises DeviceBroken."""
        if threading.get_ident() != self._thread:
            raise RuleBroken("the device is used by another thread than the one that opened it")
        if self._error:
            raise DeviceBroken(self._error)

    def forbid_while_serving(self, what: str) -> None:
        self.check()
        if self._is_serving:
            raise RuleBroken(f"{what} while serving")

    def check_pair(self, device: Tensor, host: Tensor, lane: RecordedLane) -> None:
        """A copy that the device can make by itself, else the call would wait for it; and of
        memory that is this lane's."""
        self.check()
        host_at, device_at = (tensor.untyped_storage().data_ptr() for tensor in (host, device))
        if host_at not in self._staging:
            raise RuleBroken("a copy's host side is no staging memory")
        if device_at not in self._device:
            raise RuleBroken("a copy's device side is none of the device's own memory")
        if host.dtype != device.dtype or host.shape != device.shape \
                or not host.is_contiguous() or not device.is_contiguous():
            raise RuleBroken("a copy's sides differ in type or shape, or have gaps")
        self._claim(host_at, lane)
        self._claim(device_at, lane)

    def claim_all(self, witness: _Witness, lane: RecordedLane) -> None:
        """Of a captured function: what it touches is its lane's."""
        if witness.written & self._uploaded:
            raise RuleBroken("a graph writes what was uploaded, which both lanes read")
        for address in witness.touched & self._device:
            self._claim(address, lane)

    def _claim(self, address: int, lane: RecordedLane) -> None:
        if self._owner.setdefault(address, lane) is not lane:
            raise RuleBroken("two lanes share a buffer: what one writes the other may still read")
