"""What a greedy client costs the others, and what high priority is worth.

    python -m bench.neighbours [--short] [--model DIR] [--texts FILE] [--engines N]

The others come open loop at a share of a measured capacity; their latencies count from the planned
send times. Greedy clients and quiet times take turns, round by round. One JSON line a figure;
values are medians of rounds:

neighbours.alone_p99_ms     the others' p99 at 30 % of the capacity, with nobody beside them
neighbours.pipelining_ms    by how much one connection with 64 requests ahead, all the time, raises
                            that p99; `longest_batch_ms` is the longest of its batches
neighbours.long_request_ms  the same beside one request of 256 texts of the model's full length;
                            `longest_batch_ms` is that of one such text
neighbours.p99_by_p50       p99 ÷ p50 at 70 % of the capacity
neighbours.high_p99         p99 of high priority, 15 % of the requests, at 90 % ÷ at 30 %
"""

import itertools
import json
import multiprocessing
import random
import re
import socket
import sys
from collections.abc import Callable, Sequence
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

from bench.client import drive, post, read_texts
from bench.figures import emit, median, percentile
from bench.load import allowed_connections, make_request
from bench.load_client import Client, Planned
from bench.load_plan import plan
from bench.load_report import Outcome
from bench.options import read_options
from bench.running import Server

SATURATING = 64         # connections of the closed loop that measures the capacity
AHEAD = 64
LONG_TEXTS, LONG_ALONE = 256, 4
LONG_TEXT = "the quick brown fox jumps over it and goes home again " * 60
QUIET, BUSY, FULL = 0.3, 0.7, 0.9
HIGH_SHARE = 0.15
CONNECTIONS_MOST = 4096
SEED = 15485863
ANSWER_S = 120.0
READ_BYTES = 1 << 16
INFER = re.compile(rb"infer;dur=([\d.]+)")


class Others:
    """Requests at a share of the capacity, whatever becomes of them."""

    def __init__(self, server: Server, texts: Sequence[str], capacity_rps: float) -> None:
        self._server, self._texts, self._capacity_rps = server, texts, capacity_rps
        self._connections = allowed_connections(CONNECTIONS_MOST)
        self._chance = random.Random(SEED)

    def come(self, load: float, seconds: float, high_share: float = 0.0) -> list[Outcome]:
        """One run; its outcomes that are 2xx."""
        place = f"{self._server.host}:{self._server.port}"
        arrivals = plan(load * self._capacity_rps, seconds, high_share, len(self._texts),
                        self._chance)
        planned = [Planned(one.at_s, make_request(place, "/infer", self._texts[one.text], one.high,
                                                  None), one.high) for one in arrivals]
        client = Client(self._server.host, self._server.port, self._connections)
        return [one for one in client.run(planned, seconds) if one.is_good]


def p99_ms(outcomes: Sequence[Outcome]) -> float:
    return percentile([one.latency_ms for one in outcomes], 99)


# ---- greedy clients, each in a process of its own ------------------------------------------------

def pipeline(host: str, port: int, texts: Sequence[str], longest_ms: Synchronized) -> None:
    """Keeps AHEAD requests on one connection until it is ended."""
    chance = random.Random(SEED)
    with socket.create_connection((host, port), timeout=ANSWER_S) as sock:
        sock.sendall(b"".join(post(chance.choice(texts)) for _ in range(AHEAD)))
        while True:
            answered = _note(sock.recv(READ_BYTES), longest_ms)
            sock.sendall(b"".join(post(chance.choice(texts)) for _ in range(answered)))


def ask_for_much(host: str, port: int, _: Sequence[str], longest_ms: Synchronized) -> None:
    """One request of LONG_TEXTS texts of the model's full length after another; first a few of one
    such text, to know how long that takes."""
    with socket.create_connection((host, port), timeout=ANSWER_S) as sock:
        for number in itertools.count():
            texts = [LONG_TEXT] * (1 if number < LONG_ALONE else LONG_TEXTS)
            body = json.dumps({"texts": texts}).encode()
            sock.sendall(b"POST /infer HTTP/1.1\r\nHost: bench\r\nContent-Length: %d\r\n\r\n"
                         % len(body) + body)
            head = b""
            while b"\r\n\r\n" not in head:
                head += sock.recv(READ_BYTES)
            _note(head, longest_ms)
            length = int(re.search(rb"(?i)content-length: (\d+)", head).group(1))
            missing = length - len(head.partition(b"\r\n\r\n")[2])
            while missing:
                missing -= len(sock.recv(min(READ_BYTES, missing)))


def _note(received: bytes, longest_ms: Synchronized) -> int:
    """How many answers begin in the bytes; the longest batch that they tell of is kept."""
    if not received:
        raise ConnectionError("the server closed the connection")
    for found in INFER.finditer(received):
        longest_ms.value = max(longest_ms.value, float(found.group(1)))
    return received.count(b"HTTP/1.1 ")


class Greedy:
    """A greedy client as a process; a context manager."""

    def __init__(self, act: Callable, server: Server, texts: Sequence[str]) -> None:
        self._longest_ms = multiprocessing.Value("d", 0.0)
        self._process = multiprocessing.Process(
            target=act, args=(server.host, server.port, list(texts), self._longest_ms))

    def __enter__(self) -> "Greedy":
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        if not self._process.is_alive():
            raise RuntimeError("the greedy client ended by itself")
        self._process.kill()
        self._process.join()

    @property
    def longest_ms(self) -> float:
        """The longest batch that an answer told of."""
        return self._longest_ms.value


# ---- figures ---------------------------------------------------------------------------------

def measure_greed(server: Server, others: Others, sent: Sequence[str], rounds: int,
                  seconds: float, **facts: object) -> None:
    """The others with and without each greedy client."""
    alone: list[float] = []
    beside: dict[str, list[float]] = {"pipelining": [], "long_request": []}
    raised: dict[str, list[float]] = {"pipelining": [], "long_request": []}
    longest = {"pipelining": 0.0, "long_request": 0.0}
    for number in range(rounds):
        alone.append(p99_ms(others.come(QUIET, seconds)))
        for name, act in (("pipelining", pipeline), ("long_request", ask_for_much)):
            with Greedy(act, server, sent) as greedy:
                beside[name].append(p99_ms(others.come(QUIET, seconds)))
                longest[name] = max(longest[name], greedy.longest_ms)
            raised[name].append(beside[name][-1] - alone[-1])
        print(f"round {number + 1} of {rounds} done", file=sys.stderr, flush=True)
    emit("neighbours.alone_p99_ms", median(alone), "ms", alone, load=QUIET, **facts)
    for name, values in raised.items():
        emit(f"neighbours.{name}_ms", median(values), "ms", values, load=QUIET,
             p99_ms=round(median(beside[name]), 2), longest_batch_ms=round(longest[name], 1),
             **facts)


def measure_tails(others: Others, rounds: int, seconds: float, **facts: object) -> None:
    """p99 against p50 at 70 %, and high priority at 90 % against 30 %."""
    ratios, worth, highs = [], [], {QUIET: [], FULL: []}
    for _ in range(rounds):
        latencies = [one.latency_ms for one in others.come(BUSY, seconds)]
        ratios.append(percentile(latencies, 99) / percentile(latencies, 50))
        for load, found in highs.items():
            found.append(p99_ms([one for one in others.come(load, seconds, HIGH_SHARE)
                                 if one.high]))
        worth.append(highs[FULL][-1] / highs[QUIET][-1])
    emit("neighbours.p99_by_p50", median(ratios), "x", ratios, load=BUSY, **facts)
    emit("neighbours.high_p99", median(worth), "x", worth, share=HIGH_SHARE,
         quiet_ms=round(median(highs[QUIET]), 2), full_ms=round(median(highs[FULL]), 2), **facts)


def main() -> None:
    options = read_options("bench.neighbours", (3, 6.0), (5, 15.0))
    rounds, seconds = options.rounds, options.seconds
    facts: dict[str, object] = {"model": options.name, "texts": options.texts.name}
    texts = read_texts(options.texts)
    with Server([*options.flags, "--max-wait-ms", "60000"]) as server:
        drive(server.url, options.texts, SATURATING, 2)
        capacity = drive(server.url, options.texts, SATURATING, seconds).requests_per_s
        facts["capacity_rps"] = round(capacity, 1)
        others = Others(server, texts, capacity)
        measure_greed(server, others, texts, rounds, seconds, **facts)
        measure_tails(others, rounds, seconds, **facts)


if __name__ == "__main__":
    main()
