"""The servers of one model under measurement: each started once, up until the end."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from bench.client import Load, drive
from bench.peers.served import ServedPeer, processor_s
from bench.peers.settings import Settings
from bench.running import Server

OURS = "firebrick"


class Round(NamedTuple):
    """One server under load for some seconds; `cpu_ms` of all its processes a request."""

    load: Load
    cpu_ms: float


class Under(NamedTuple):
    """A server that is up: its address, its first process, how it is set up."""

    url: str
    pid: int
    setup: str

    def round(self, texts: Path, connections: int, seconds: float) -> Round:
        begun = processor_s(self.pid)
        load = drive(self.url, texts, connections, seconds)
        return Round(load, (processor_s(self.pid) - begun) / max(load.responses, 1) * 1e3)


class Standing:
    """Ours and peers by their settings; a context manager, whose end ends them all."""

    def __init__(self, python: str, folder: str, cache: Path, workers: int) -> None:
        """`cache` has the files that were made of the checkpoint in `folder` for the engines."""
        self._python, self._folder, self._cache, self._workers = python, folder, cache, workers
        self._stack = contextlib.ExitStack()
        self._ours: Under | None = None
        self._peers: dict[Settings, Under] = {}

    def __enter__(self) -> Standing:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._stack.close()

    def serve_ours(self, folder: str, kind: str) -> None:
        """Starts ours with the model in `folder`, which is `kind` for readers."""
        server = self._stack.enter_context(Server(["--model", folder]))
        precision = server.info()["model"]["precision"]
        self._ours = Under(server.url, server.process.pid, f"{precision}, {kind}")

    def all_up(self, chosen: Mapping[str, Settings]) -> dict[str, Under]:
        """Ours and the peers so set up, by name; what is not up yet is started. PeerError where one
        does not come up."""
        return {OURS: self._ours} | {peer: self._up(settings) for peer, settings in chosen.items()}

    def trial(self, settings: Settings) -> ServedPeer:
        """A peer that is up only within a block."""
        return ServedPeer(self._python, settings, self._folder, self._cache, self._workers)

    def _up(self, settings: Settings) -> Under:
        if settings not in self._peers:
            server = self._stack.enter_context(self.trial(settings))
            self._peers[settings] = Under(server.url, server.pid, settings.describe())
        return self._peers[settings]
