"""Clients that know the right answers of several models, by the version that an answer names."""

import http.client
import random
import time
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.clients import Crowd, Expected, ask, essence
from tests.house import House


class VersionedExpected:
    """version → (text → essence), asked of a server of its own for each model."""

    def __init__(self, models: Sequence[Path], texts: Sequence[str], flags: Sequence[str]) -> None:
        self.texts = list(texts)
        self.answers: dict[str, dict[str, object]] = {}
        for model in models:
            with House(["--model", str(model), *flags]) as house:
                version = house.info()["model"]["version"]
                self.answers[version] = dict(Expected(house.port, texts).answers)


class VersionedCrowd(Crowd):
    """A crowd whose connections each may see one version alone, unless a proxy stands between
    (`is_direct`); `spans` are the requests' times, (end in monotonic s, duration in s)."""

    def __init__(self, port: int, expected: VersionedExpected, clients: int, seed: int,
                 is_direct: bool = True) -> None:
        self.is_direct = is_direct
        self.versions: dict[http.client.HTTPConnection, str] = {}
        self.seen: set[str] = set()
        self.spans: list[tuple[float, float]] = []
        super().__init__(port, expected, clients, seed)

    def _ask_once(self, connection: http.client.HTTPConnection, rng: random.Random) -> None:
        text = rng.choice(self.expected.texts)
        started = time.monotonic()
        status, answer = ask(connection, {"text": text, "logits": True})
        ended = time.monotonic()
        with self._lock:
            self.codes[status] += 1
            self.slowest_s = max(self.slowest_s, ended - started)
            self.spans.append((ended, ended - started))
            if status != 200:
                self.failed.append(f"{status}: {answer['error']['message']}")
                return
            version = answer["model_version"]
            self.seen.add(version)
            if self.is_direct and version != self.versions.setdefault(connection, version):
                self.wrong.append(f"one connection saw {self.versions[connection]}, then {version}")
            if essence(answer) != self.expected.answers.get(version, {}).get(text):
                self.wrong.append(f"{text!r} by {version}")
            if connection.sock is None:         # closed with this answer
                self.versions.pop(connection, None)
