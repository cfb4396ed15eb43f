"""Runs parts one after another, each in a process with a time limit, whatever becomes of it."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tools.gpucheck.parts import DRY_FACTOR, ENDED, Part
from tools.gpucheck.report import FAIL, PASS, ROOT, Report

LAST_LINES = 3
READ_BYTES = 1 << 16


def run_part(part: Part, kind: str, hear: Callable[[dict], None]) -> None:
    """Gives every line of the part to `hear`, and where it did not end by itself, or claimed
    nothing, a verdict about that."""
    limit_s = part.limit_s * (DRY_FACTOR if kind == "recorder" else 1)
    said = Report(part.name, lambda text: hear(json.loads(text)), kind == "recorder")
    claims: list[dict] = []
    begun, is_ended = time.monotonic(), False
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(command(part, kind), cwd=ROOT, env=one_device(os.environ),
                                 stdout=subprocess.PIPE, stderr=errors, start_new_session=True)
        for line in _lines(child, begun + limit_s):
            if ENDED in line:
                is_ended = True
                break
            claims += [line] if "claim" in line else []
            said.device = line["device"]
            hear(line)
        why = f"took more than {limit_s} s" if child.poll() is None and not is_ended else ""
        _end(child)
        if not is_ended and not why:
            why = f"ended with {_status(child.returncode)}"
        elif not why and not claims:
            why = "claimed nothing"
        said.figure("took", time.monotonic() - begun, "s", limit_s=limit_s)
        if why:
            said.claim("runs_to_its_end", False, f"the part {why}: {_last_words(errors)}")


def command(part: Part, kind: str) -> list[str]:
    """What runs a part."""
    return [sys.executable, "-m", "tools.gpucheck.child", part.name, kind]


def one_device(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment with the first of the devices that it names, by the order of NVML."""
    first = environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    return {**environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": first}


def _lines(child: subprocess.Popen[bytes], deadline: float) -> Iterator[dict]:
    """JSON objects as they come, until the pipe or the time ends."""
    waiting = b""
    while True:
        left_s = deadline - time.monotonic()
        if left_s <= 0 or not select.select([child.stdout], [], [], left_s)[0]:
            return
        more = os.read(child.stdout.fileno(), READ_BYTES)
        if not more:
            child.wait(max(deadline - time.monotonic(), 0.0))
            return
        *whole, waiting = (waiting + more).split(b"\n")
        for line in whole:
            yield json.loads(line)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Ends the part and every process that it has left, which are its session's."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass        # nobody is left
    child.wait()
    child.stdout.close()


def _status(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit status {code}"


def _last_words(errors: object) -> str:
    errors.seek(0)
    lines = errors.read().decode("utf-8", "replace").strip().splitlines()
    return " | ".join(lines[-LAST_LINES:]) or "it left no words"


class Results:
    """All lines of a run: on stdout, and in a file named after the device unless `out` is given.

    Rewritten after each part, so that a run that is cut short leaves what it has.
    """

    def __init__(self, out: Path | None) -> None:
        self._out, self._lines, self._device = out, [], ""
        self.verdicts: dict[str, list[str]] = {}

    def add(self, line: dict) -> None:
        """Prints a line, keeps it, and tells people a verdict on stderr."""
        text = json.dumps(line, ensure_ascii=False)
        print(text, flush=True)
        self._lines.append(text)
        if line.get("device", "no device") != "no device" and not self._device:
            self._device = line["device"].split(",")[0]
        if "claim" in line:
            self.verdicts.setdefault(line["verdict"], []).append(line["claim"])
            print(f"{line['verdict']:10} {line['claim'].removeprefix('gpucheck.')}: "
                  f"{line['why']}", file=sys.stderr, flush=True)

    @property
    def path(self) -> Path:
        name = re.sub(r"[^a-z0-9]+", "-", (self._device or "no device").lower()).strip("-")
        return self._out or ROOT / "bench" / "results" / f"gpucheck-{name}.jsonl"

    def save(self) -> None:
        """Replaces the file as a whole."""
        path = self.path
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f"{path.name}.tmp")
        beside.write_text("".join(f"{line}\n" for line in self._lines), "utf-8")
        beside.replace(path)

    def is_good(self) -> bool:
        """Whether something was shown and nothing failed."""
        return bool(self.verdicts.get(PASS)) and not self.verdicts.get(FAIL)
