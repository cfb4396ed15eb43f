"""Finds on any device what a CUDA graph cannot hold: operations that ask the device for a value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

# They wait for the device, or their results' shapes depend on values.
FORBIDDEN = {"_local_scalar_dense", "item", "nonzero", "nonzero_static", "masked_select", "unique",
             "_unique", "_unique2", "unique_consecutive", "unique_dim", "bincount", "histc",
             "repeat_interleave", "is_nonzero", "equal", "is_pinned", "_pin_memory"}
# A replay would draw the same numbers again.
RANDOM = {"bernoulli", "bernoulli_", "multinomial", "normal", "normal_", "rand", "rand_like",
          "randn", "randn_like", "randint", "randperm", "uniform_", "exponential_",
          "native_dropout"}


def obstacle(work: Callable[[], object]) -> str:
    """What a graph of this function could not hold, found by running it; empty where nothing is.

    Other errors are raised as they come.
    """
    guard = CaptureGuard()
    try:
        with torch.inference_mode(), torch.jit.optimized_execution(False), guard:
            work()
    except RuntimeError:
        if not guard.found:
            raise
    return guard.found


class Uncapturable(RuntimeError):
    """A function does what a graph cannot hold; the message names the operation."""


class CaptureGuard(TorchDispatchMode):
    """Raises Uncapturable at the first such operation inside its block.

    Out of TorchScript it comes as a RuntimeError without its words: `found` keeps them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found = ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::")
        if name in FORBIDDEN or name in RANDOM:
            self._refuse(name)
        if name in ("index", "index_put", "index_put_"):
            for index in args[1]:
                if index is not None and index.dtype in (torch.bool, torch.uint8):
                    self._refuse(f"{name} with a mask")
        wanted = kwargs.get("device")
        tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
        if name == "_to_copy" and wanted is not None and tensors \
                and torch.device(wanted).type != tensors[0].device.type:
            self._refuse("a copy to another device")
        return func(*args, **kwargs)

    def _refuse(self, what: str) -> None:
        self.found = f"{what} cannot be captured"
        raise Uncapturable(self.found)
