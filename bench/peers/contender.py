"""A peer's contender as the benchmark sees it: a process that is told to load and to run."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from bench.figures import ROOT
from bench.peers.protocol import read_frame, write_frame, write_rows
from bench.rounds import Burst

END_TIMEOUT_S = 20.0


class PeerError(Exception):
    """A peer is missing, or failed; the text is one sentence."""


class PeerContender:
    """A bench.rounds.Contender of a peer, loaded; a context manager."""

    def __init__(self, python: str, contender: str, folder: str, cache: Path,
                 texts: Sequence[np.ndarray]) -> None:
        """`texts` are what a peer may calibrate on. PeerError where it does not load."""
        self.key = contender
        cache.mkdir(parents=True, exist_ok=True)
        self._log = (cache / f"{contender}.log").open("wb")
        self._process = subprocess.Popen([python, "-m", "bench.peers.worker"], cwd=ROOT,
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         stderr=self._log)
        lengths, body = write_rows(texts)
        try:
            answer, _ = self._ask({"load": contender, "folder": str(Path(folder).resolve()),
                                   "cache": str(cache.resolve()), "texts": lengths}, body)
        except PeerError:
            self.__exit__(None, None, None)
            raise
        self.name: str = answer["name"]
        self.modes: tuple[str, ...] = tuple(answer["modes"])

    def __enter__(self) -> PeerContender:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        with contextlib.suppress(BrokenPipeError):  # what a dead process did not read
            self._process.stdin.close()
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()

    def run(self, rows: Sequence[np.ndarray], mode: str, repeats: int) -> Burst:
        """Runs the rows so many times in calls of a mode (bench.peers.calls)."""
        lengths, body = write_rows(rows)
        answer, logits = self._ask({"run": lengths, "mode": mode, "repeats": repeats}, body)
        return Burst(answer["wall_ms"], answer["cpu_ms"],
                     np.frombuffer(logits, "<f4").reshape(len(rows), -1))

    def _ask(self, order: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
        try:
            write_frame(self._process.stdin, order, body)
            answer, data = read_frame(self._process.stdout)
        except (EOFError, BrokenPipeError) as error:
            raise PeerError(f"{self.key} ended ({self._log.name} has its words)") from error
        if "error" in answer:
            raise PeerError(f"{self.key} failed: {answer['error']}")
        return answer, data
