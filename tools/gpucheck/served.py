"""The real server with GPU engines, from this checkout, seen from outside."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from http.client import HTTPConnection

from tools.gpucheck.report import ROOT
from tools.gpucheck.rig import Rig

READY = re.compile(r"ready http://([^:/\s]+):(\d+)")
# Back as soon as the device has room: the operator's half minute would be the check's too.
FLAGS = ("--gpu-hold-s", "1", "--gpu-back-off-s", "1", "--gpu-longest-back-off-s", "1",
         "--gpu-watch-ms", "100", "--max-wait-ms", "10000")
ANSWER_S, END_S, LOOK_S = 60.0, 10.0, 0.05
LAST_LINES = 3


class NotServed(Exception):
    """The server does not do what it should; the message says what was waited for."""


class Served:
    """`python -m server` with the shipped model as a child; a context manager."""

    def __init__(self, rig: Rig) -> None:
        flags = ["--device", rig.kind, *FLAGS]
        if rig.kind == "recorder":
            flags += ["--faults", rig.faults, "--gpu-tokens", str(rig.sizes.token_cap)]
        self._log = tempfile.TemporaryFile()
        self._process = subprocess.Popen([sys.executable, "-m", "server", "--port", "0", *flags],
                                         cwd=ROOT, stdout=subprocess.PIPE, stderr=self._log,
                                         text=True)
        for line in self._process.stdout:
            found = READY.search(line)
            if found:
                self.host, self.port = found.group(1), int(found.group(2))
                return
        self._process.wait()
        last = self.last_words()
        self._close()
        raise NotServed(f"the server did not start: {last}")

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        """INT, which skips the lame duck; KILL when that takes too long."""
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._close()

    def _close(self) -> None:
        self._process.stdout.close()
        self._log.close()

    def last_words(self) -> str:
        """The end of its log."""
        self._log.seek(0)
        lines = self._log.read().decode("utf-8", "replace").strip().splitlines()
        return " | ".join(lines[-LAST_LINES:])

    def info(self) -> dict:
        url = f"http://{self.host}:{self.port}/info"
        with urllib.request.urlopen(url, timeout=ANSWER_S) as response:
            return json.loads(response.read())

    def device(self) -> dict:
        """What /info says of the first device; empty before it is known."""
        return (self.info()["devices"] or [{}])[0]

    def gpu_pids(self) -> list[int]:
        """Processes of GPU engines that are up."""
        return [row["pid"] for row in self.info()["processes"]
                if row["role"] == "gpu_engine" and row["state"] == "up"]

    def connect(self) -> HTTPConnection:
        return HTTPConnection(self.host, self.port, timeout=ANSWER_S)


def wait_for(what: str, condition: Callable[[], bool], patience_s: float) -> float:
    """Seconds until `condition` held. Raises NotServed."""
    begun = time.monotonic()
    while not condition():
        if time.monotonic() - begun > patience_s:
            raise NotServed(f"not within {patience_s:g} s: {what}")
        time.sleep(LOOK_S)
    return time.monotonic() - begun
