"""Lines over a common axis: one a series, its spread as whiskers, its name at its end (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.plots.marks import LINE_PX, WIDE_PX, Axis, Point, Series
from bench.plots.scale import Scale, spread
from bench.plots.svg import Drawing, text_width

TOP_PX, BOTTOM_PX = 34.0, 44.0
GAP_PX = 8.0
HEIGHTS_PX = (350.0, 320.0)  # of the wide and of the narrow form


@dataclass(frozen=True)
class Curves:
    """A plot of lines. `beyond` is the x from which on the ground is shaded, with words on it;
    `rule` a value of y with a line across, with words; `between` the names of two series whose
    gap is shaded, with words."""

    series: tuple[Series, ...]
    x: Axis
    y: Axis
    beyond: tuple[float, str] | None = None
    rule: tuple[float, str] | None = None
    between: tuple[str, str, str] | None = None

    def draw(self, width: float) -> Drawing:
        """The plot, `width` pixels wide."""
        drawing = Drawing(width, HEIGHTS_PX[width < WIDE_PX])
        left = max(text_width(label) for _, label in self.y.ticks) + GAP_PX
        names_px = max((text_width(one.name, is_bold=True) for one in self.series if one.points),
                       default=0.0)
        right = width - names_px - 2.5 * GAP_PX
        bottom = drawing.height - BOTTOM_PX
        across = Scale(self.x.ticks[0][0], self.x.ticks[-1][0], left + GAP_PX, right - GAP_PX,
                       self.x.is_log)
        up = Scale(self.y.ticks[0][0], self.y.ticks[-1][0], bottom, TOP_PX, self.y.is_log)
        self._ground(drawing, across, up, left, right)
        if self.between:
            self._fill(drawing, across, up)
        if self.rule:
            self._rule(drawing, up, left, right)
        for one in self.series:
            self._series(drawing, one, across, up)
        self._names(drawing, across, up, right)
        return drawing

    def _ground(self, drawing: Drawing, across: Scale, up: Scale, left: float,
                right: float) -> None:
        """Shade, grid, ticks and titles."""
        bottom = up.start
        if self.beyond:
            from_x = across(self.beyond[0])
            drawing.rect(from_x, TOP_PX, right - from_x, bottom - TOP_PX, "shade")
        for value, label in self.y.ticks:
            drawing.line(left, up(value), right, up(value), "grid")
            drawing.text(left - GAP_PX, up(value) + 4, label, "tick", "end")
        drawing.line(left, bottom, right, bottom, "axis")
        free_from = -1e9
        for value, label in self.x.ticks:
            at = across(value)
            drawing.line(at, bottom, at, bottom + 4, "axis")
            if at - text_width(label) / 2 > free_from:
                drawing.text(at, bottom + 4 + LINE_PX, label, "tick", "middle")
                free_from = at + text_width(label) / 2 + GAP_PX
        drawing.text(0, 12, self.y.title, "title")
        drawing.text(right, drawing.height - 4, self.x.title, "title", "end")
        if self.beyond:
            drawing.text(right - GAP_PX, TOP_PX - 6, self.beyond[1], "note", "end")

    def _fill(self, drawing: Drawing, across: Scale, up: Scale) -> None:
        upper, lower = (next(one.points for one in self.series if one.name == name)
                        for name in self.between[:2])
        if not upper or not lower:
            return
        drawing.path([(across(one.x), up(one.value)) for one in upper]
                     + [(across(one.x), up(one.value)) for one in reversed(lower)], "fill", True)
        # Low between the two: there the gap, which opens to the right, has room for the words.
        y = 0.3 * up(upper[-1].value) + 0.7 * up(lower[-1].value)
        drawing.text(across(upper[-1].x) - GAP_PX, y + 4, self.between[2], "note", "end")

    def _rule(self, drawing: Drawing, up: Scale, left: float, right: float) -> None:
        value, words = self.rule
        drawing.line(left, up(value), right, up(value), "rule")
        drawing.text(left + GAP_PX, up(value) - 5, words, "note halo")

    def _series(self, drawing: Drawing, one: Series, across: Scale, up: Scale) -> None:
        places = [(across(point.x), up(point.value)) for point in one.points]
        if len(places) > 1:
            drawing.path(places, f"curve {one.kind}")
        for point, (x, y) in zip(one.points, places):
            if point.low < point.high:
                drawing.whisker(x, up(point.low), x, up(point.high), one.kind)
        if one.marker:
            for x, y in places:
                drawing.marker(x, y, one.marker, one.kind)

    def _names(self, drawing: Drawing, across: Scale, up: Scale, right: float) -> None:
        """Each series' name behind its last point; a thin line leads to it where it had to move."""
        drawn = [one for one in self.series if one.points]
        wanted = [up(one.points[-1].value) for one in drawn]
        for one, from_y, at in zip(drawn, wanted, spread(wanted, LINE_PX, TOP_PX, up.start)):
            from_x = across(one.points[-1].x) + 6
            if abs(at - from_y) > 3 or from_x < right - 2 * GAP_PX:
                drawing.path([(from_x, from_y), (right, from_y), (right + GAP_PX, at)],
                             f"leader {one.kind}")
            drawing.text(right + 1.5 * GAP_PX, at + 4, one.name, f"name {one.kind}")


def points_of(values: Sequence[tuple[float, float, float, float]]) -> tuple[Point, ...]:
    """(x, value, low, high) rows as points, by x."""
    return tuple(Point(*row) for row in sorted(values))
