"""What a part works with: the device behind its port, how large everything is, and a report."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass

from model.device.port import Port
from tools.gpucheck.report import Report
from tools.gpucheck.sizes import Sizes

# The targets of speed are for this device.
JUDGED_NAME, JUDGED_CAPABILITY = "H200", (9, 0)


class NoDevice(Exception):
    """There is nothing to check here; the message says why."""


@dataclass
class Rig:
    """`faults` is the recorded device's script, empty on a real one; `clock` gives seconds."""

    kind: str
    sizes: Sizes
    report: Report
    faults: str
    make_port: Callable[[], Port]
    clock: Callable[[], float] = time.perf_counter

    def open(self) -> Port:
        """The device, anew: whatever was opened before has been flushed and is used no more. Raises
        NoDevice."""
        gc.collect()        # programs and their functions hold one another, and device memory
        port = self.make_port()
        self.report.is_judged = is_judged(port)
        sm = "".join(map(str, port.capability))
        self.report.device = port.name if self.kind == "recorder" else \
            f"{port.name}, sm_{sm}, torch {_torch_version()}"
        return port


def is_judged(port: Port) -> bool:
    """Whether the targets of speed are for this device."""
    return JUDGED_NAME in port.name and port.capability == JUDGED_CAPABILITY


def opener(kind: str, faults: str) -> Callable[[], Port]:
    """What opens a device of a kind."""
    def open_recorder() -> Port:
        from model.device.recorder import Recorder
        from model.device.script import Script
        return Recorder(Script(faults))

    def open_cuda() -> Port:
        from model.device import cuda
        try:
            return cuda.Cuda()
        except cuda.Unusable as error:
            raise NoDevice(str(error)) from None

    return open_recorder if kind == "recorder" else open_cuda


def _torch_version() -> str:
    import torch
    return torch.__version__
