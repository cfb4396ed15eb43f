"""Figures as JSON lines: a value, its unit, the runs behind it, the machine and the commit."""

import datetime
import json
import os
import platform
import statistics
import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def machine() -> str:
    """The machine in one line: `AMD EPYC 7B13, 2 cores, Linux 6.18.5, Python 3.11.7`."""
    name = platform.machine()
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                name = line.split(":", 1)[1].strip()
                break
    cores = len(os.sched_getaffinity(0))
    release = platform.release().split("-")[0]
    return (f"{name}, {cores} core{'s' * (cores > 1)}, Linux {release}, "
            f"Python {platform.python_version()}")


def commit() -> str:
    """The short hash of the checkout, `-dirty` where it has changes, "" outside a clone."""
    got = subprocess.run(["git", "describe", "--always", "--dirty", "--abbrev=8"], cwd=ROOT,
                         capture_output=True, text=True, check=False)
    return got.stdout.strip()


def figure_line(figure: str, value: float, unit: str, runs: Sequence[float] = (),
                **facts: object) -> str:
    """One figure as a line of JSON. `runs` are the values whose median it is; `load_1m` tells how
    busy the machine was with other things besides, `at` is the time of now, UTC."""
    line = {"figure": figure, "value": _short(value), "unit": unit}
    if runs:
        line["runs"] = [_short(run) for run in runs]
    line.update(facts)
    now = datetime.datetime.now(datetime.timezone.utc)
    line.update(machine=machine(), commit=commit(), load_1m=round(os.getloadavg()[0], 2),
                at=now.isoformat(timespec="seconds"))
    return json.dumps(line, ensure_ascii=False)


def emit(figure: str, value: float, unit: str, runs: Sequence[float] = (), **facts: object) -> None:
    """Prints one figure, as figure_line makes it."""
    print(figure_line(figure, value, unit, runs, **facts), flush=True)


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that `percent` % of `values` do not exceed (nearest rank); nan of none."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    rank = max(1, -(-len(ordered) * percent // 100))
    return ordered[min(len(ordered), int(rank)) - 1]


def median(values: Sequence[float]) -> float:
    """The median; nan of none."""
    return statistics.median(values) if values else float("nan")


def _short(value: float) -> float:
    """Four significant digits: more would pretend to know."""
    return float(f"{value:.4g}")
