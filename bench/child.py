"""One benchmark as a child process: its figures, and what went wrong, whatever it does."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.figures import ROOT
from bench.results import read_line

TURN_S = 0.2
END_S = 10.0        # after INT, for a program to end the servers that it started
LAST_WORDS = 300    # characters of stderr that a fault quotes


@dataclass(frozen=True)
class Outcome:
    """What a child printed and how it ended; `fault` is "" when all went well."""

    lines: tuple[str, ...]
    took_s: float
    fault: str


def run_child(command: Sequence[str], limit_s: float,
              tell: Callable[[float], object] = lambda passed_s: None) -> Outcome:
    """Runs `command` in the clone, for at most `limit_s`, and keeps the lines that are figures.

    `tell` hears some times a second how long it has run. The child leads a process group, which
    ends with it: what a benchmark started does not outlive it.
    """
    begun = time.perf_counter()
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as log:
        try:
            process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=said,
                                       stderr=log, start_new_session=True)
        except OSError as error:
            return Outcome((), 0.0, f"did not start: {error.strerror}")
        try:
            is_over = _wait(process, begun + limit_s, lambda: tell(time.perf_counter() - begun))
        finally:
            _end(process)
        took_s = time.perf_counter() - begun
        said.seek(0)
        text = said.read().decode("utf-8", "replace").splitlines()
        log.seek(0)
        last = log.read().decode("utf-8", "replace").strip()[-LAST_WORDS:].splitlines()
    figures = tuple(line for line in text if read_line(line))
    strays = sum(1 for line in text if line.strip()) - len(figures)
    faults = []
    if not is_over:
        faults.append(f"was ended after {limit_s:.0f} s")
    elif process.returncode:
        faults.append(f"ended with {process.returncode}" + (f": {last[-1]}" if last else ""))
    if strays:
        faults.append(f"printed {strays} lines that are no figures")
    if not figures and not faults:
        faults.append("printed no figure")
    return Outcome(figures, took_s, "; ".join(faults))


def _wait(process: subprocess.Popen, until: float, turn: Callable[[], object]) -> bool:
    """Whether the process ended before `until`."""
    while time.perf_counter() < until:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(TURN_S)
            return True
        turn()
    return process.poll() is not None


def _end(process: subprocess.Popen) -> None:
    """INT to the group while its leader lives, KILL to what is left of it."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
    with contextlib.suppress(ProcessLookupError):  # the whole group has gone
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
