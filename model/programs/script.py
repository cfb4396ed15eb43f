"""TorchScript set up for a server: no warnings, no second compilation, one thread."""

from __future__ import annotations

import ctypes
import warnings
from typing import Any

import torch


# musl has none; there nothing is given back.
_malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)


def settle() -> None:
    """The settings of a process that runs programs; harmless when called again.

    One thread, because engines are processes; float32 products in float32, whatever the CPU could
    do faster; and the executor that compiles on the first call only: the profiling one compiles a
    second time, in the middle of traffic.
    """
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("highest")
    torch._C._jit_set_profiling_executor(False)


def script(module: torch.nn.Module) -> Any:
    """The module compiled. It works and is the fastest form that torch has without a compiler on
    the machine, but it warns of its deprecation: we pin the versions that have it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.script(module.eval())


def give_back_memory() -> None:
    """Returns free memory to the system.

    Arrays of ever other sizes leave a heap with holes: 30 MB of them after a thousand texts of
    MiniLM, 10 MB in use. The next batch pays some 2 ms to have them again.
    """
    if _malloc_trim is not None:
        _malloc_trim(0)
