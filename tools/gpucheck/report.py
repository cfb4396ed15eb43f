"""What a part says: JSON lines, a figure or a verdict each, with the device that it was seen on."""

from __future__ import annotations

import datetime
import json
import math
import os
import platform
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PASS, FAIL, SKIP, UNJUDGED = "PASS", "FAIL", "SKIP", "NOT JUDGED"
DRY = "dry run on a recorded device: nothing here says anything of a GPU, least of all its speed"


def commit() -> str:
    """The short hash of the checkout, `-dirty` where it has changes, "" outside a clone."""
    try:
        got = subprocess.run(["git", "describe", "--always", "--dirty", "--abbrev=8"], cwd=ROOT,
                             capture_output=True, text=True, check=False)
    except OSError:
        return ""       # no git
    return got.stdout.strip()


class Report:
    """Writes the lines of one part; figures have the keys of bench.figures.

    `is_judged` says whether the targets of speed, which are for one kind of device, hold here.
    """

    def __init__(self, part: str, write: Callable[[str], None], is_dry: bool = False) -> None:
        self.part, self.is_dry, self.is_judged = part, is_dry, False
        self.device = "no device"
        self._write, self._commit = write, commit()

    def figure(self, name: str, value: float, unit: str, runs: Sequence[float] = (),
               **facts: object) -> None:
        """A measured value; `runs` are those whose median it is."""
        line: dict[str, object] = {"figure": f"gpucheck.{self.part}.{name}", "value": short(value),
                                   "unit": unit}
        if runs:
            line["runs"] = [short(run) for run in runs]
        self._say({**line, **facts})

    def claim(self, name: str, holds: bool, why: str) -> None:
        """Something that must hold on every device; `why` is what was seen."""
        self._judge(name, PASS if holds else FAIL, why)

    def target(self, name: str, holds: bool, why: str) -> None:
        """A speed that was promised for one kind of device; elsewhere only told."""
        self._judge(name, (PASS if holds else FAIL) if self.is_judged else UNJUDGED, why)

    def skip(self, name: str, why: str) -> None:
        """A claim that cannot be looked at here."""
        self._judge(name, SKIP, why)

    def _judge(self, name: str, verdict: str, why: str) -> None:
        self._say({"claim": f"gpucheck.{self.part}.{name}", "verdict": verdict, "why": why})

    def _say(self, line: dict[str, object]) -> None:
        line.update(device=self.device, machine=f"{self.device}, Python "
                    f"{platform.python_version()}", commit=self._commit,
                    load_1m=round(os.getloadavg()[0], 2), at=datetime.datetime.now(
                        datetime.timezone.utc).isoformat(timespec="seconds"))
        if self.is_dry:
            line["dry_run"] = DRY
        self._write(json.dumps(line, ensure_ascii=False))


def short(value: float) -> float | None:
    """Four significant digits; JSON has no number that is none."""
    return float(f"{value:.4g}") if math.isfinite(value) else None


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that `percent` % of `values` do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(1, math.ceil(len(ordered) * percent / 100)) - 1]
