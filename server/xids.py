"""What the driver reports of devices that broke: NVML's events, read without waiting.

An Xid is the driver's number for a fault. Most are an application's own, ours or a neighbour's, and
whoever caused them finds out by itself; a few say that the device computes nothing any more before
its machine or driver is reset, and come sooner than a reading that fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pynvml

# Memory errors that were not contained, a device that is off the bus, a GPU system processor that
# gives no answer: NVIDIA's catalogue asks for a reset.
FATAL = {79: "it has fallen off the bus", 95: "an uncontained memory error",
         119: "its system processor does not answer", 120: "its system processor failed"}
XID_EVENTS = 0x8                    # nvmlEventTypeXidCriticalError
# A driver that reports without end must not keep the watch from reading.
MOST_A_LOOK = 64


class Xids:
    """Watches devices for faults, as far as the driver can: one that cannot reports none.

    `uuids` may be slices, which fall with their device; `handle_of` gives a device's handle.
    """

    def __init__(self, uuids: Sequence[str], handle_of: Callable[[str], Any]) -> None:
        self._ours: dict[str, list[str]] = {}
        self._events: Any = None
        try:
            self._events = pynvml.nvmlEventSetCreate()
        except pynvml.NVMLError:
            return
        for uuid in uuids:
            try:
                whole = _whole(handle_of(uuid))
                name = _uuid(whole)
                if name not in self._ours:
                    pynvml.nvmlDeviceRegisterEvents(whole, XID_EVENTS, self._events)
            except pynvml.NVMLError:
                continue
            self._ours.setdefault(name, []).append(uuid)

    def take(self) -> dict[str, str]:
        """Device → why it is lost, of those that were reported since the last look."""
        found: dict[str, str] = {}
        if not self._ours:
            return found
        for _ in range(MOST_A_LOOK):
            try:
                event = pynvml.nvmlEventSetWait_v2(self._events, 0)
                code, name = int(event.eventData), _uuid(event.device)
            except pynvml.NVMLError:        # mostly: none within no time
                break
            if event.eventType == XID_EVENTS and code in FATAL:
                for uuid in self._ours.get(name, ()):
                    found[uuid] = f"Xid {code}: {FATAL[code]}"
        return found


def _whole(handle: Any) -> Any:
    """The device of a slice; of a whole device itself."""
    try:
        return pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
    except pynvml.NVMLError:
        return handle


def _uuid(handle: Any) -> str:
    found = pynvml.nvmlDeviceGetUUID(handle)
    return found.decode("utf-8", "replace") if isinstance(found, bytes) else found
