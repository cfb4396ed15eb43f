"""Where readings of devices come from: the protocol, and the scripted source of recorded ones."""

import os
import time
from typing import Protocol

from model.device.script import Script

RECORDED_UUID = "GPU-recorder"
# One of them is there wherever a process can use a GPU: the driver's, and WSL's.
DEVICE_NODES = ("/dev/nvidiactl", "/dev/dxg")


class NoDevices(Exception):
    """There is no GPU to use in this run; the message says why."""


class DeviceLost(Exception):
    """The device will not come back before its machine or driver is reset."""


class Unread(Exception):
    """No reading this time."""


class Source(Protocol):
    """Devices that can be read. `uuids` are those that this server may use, in order."""

    uuids: list[str]

    def name(self, uuid: str) -> str:
        """The product's name; empty where the driver does not tell."""

    def memory(self, uuid: str) -> tuple[int, int]:
        """(total, free) in bytes. May block; raises DeviceLost or Unread."""


class Recorded:
    """One device whose memory a script tells."""

    def __init__(self, path: str) -> None:
        self._script = Script(path)
        self.uuids = [RECORDED_UUID]

    def name(self, uuid: str) -> str:
        return "recorder"

    def memory(self, uuid: str) -> tuple[int, int]:
        fault = self._script.take("watch")
        while fault == "block":
            time.sleep(3600)
        if fault == "lost":
            raise DeviceLost("so the script says")
        return self._script.memory()


def may_have(device: str) -> bool:
    """False where `--device` will never find one."""
    return device != "cpu" and (device != "auto" or any(map(os.path.exists, DEVICE_NODES)))


def open_source(device: str, faults: str, variable: str | None) -> Source:
    """The source for `--device`; `variable` is CUDA_VISIBLE_DEVICES. Raises NoDevices."""
    if device == "recorder":
        return Recorded(faults)
    from server.nvml import Nvml        # and with it pynvml, in the watch alone
    return Nvml(variable)
