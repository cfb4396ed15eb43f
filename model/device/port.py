"""What a program asks of a device: the port that a CUDA device and its recorder stand behind.

All calls come from one thread. Work goes to one of two lanes: in each, what is asked later happens
later; between them nothing is promised but that work of the high lane goes first wherever both
wait. So what one lane's work writes is no other lane's: buffers, staging, events, graphs and the
pool of graphs belong to the lane that first used them, and only uploaded tensors are read by both.

Memory is asked for before `seal` and never again. A graph is captured after its function has run as
it is (`warm`), the largest of a lane first, so that smaller ones fit into its blocks of the lane's
pool; what a graph leaves there is overwritten by the lane's next one, so a captured function copies
its result to memory of its caller's. A graph keeps the priority of the lane that it was captured
on, and is replayed there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

# Of a graph's function: enqueues work that reads and writes fixed memory, and returns its result.
Work = Callable[[], Tensor]


class OutOfMemory(Exception):
    """The device has no room for this; others may have taken it. The process can go on."""


class CaptureFailed(Exception):
    """A capture broke. What the allocator then holds is unknown: the process must end."""


class DeviceBroken(Exception):
    """A call failed in a way after which every later one does: the process must end."""


class Event(Protocol):
    """A place in a lane."""

    def record(self) -> None:
        """Puts it behind everything asked of its lane so far."""

    def is_done(self) -> bool:
        """Whether the device has come to it; never waits. Raises DeviceBroken."""

    def ms_since(self, earlier: Event) -> float:
        """The device's own time between two events of one lane that are done, in milliseconds."""


class Graph(Protocol):
    """A captured function. `output` lies in the pool: the lane's next replay of another overwrites
    it."""

    tokens: int
    output: Tensor


class Lane(Protocol):
    """What the device is asked to do, in order. Every method may raise OutOfMemory or
    DeviceBroken."""

    pool: object
    """Where its graphs keep what they compute; no other lane's is equal to it."""

    def event(self) -> Event:
        """A new event, not recorded."""

    def put(self, device: Tensor, host: Tensor) -> None:
        """Enqueues a copy of staging memory to the device; the host's must stay as it is until an
        event behind it is done."""

    def get(self, host: Tensor, device: Tensor) -> None:
        """Enqueues a copy to staging memory."""

    def run(self, work: Work, tokens: int = 0) -> None:
        """Enqueues a function as it is, without a graph, for so many padded tokens."""

    def warm(self, work: Work) -> None:
        """Runs a function so often that all of its first calls are made, and waits."""

    def capture(self, work: Work, tokens: int) -> Graph:
        """Captures a function of so many padded tokens that was warmed here; waits. Raises
        CaptureFailed."""

    def replay(self, graph: Graph) -> None:
        """Enqueues a graph of this lane."""

    def wait(self) -> None:
        """Waits until everything asked of this lane is done."""


class Port(Protocol):
    """One device. Every method may raise OutOfMemory or DeviceBroken."""

    kind: str
    """"cuda" or "recorder"."""

    name: str
    """The product's name, for people."""

    capability: tuple[int, int]
    """What kernels it can run, as CUDA counts; (0, 0) for none of CUDA's."""

    dtypes: tuple[torch.dtype, ...]
    """The arithmetic to try, the fastest first."""

    eight_bits: tuple[str, ...]
    """What of "fp8" and "int8" it may have operators for."""

    low: Lane
    high: Lane

    def memory(self) -> tuple[int, int]:
        """(free, total) in bytes, as the device says."""

    def taken(self) -> int:
        """Bytes that this process has taken since it began."""

    def held(self) -> int:
        """Of those, the bytes that lie in the allocator's blocks: tensors, the graphs' pools, and
        what is kept for later. The rest is the context's and the driver's."""

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Uninitialised device memory, for good."""

    def upload(self, tensor: Tensor) -> Tensor:
        """A copy on the device, for good."""

    def row_kernels(self, wide: torch.dtype, codes: torch.dtype) -> nn.Module | None:
        """Row operations of its own between 8-bit products (model.programs.row_ops.RowOps), not
        tried yet; None where it has none. Raises whatever keeps it from having them."""

    def staging(self, count: int, dtype: torch.dtype) -> Tensor:
        """Host memory, [count], that the device can copy from and to by itself."""

    def drop(self, graph: Graph) -> None:
        """Forgets one graph. Others of the same lane may break (cuBLAS's workspace is shared):
        none may be replayed until `flush`."""

    def flush(self) -> None:
        """Forgets all graphs and gives their memory back; new ones may then be captured."""

    def trim(self) -> None:
        """Gives back what is held and not used; waits for the device, so only when idle."""

    def seal(self) -> None:
        """From now on it serves: no memory is asked for, and nothing captured."""

    def wait(self) -> None:
        """Waits until everything asked so far is done."""
