"""What the service manager is told, by systemd's plain socket protocol (sd_notify(3)).

A datagram of KEY=value lines to the socket that NOTIFY_SOCKET names; nothing without one. Whatever
goes wrong is no reason to stop serving.
"""

import os
import socket
import time
from collections.abc import Mapping


class Notifier:
    """Tells READY, RELOADING, STOPPING and WATCHDOG."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._pulse_s = _pulse_s(environ)
        self._pulse_at = 0.0

    def ready(self, status: str) -> None:
        """It serves, for the first time or again after `reloading`; `status` is for people."""
        self._send(f"READY=1\nSTATUS={status}")

    def reloading(self) -> None:
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}\n"
                   "STATUS=loading a model beside the one that serves")

    def stopping(self) -> None:
        self._send("STOPPING=1\nSTATUS=answering what was accepted")

    def pulse(self, now: float) -> None:
        """A sign of life where the manager wants one; often enough is twice in its time."""
        if self._pulse_s and now >= self._pulse_at:
            self._pulse_at = now + self._pulse_s
            self._send("WATCHDOG=1")

    def _send(self, text: str) -> None:
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as way:
            way.setblocking(False)
            try:
                way.sendto(text.encode(), self._address)
            except OSError:
                return      # the manager restarts, or its queue is full: it will hear the next


def _pulse_s(environ: Mapping[str, str]) -> float:
    """Seconds between two signs of life; 0 where none are wanted of this process."""
    wanted_of = environ.get("WATCHDOG_PID", "")
    if wanted_of and wanted_of != str(os.getpid()):
        return 0.0
    try:
        return int(environ.get("WATCHDOG_USEC", "0")) / 1e6 / 2
    except ValueError:
        return 0.0
