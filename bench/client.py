"""Load and samples over HTTP: wrk where it is installed, else a closed loop of our own.

    python -m bench.client URL FILE CONNECTIONS SECONDS

prints what `wrk -s bench/rate.lua` prints. Every connection sends its next request when its answer
is there, so both measure capacity, and latency only at that load.
"""

import json
import random
import re
import selectors
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from bench.figures import ROOT, percentile

PERCENTS = (50, 75, 90, 99, 99.9)
ANSWER_TIMEOUT_S = 60.0
SAMPLE_BYTES = 1 << 16


@dataclass(frozen=True)
class Load:
    """What a closed loop measured; `others` counts the statuses that were not 2xx, those of 400 and
    above together where wrk drove, `responses` all."""

    client: str
    requests_per_s: float
    p50_ms: float
    p99_ms: float
    others: dict[str, int] = field(default_factory=dict)
    socket_errors: int = 0
    responses: int = 0

    @property
    def served_per_s(self) -> float:
        """Of the requests, those that were answered 2xx: a refusal costs next to nothing."""
        refused = sum(self.others.values()) / self.responses if self.responses else 0.0
        return self.requests_per_s * (1 - refused)


@dataclass(frozen=True)
class Answer:
    """One sampled response; header names in lower case."""

    took_s: float
    status: int
    headers: dict[str, str]


def read_texts(path: Path) -> list[str]:
    """The last tab-separated column of each line; empty ones left out."""
    with open(path, encoding="utf-8", newline="\n") as file:
        texts = [line.rstrip("\r\n").rsplit("\t", 1)[-1] for line in file]
    return [text for text in texts if text]


def post(text: str) -> bytes:
    """A whole request that classifies `text`."""
    body = b'{"text": ' + json.dumps(text).encode() + b"}"
    return (b"POST /infer HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n" % len(body)) + body


class Driver:
    """A load client as a process of its own, so that it takes nothing from who starts it."""

    def __init__(self, url: str, texts: Path, connections: int, seconds: float,
                 threads: int = 1) -> None:
        wrk = shutil.which("wrk")
        self.client = "wrk" if wrk else "own"
        if wrk:
            command = [wrk, f"-t{min(threads, connections)}", f"-c{connections}",
                       f"-d{max(1, round(seconds))}s", "--timeout", f"{ANSWER_TIMEOUT_S:g}s",
                       "-s", str(ROOT / "bench" / "rate.lua"), url, "--", str(texts)]
        else:
            command = [sys.executable, "-m", "bench.client", url, str(texts), str(connections),
                       str(seconds)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE,
                                         stderr=subprocess.STDOUT, text=True)

    def is_running(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """Ends it where it still runs."""
        self._process.kill()
        self._process.wait()

    def finish(self) -> Load:
        """Waits for the end; raises RuntimeError with the client's words when it failed."""
        said, _ = self._process.communicate()
        rate = re.search(r"^requests/s ([\d.]+)", said, re.M)
        trip = re.search(r"^round trip +([\d. ]+)", said, re.M)
        others = re.search(r"^(\d+) responses, other than 2xx:(.*)", said, re.M)
        errors = re.search(r"^socket errors:(.*)", said, re.M)
        if not (rate and trip and others and errors):
            raise RuntimeError(f"the load client failed: {said.strip()}")
        values = [float(value) for value in trip.group(1).split()]
        return Load(self.client, float(rate.group(1)), values[0], values[3],
                    {code: int(count) for code, count
                     in re.findall(r"(\d+[ \w]*): (\d+)", others.group(2))},
                    sum(int(count) for count in re.findall(r"\d+", errors.group(1))),
                    int(others.group(1)))


def drive(url: str, texts: Path, connections: int, seconds: float, threads: int = 1) -> Load:
    """Load for `seconds`, start to end."""
    return Driver(url, texts, connections, seconds, threads).finish()


def read_answer(connection: socket.socket, pending: bytes = b"") -> tuple[int, bytes, bytes]:
    """(status, header bytes, what follows the response) of one response with a Content-Length."""
    while True:
        end = pending.find(b"\r\n\r\n")
        if end >= 0:
            found = re.search(rb"(?i)\r\ncontent-length: *(\d+)", pending[:end])
            size = end + 4 + (int(found.group(1)) if found else 0)
            if len(pending) >= size:
                return int(pending[9:12]), pending[:end], pending[size:]
        more = connection.recv(SAMPLE_BYTES)
        if not more:
            raise ConnectionError("the server closed the connection before its answer")
        pending += more


def sample(host: str, port: int, request: bytes, count: int,
           pause_s: float = 0.0) -> list[Answer]:
    """Sends `request` up to `count` times on one connection, `pause_s` after each answer."""
    answers = []
    with socket.create_connection((host, port), timeout=ANSWER_TIMEOUT_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pending = b""
        for _ in range(count):
            begun = time.perf_counter()
            connection.sendall(request)
            status, head, pending = read_answer(connection, pending)
            took = time.perf_counter() - begun
            lines = head.decode("latin-1").split("\r\n")[1:]
            headers = {name.lower(): value.strip() for name, _, value
                       in (line.partition(":") for line in lines)}
            answers.append(Answer(took, status, headers))
            if pause_s:
                time.sleep(pause_s)
    return answers


class _Loop:
    """The closed loop: `connections` sockets, each with one request under way."""

    def __init__(self, host: str, port: int, requests: Sequence[bytes], connections: int) -> None:
        self._random = random.Random(7919)
        self._requests = requests
        self._selector = selectors.DefaultSelector()
        self.trips_ms: list[float] = []
        self.others: dict[int, int] = {}
        self.errors = 0
        for _ in range(connections):
            connection = socket.create_connection((host, port), timeout=ANSWER_TIMEOUT_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(connection, selectors.EVENT_READ, None)

    def run(self, seconds: float) -> float:
        """Drives for `seconds` and gives the time that it really took."""
        begun = time.perf_counter()
        for key in list(self._selector.get_map().values()):
            self._send(key.fileobj)
        while time.perf_counter() - begun < seconds and self._selector.get_map():
            for key, _ in self._selector.select(0.1):
                self._receive(key.fileobj, key.data)
        took = time.perf_counter() - begun
        for key in list(self._selector.get_map().values()):
            self._selector.unregister(key.fileobj)
            key.fileobj.close()
        return took

    def _send(self, connection: socket.socket) -> None:
        self._selector.modify(connection, selectors.EVENT_READ, time.perf_counter())
        connection.sendall(self._random.choice(self._requests))

    def _receive(self, connection: socket.socket, sent_at: float) -> None:
        try:
            status, _, _ = read_answer(connection)
            self.trips_ms.append((time.perf_counter() - sent_at) * 1000)
            if not 200 <= status <= 299:
                self.others[status] = self.others.get(status, 0) + 1
            self._send(connection)
        except OSError:
            self.errors += 1
            self._selector.unregister(connection)
            connection.close()


def main(arguments: Sequence[str]) -> None:
    url, texts, connections, seconds = arguments
    place = urlsplit(url)
    loop = _Loop(place.hostname, place.port, [post(text) for text in read_texts(Path(texts))],
                 int(connections))
    took = loop.run(float(seconds))
    print(f"requests/s {len(loop.trips_ms) / took:.1f}")
    print("ms        " + "".join(f"{f'p{percent:g}':>10}" for percent in PERCENTS))
    print("round trip" + "".join(f" {percentile(loop.trips_ms, percent):9.3f}"
                                 for percent in PERCENTS))
    others = "".join(f" {status}: {count}" for status, count in sorted(loop.others.items()))
    print(f"{len(loop.trips_ms)} responses, other than 2xx:{others or ' 0'}")
    print(f"socket errors: connect 0, read {loop.errors}, write 0, timeout 0")


if __name__ == "__main__":
    main(sys.argv[1:])
