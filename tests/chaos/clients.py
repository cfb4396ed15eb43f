"""Clients on keep-alive connections that know the right answer to each text they send."""

import http.client
import json
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Sequence

UNANSWERED_AFTER_S = 60.0


class Expected:
    """Texts and their right answers, asked of the server one at a time while nothing is wrong."""

    def __init__(self, port: int, texts: Sequence[str]) -> None:
        self.answers: list[tuple[str, object]] = []
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=UNANSWERED_AFTER_S)
        for text in texts:
            status, answer = ask(connection, {"text": text, "logits": True})
            if status != 200:
                raise AssertionError(f"{text[:40]!r} is answered {status} before any fault")
            self.answers.append((text, essence(answer)))
        connection.close()


def ask(connection: http.client.HTTPConnection, body: dict) -> tuple[int, dict]:
    connection.request("POST", "/infer", json.dumps(body),
                       {"Content-Type": "application/json"})
    response = connection.getresponse()
    return response.status, json.loads(response.read())


def essence(answer: dict) -> tuple:
    """What must be the same whenever a text is answered."""
    return (answer["label"], tuple(answer["scores"].items()), tuple(answer["logits"]),
            answer["tokens"], answer["truncated"])


class Crowd:
    """Threads that ask without pause until told to stop; each answer is compared at once."""

    def __init__(self, port: int, expected: Expected, clients: int, seed: int) -> None:
        self.port = port
        self.expected = expected
        self.codes: Counter[int] = Counter()
        self.wrong: list[str] = []
        self.failed: list[str] = []
        self.cut_by_kill = 0
        self.slowest_s = 0.0
        self._doomed: dict[int, float] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._live, args=(seed * 1000 + number,))
                         for number in range(clients)]
        for thread in self._threads:
            thread.start()

    def doom(self, ports: set[int]) -> None:
        """Client ports whose front is about to be killed: only these may see a failure."""
        with self._lock:
            for port in ports:
                self._doomed[port] = time.monotonic()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(2 * UNANSWERED_AFTER_S)
        if any(thread.is_alive() for thread in self._threads):
            self.failed.append("a client never came back")

    @property
    def answered(self) -> int:
        return sum(self.codes.values())

    def _live(self, seed: int) -> None:
        rng = random.Random(seed)
        while not self._stop.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", self.port,
                                                    timeout=UNANSWERED_AFTER_S)
            opened_at, port = time.monotonic(), 0
            try:
                connection.connect()
                connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                port = connection.sock.getsockname()[1]
                # An answer that closes the connection leaves it without a socket.
                while not self._stop.is_set() and connection.sock is not None:
                    self._ask_once(connection, rng)
            except (OSError, http.client.HTTPException, ValueError) as error:
                self._note_failure(port, opened_at, error)
            finally:
                connection.close()

    def _ask_once(self, connection: http.client.HTTPConnection, rng: random.Random) -> None:
        chosen = rng.sample(self.expected.answers, rng.choice((1, 1, 1, 3)))
        many = len(chosen) > 1
        body = {"texts": [text for text, _ in chosen]} if many else {"text": chosen[0][0]}
        started = time.monotonic()
        status, answer = ask(connection, {**body, "logits": True})
        took = time.monotonic() - started
        with self._lock:
            self.codes[status] += 1
            self.slowest_s = max(self.slowest_s, took)
            if status != 200:
                self.failed.append(f"{status}: {answer['error']['message']}")
                return
            results = answer["results"] if many else [answer]
            for (text, right), got in zip(chosen, results, strict=True):
                if essence(got) != right:
                    self.wrong.append(text)

    def _note_failure(self, port: int, opened_at: float, error: Exception) -> None:
        with self._lock:
            if opened_at <= self._doomed.get(port, -1.0):
                self.cut_by_kill += 1
            else:
                self.failed.append(f"port {port}: {error!r}")
