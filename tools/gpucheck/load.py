"""HTTP clients in a closed loop that know every right answer."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from http.client import HTTPConnection, HTTPException

import numpy as np

HEADERS = {"Content-Type": "application/json"}
SHOWN = 3


class Load(threading.Thread):
    """`threads` clients ask `texts` over and over until `end`, `pause_s` after each answer; `right`
    are the logits, float32 [texts, C], and `labels` the names.

    `by` counts answers by what gave them ("cpu", "gpu"), `failed` are words about requests that
    got no 200, `worst` the largest difference in a logit by engine, `mislabelled` answers whose
    label is not the right one where that is `MARGIN` clear, `longest_s` the longest wait.
    """

    MARGIN = 1.0

    def __init__(self, connect: Callable[[], HTTPConnection], texts: Sequence[str],
                 labels: Sequence[str], right: np.ndarray, threads: int,
                 pause_s: float = 0.0) -> None:
        super().__init__(daemon=True)
        self._connect, self._texts, self._labels, self._right = connect, texts, labels, right
        self._count, self._pause_s = threads, pause_s
        self._ends, self._lock = threading.Event(), threading.Lock()
        self.by: Counter[str] = Counter()
        self.worst: dict[str, float] = {}
        self.failed: list[str] = []
        self.failures = self.mislabelled = 0
        self.longest_s = 0.0

    def __enter__(self) -> Load:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def run(self) -> None:
        clients = [threading.Thread(target=self._ask_on, args=(number,))
                   for number in range(self._count)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()

    def end(self) -> None:
        """No request more; returns when the last one is answered."""
        self._ends.set()
        if self.ident is not None:
            self.join()

    def _ask_on(self, number: int) -> None:
        connection = self._connect()
        while not self._ends.is_set():
            number += 1
            place = number % len(self._texts)
            body = json.dumps({"text": self._texts[place], "logits": True})
            begun = time.monotonic()
            try:
                connection.request("POST", "/infer", body, HEADERS)
                response = connection.getresponse()
                answer = response.read()
                if response.status == 200:
                    self._note(place, json.loads(answer), response.getheader("X-Engine") or "?",
                               time.monotonic() - begun)
                else:
                    self._fail(f"{response.status}: {answer[:200].decode('utf-8', 'replace')}")
            except (OSError, HTTPException, ValueError) as error:
                self._fail(f"{type(error).__name__}: {error}")
                connection.close()
                connection = self._connect()
            self._ends.wait(self._pause_s)
        connection.close()

    def _note(self, place: int, answer: dict, engine: str, took_s: float) -> None:
        kind, right = engine.partition("-")[0], self._right[place]
        worst = float(np.abs(np.array(answer["logits"]) - right).max())
        first, second = np.sort(right)[::-1][:2]
        is_clear = first - second >= self.MARGIN
        with self._lock:
            self.by[kind] += 1
            self.worst[kind] = float(np.fmax(self.worst.get(kind, 0.0), worst)) \
                if np.isfinite(worst) else float("inf")
            self.mislabelled += is_clear and answer["label"] != self._labels[right.argmax()]
            self.longest_s = max(self.longest_s, took_s)

    def _fail(self, words: str) -> None:
        with self._lock:
            self.failures += 1
            if len(self.failed) < SHOWN:
                self.failed.append(words)
