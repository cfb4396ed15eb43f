"""Where readings of devices come from: the protocol, and the scripted source of recorded ones."""

import time
from typing import Protocol

from model.device.script import Script

RECORDED_UUID = "GPU-recorder"


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

    def lost(self) -> dict[str, str]:
        """Why each device is lost that its driver has given up since the last look."""

    def memory(self, uuid: str) -> tuple[int, int]:
        """(total, free) in bytes. May block; raises DeviceLost or Unread."""


class Recorded:
    """One device whose memory a script tells."""

    def __init__(self, path: str) -> None:
        self._script = Script(path)
        self.uuids = [RECORDED_UUID]

    def name(self, uuid: str) -> str:
        return "recorder"

    def lost(self) -> dict[str, str]:
        return {}

    def memory(self, uuid: str) -> tuple[int, int]:
        fault = self._script.take("watch")
        while fault == "block":
            time.sleep(3600)
        if fault == "lost":
            raise DeviceLost("so the script says")
        return self._script.memory()


def open_source(device: str, faults: str, variable: str | None) -> Source:
    """The source for `--device`; `variable` is CUDA_VISIBLE_DEVICES. Raises NoDevices."""
    if device == "recorder":
        return Recorded(faults)
    from server.nvml import Nvml        # and with it pynvml, in the watch alone
    return Nvml(variable)
