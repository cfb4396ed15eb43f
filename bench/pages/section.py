"""A section of the page: what it says, draws and lists, or in words how to get what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from bench.plots.marks import Mark
from bench.plots.scale import MINUS, readable
from bench.plots.svg import Drawing
from bench.results import Figure

DASH = "\u2013"


class Drawn(Protocol):
    """A plot that can be drawn at any width."""

    def draw(self, width: float) -> Drawing: ...


@dataclass(frozen=True)
class Table:
    """Figures in columns; the first column names the row. `strips`, where given, are the figures of
    the rows, whose runs are drawn in a last column."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    strips: tuple[Figure, ...] = ()


@dataclass(frozen=True)
class Plot:
    """A plot with its title, the same in `words` for those who do not see it, and its figures."""

    title: str
    words: str
    drawn: Drawn
    table: Table | None = None


@dataclass(frozen=True)
class Section:
    """`figures` are those that it shows; `tables` hold what no plot does. Without any figure,
    `missing` says how to get them."""

    key: str
    title: str
    lead: str
    missing: str
    figures: tuple[Figure, ...] = ()
    plots: tuple[Plot, ...] = ()
    tables: tuple[Table, ...] = ()


def with_spread(figure: Figure, factor: float = 1.0, digits: int = 3) -> str:
    """A value with the least and the largest of its runs. Example: 12.3 (11.9–14)."""
    value = readable(figure.value * factor, digits)
    if len(figure.runs) < 2 or figure.low == figure.high:
        return value
    return (f"{value} ({readable(figure.low * factor, digits)}{DASH}"
            f"{readable(figure.high * factor, digits)})")


def percent(value: float, digits: int = 2) -> str:
    """A share for people. Example: 0.976 is 98 %."""
    return f"{readable(100 * value, digits)} %"


def mark_of(figure: Figure, series: str, kind: str, marker: str = "circle", label: str = "",
            factor: float = 1.0) -> Mark:
    """A figure as a mark in a row."""
    return Mark(series, figure.value * factor, figure.low * factor, figure.high * factor, kind,
                marker, label)


def distinct(figures: Sequence[Figure], *facts: str) -> list[tuple[str, ...]]:
    """The combinations of these facts that there are, in order of appearance."""
    return list(dict.fromkeys(tuple(one.text(fact) for fact in facts) for one in figures))


def joined(words: Sequence[str]) -> str:
    """Example: joined(["a", "b", "c"]) is `a, b and c`."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def plain(value: object) -> str:
    """A fact of a figure as text."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: ""}[value]
    if isinstance(value, float):
        return readable(value, 4)
    if isinstance(value, int):
        return f"{value:,}".replace("-", MINUS)
    if isinstance(value, dict):
        return ", ".join(f"{key} {plain(one)}" for key, one in value.items())
    if isinstance(value, list):
        return ", ".join(plain(one) for one in value)
    return str(value)
