"""A running server seen from outside: processes, their descriptors and mappings, counters."""

import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
READY = re.compile(rb"ready http://(\S+):(\d+) ")
SAMPLE = re.compile(r'^(\w+?)(?:\{(.*)\})? (\S+)$')


def wait_until(what: str, condition: Callable[[], object], seconds: float = 60.0) -> object:
    """The first true value of `condition`, polled; AssertionError naming `what` after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        time.sleep(0.02)


class House:
    """`python -m server` as a child; a context manager that leaves nothing running."""

    def __init__(self, arguments: Sequence[str], descriptor_limit: int | None = None,
                 port: int = 0) -> None:
        self.log: list[bytes] = []
        self.started_at = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "server", "--port", str(port), *arguments], cwd=ROOT,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            preexec_fn=descriptor_limit and (lambda: resource.setrlimit(
                resource.RLIMIT_NOFILE, (descriptor_limit, descriptor_limit))))
        self.pid = self.process.pid
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        try:
            self.port = self._wait_for_ready()
        except BaseException:
            self.close()
            raise
        self.ready_s = time.monotonic() - self.started_at

    def __enter__(self) -> "House":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the server at once, whatever state it is in."""
        if self.process.poll() is None:
            for pid in [self.pid, *self.children()]:
                send_signal(pid, signal.SIGCONT)
            self.process.kill()
        self.process.wait()
        self._reader.join()
        self.process.stdout.close()
        self.process.stderr.close()

    def _read_log(self) -> None:
        for line in self.process.stderr:
            self.log.append(line)

    def _wait_for_ready(self) -> int:
        for line in self.process.stdout:
            found = READY.match(line)
            if found:
                return int(found.group(2))
        self.process.wait()
        raise AssertionError("the server ended before it was ready: "
                             + b"".join(self.log[-5:]).decode("utf-8", "replace"))

    def get(self, path: str) -> bytes:
        """The body of a GET, asked again while fronts die under it."""
        url, deadline = f"http://127.0.0.1:{self.port}{path}", time.monotonic() + 30
        while True:
            try:
                with urllib.request.urlopen(url, timeout=5) as got:
                    return got.read()
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def info(self) -> dict:
        return json.loads(self.get("/info"))

    def pids(self, role: str) -> list[int]:
        """Live processes of a role, as /info says and the kernel confirms."""
        children = set(self.children())
        return [row["pid"] for row in self.info()["processes"]
                if row["role"] == role and row["state"] == "up" and row["pid"] in children]

    def roles(self) -> dict[str, int]:
        """How many processes of each role are up."""
        found: dict[str, int] = {}
        for row in self.info()["processes"]:
            if row["state"] == "up" and (row["role"] == "master" or is_alive(row["pid"])):
                found[row["role"]] = found.get(row["role"], 0) + 1
        return found

    def children(self) -> list[int]:
        """All children of the master, zombies left out."""
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdigit() and parent_of(int(entry)) == self.pid:
                found.append(int(entry))
        return found

    def counters(self) -> dict[tuple[str, str], float]:
        """(name, labels as in the text) → value of every sample of /metrics."""
        found = {}
        for line in self.get("/metrics").decode().splitlines():
            sample = None if line.startswith("#") else SAMPLE.match(line)
            if sample:
                found[sample.group(1), sample.group(2) or ""] = float(sample.group(3))
        return found

    def footprint(self) -> dict[int, tuple[str, int, int]]:
        """pid → (role, descriptors that are no TCP connection, mappings)."""
        found = {}
        for row in self.info()["processes"]:
            pid = row["pid"]
            try:
                held = descriptors(pid)
                maps = Path(f"/proc/{pid}/maps").read_bytes().count(b"\n")
            except OSError:
                continue
            tcp = established_ports(self.port)
            found[pid] = (row["role"], sum(target not in tcp for target in held), maps)
        return found

    def connections_of(self, pid: int) -> set[int]:
        """The client ports of the TCP connections that a front holds."""
        held, tcp = set(descriptors(pid)), established_ports(self.port)
        return {port for target, port in tcp.items() if target in held}

    def port_is_free(self) -> bool:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", self.port))
            except OSError:
                return False
        return True


def descriptors(pid: int) -> list[str]:
    """What each descriptor of a process points to, as `socket:[inode]` or a path."""
    found = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            found.append(os.readlink(f"/proc/{pid}/fd/{name}"))
        except OSError:
            continue
    return found


def established_ports(server_port: int) -> dict[str, int]:
    """`socket:[inode]` → client port of each TCP connection to the server's port (proc(5))."""
    found = {}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        field = line.split()
        local, remote, inode = field[1], field[2], field[9]
        if int(local.split(":")[1], 16) == server_port and inode != "0" and field[3] != "0A":
            found[f"socket:[{inode}]"] = int(remote.split(":")[1], 16)
    return found


def parent_of(pid: int) -> int:
    """The parent of a living process; 0 for one that is gone or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    state, parent = stat.rpartition(")")[2].split()[:2]
    return 0 if state in "ZX" else int(parent)


def is_alive(pid: int) -> bool:
    return parent_of(pid) != 0


def send_signal(pid: int, number: int) -> bool:
    """Sends a signal; False where the process is gone already."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
