"""Results files: the lines of figures of one run of all benchmarks, named, written and read."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.figures import ROOT

FOLDER = ROOT / "bench" / "results"


@dataclass(frozen=True)
class Figure:
    """One line: a value with its unit, the runs whose median it is, and all else that was said."""

    name: str
    value: float
    unit: str
    runs: tuple[float, ...] = ()
    facts: dict[str, object] = field(default_factory=dict)

    @property
    def low(self) -> float:
        return min((*self.runs, self.value))

    @property
    def high(self) -> float:
        return max((*self.runs, self.value))

    def text(self, fact: str) -> str:
        """A fact as text, "" where it was not given."""
        found = self.facts.get(fact)
        return "" if found is None else str(found)


def read_line(line: str) -> Figure | None:
    """The figure that a line holds; None where it holds none."""
    try:
        found = json.loads(line, parse_constant=_refuse)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    name, value, unit = (found.pop(key, None) for key in ("figure", "value", "unit"))
    runs = found.pop("runs", [])
    if not (isinstance(name, str) and name and isinstance(unit, str) and _is_number(value)
            and isinstance(runs, list) and all(map(_is_number, runs))):
        return None
    return Figure(name, float(value), unit, tuple(map(float, runs)), found)


def read_figures(lines: Iterable[str]) -> list[Figure]:
    """The figures of a results file's lines, those that hold none left out."""
    return [figure for figure in map(read_line, lines) if figure is not None]


def read_results(path: Path) -> list[Figure]:
    """The figures of a results file; OSError where it cannot be read."""
    return read_figures(path.read_text("utf-8").splitlines())


def results_path(day: str, commit: str, is_part: bool = False) -> Path:
    """Where the results of a day (2026-11-30) and a commit lie; those of some programs alone stand
    beside those of all."""
    return FOLDER / f"{day}-{commit or 'no-commit'}{'-part' * is_part}.jsonl"


def select(figures: Sequence[Figure], name: str, **facts: object) -> list[Figure]:
    """The figures of a name that have all these facts, as text; "" is one that was not given."""
    return [one for one in figures if one.name == name
            and all(one.text(key) == str(value) or one.facts.get(key) == value
                    for key, value in facts.items())]


def _is_number(value: object) -> bool:
    return (isinstance(value, (int, float)) and not isinstance(value, bool)
            and math.isfinite(value))


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")
