"""The watch's process: reads each GPU's memory a few times a second and tells the master.

A driver call can take for ever, and nobody else may wait for it: the readings travel as messages
that say when they were made, and the master kills a watch that gives no sign of life. Without a
device it says so once and ends.
"""

import os
import select
import time

from server import log
from server.device_source import DeviceLost, NoDevices, Source, Unread, open_source
from server.metrics import UP
from server.processes import ChildSpec, Control, arm

# So many failed readings of a device in a row are told in the log; its state stays as it is.
BLIND_AFTER = 3


def run(spec: ChildSpec) -> None:
    """Sends {"type": "devices"} once, or {"type": "no_devices"} and returns; then readings until
    the master ends."""
    arm(spec)
    settings = spec.settings
    try:
        source = open_source(settings.device, settings.faults,
                             os.environ.get("CUDA_VISIBLE_DEVICES"))
    except NoDevices as error:
        spec.control.send({"type": "no_devices", "why": str(error)})
        return
    spec.control.send({"type": "devices", "devices": [
        {"uuid": uuid, "name": source.name(uuid)} for uuid in source.uuids]})
    spec.page.set_state(UP)
    watch = Watch(source, spec.control)
    while True:
        spec.page.turn(time.monotonic())
        watch.round()
        spec.page.set_worked()
        select.select((spec.control,), (), (), settings.gpu_watch_ms / 1e3)
        if spec.control.receive_all()[1]:
            return


class Watch:
    """One round after another over all devices; `control` takes the readings."""

    def __init__(self, source: Source, control: Control) -> None:
        self._source = source
        self._control = control
        self._failures = dict.fromkeys(source.uuids, 0)
        self._lost: set[str] = set()

    def round(self) -> None:
        """Reads each device that is not lost and sends {"type": "reading"}, stamped with the time
        before the call, or {"type": "device_lost"}, also where only the driver has said so."""
        for uuid, why in self._source.lost().items():
            self._lose(uuid, why)
        for uuid in self._source.uuids:
            if uuid in self._lost:
                continue
            at = time.monotonic()
            try:
                total, free = self._source.memory(uuid)
            except DeviceLost as error:
                self._lose(uuid, str(error))
                continue
            except Unread as error:
                self._failures[uuid] += 1
                if self._failures[uuid] == BLIND_AFTER:
                    log.event("device_unread", device=uuid, times=BLIND_AFTER, why=error)
                continue
            self._failures[uuid] = 0
            self._control.send({"type": "reading", "uuid": uuid, "at": at, "total": total,
                                "free": free})
        self._control.flush()

    def _lose(self, uuid: str, why: str) -> None:
        if uuid not in self._lost:
            self._lost.add(uuid)
            self._control.send({"type": "device_lost", "uuid": uuid, "why": why})
