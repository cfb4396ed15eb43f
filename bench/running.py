"""Programs under measurement: our server and the yardsticks, started, asked and ended."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence

import psutil

from bench.figures import ROOT

READY = re.compile(r"http://([^:/\s]+):(\d+)")
END_TIMEOUT_S = 30.0
SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")


class Program:
    """`python -m NAME ARGUMENTS` as a child that prints its address in one line when it serves."""

    def __init__(self, name: str, arguments: Sequence[str] = ()) -> None:
        self._log = tempfile.TemporaryFile()
        begun = time.perf_counter()
        self.process = subprocess.Popen([sys.executable, "-m", name, *arguments], cwd=ROOT,
                                        stdout=subprocess.PIPE, stderr=self._log, text=True)
        found = None
        for line in self.process.stdout:
            found = READY.search(line)
            if found:
                break
        if not found:
            self.process.wait()
            self._log.seek(0)
            last = self._log.read().decode("utf-8", "replace").strip().splitlines()[-3:]
            self._close_files()
            raise RuntimeError(f"{name} did not start: " + " | ".join(last))
        self.ready_s = time.perf_counter() - begun
        self.host, self.port = found.group(1), int(found.group(2))
        self.url = f"http://{self.host}:{self.port}"

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *_: object) -> None:
        """INT first, which skips the lame duck; KILL when that takes too long."""
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._close_files()

    def _close_files(self) -> None:
        self.process.stdout.close()
        self._log.close()


class Server(Program):
    """Our own server on a free port."""

    def __init__(self, arguments: Sequence[str]) -> None:
        super().__init__("server", ["--port", "0", *arguments])

    def __enter__(self) -> "Server":
        return self

    def get(self, path: str) -> bytes:
        """The body of a GET."""
        with urllib.request.urlopen(self.url + path, timeout=END_TIMEOUT_S) as response:
            return response.read()

    def info(self) -> dict:
        """What /info says."""
        return json.loads(self.get("/info"))

    def processes(self, role: str) -> list[dict]:
        """The rows of /info for the processes of a role that are up."""
        return [row for row in self.info()["processes"]
                if row["role"] == role and row["state"] == "up"]

    def metric(self, name: str) -> list[float]:
        """All samples of a metric, whatever their labels."""
        found = (SAMPLE.match(line) for line in self.get("/metrics").decode().splitlines())
        return [float(one.group(3)) for one in found if one and one.group(1) == name]

    def cpu_seconds(self, role: str) -> float:
        """Processor time of a role so far, user and system."""
        return sum(sum(psutil.Process(row["pid"]).cpu_times()[:2])
                   for row in self.processes(role))

    def kill(self, role: str) -> float:
        """Kills the first process of a role; seconds until its successor is up."""
        victim = self.processes(role)[0]
        begun = time.perf_counter()
        os.kill(victim["pid"], signal.SIGKILL)
        while time.perf_counter() - begun < END_TIMEOUT_S:
            for row in self.processes(role):
                if row["index"] == victim["index"] and row["pid"] != victim["pid"]:
                    return time.perf_counter() - begun
            time.sleep(0.005)
        raise RuntimeError(f"no successor of the {role} within {END_TIMEOUT_S:g} s")
