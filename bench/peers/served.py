"""A peer's server as the benchmark sees it: started in the peers' environment, asked, ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType

import psutil

from bench.figures import ROOT
from bench.peers.classifier import VARIABLE
from bench.peers.contender import PeerError
from bench.peers.settings import Settings

MODULES = {"fastapi": "bench.peers.fastapi_server", "mosec": "bench.peers.mosec_server"}
READY_TIMEOUT_S = 60.0
END_TIMEOUT_S = 2.0  # mosec now and then does not end; there is nothing to lose in it
ANSWER_TIMEOUT_MS = 60_000  # mosec's own would be 3 s, which a busy machine exceeds
LOOK_S = 0.05


class ServedPeer:
    """A peer that answers POST /infer at `url`; a context manager."""

    def __init__(self, python: str, settings: Settings, folder: str, cache: Path,
                 workers: int) -> None:
        """PeerError where it does not answer in time. `cache` has the engine's files."""
        self.settings = settings
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        setup = {"engine": settings.engine, "mode": settings.mode, "batch": settings.batch,
                 "wait_ms": settings.wait_ms, "workers": workers, "port": self.port,
                 "folder": str(Path(folder).resolve()), "cache": str(cache.resolve())}
        self._log = (cache / f"{settings.peer}.log").open("wb")
        # One thread each, whatever a library would take by itself.
        environment = os.environ | {VARIABLE: json.dumps(setup), "OMP_NUM_THREADS": "1",
                                    "OPENBLAS_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
        # A process group, not a session: where the kernel groups by session, peers and ours would
        # not be scheduled alike.
        self._process = subprocess.Popen(
            [python, "-m", MODULES[settings.server], "--address", "127.0.0.1", "--port",
             str(self.port), "--timeout", str(ANSWER_TIMEOUT_MS)],
            cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=self._log,
            stderr=self._log, preexec_fn=os.setpgrp)
        self.pid = self._process.pid
        try:
            self._await_answer()
        except PeerError:
            self.__exit__(None, None, None)
            raise

    def __enter__(self) -> ServedPeer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        """Its whole process group ends: both kinds leave workers behind when they are killed."""
        self._process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_TIMEOUT_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()

    def _await_answer(self) -> None:
        request = urllib.request.Request(f"{self.url}/infer", b'{"text": "ready?"}',
                                         {"Content-Type": "application/json"})
        said, begun = "no answer", time.monotonic()
        while time.monotonic() - begun < READY_TIMEOUT_S:
            if self._process.poll() is not None:
                raise PeerError(f"{self.settings.peer} ended ({self._log.name} has its words)")
            try:
                with urllib.request.urlopen(request, timeout=READY_TIMEOUT_S):
                    return
            except (urllib.error.URLError, OSError) as error:
                said = str(error)
            time.sleep(LOOK_S)
        raise PeerError(f"{self.settings.peer} gave no answer within {READY_TIMEOUT_S:g} s: {said} "
                        f"({self._log.name} has its words)")


def processor_s(pid: int) -> float:
    """Processor time so far, user and system, of a process and all that descend from it."""
    spent = 0.0
    for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):  # one that ended meanwhile
            spent += sum(process.cpu_times()[:2])
    return spent


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
