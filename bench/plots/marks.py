"""What plots are made of: points with their spread, series, axes (pure data)."""

from __future__ import annotations

from dataclasses import dataclass

LINE_PX = 15.0   # between the base lines of texts
WIDE_PX, NARROW_PX = 760.0, 344.0  # the two widths that every plot is drawn at


@dataclass(frozen=True)
class Point:
    """A value at `x`, and the least and the largest of its runs."""

    x: float
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Series:
    """Points of one name, colour (`kind` is a class of the page) and marker."""

    name: str
    points: tuple[Point, ...]
    kind: str = "s0"
    marker: str = "circle"


@dataclass(frozen=True)
class Axis:
    """Ticks as (value, label), ascending; the axis runs from the first to the last of them."""

    title: str
    ticks: tuple[tuple[float, str], ...]
    is_log: bool = False


@dataclass(frozen=True)
class Mark:
    """One value in a row of a plot: whose it is, its spread, and the words beside it."""

    series: str
    value: float
    low: float
    high: float
    kind: str = "s0"
    marker: str = "circle"
    label: str = ""


@dataclass(frozen=True)
class Row:
    """A row of a plot; rows of one `group` stand together under its heading. `limit` is where a
    tick shows what would be possible."""

    title: str
    marks: tuple[Mark, ...]
    group: str = ""
    limit: float | None = None
