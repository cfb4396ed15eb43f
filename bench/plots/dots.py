"""Values in rows along one axis, many a row, with whiskers and a key on top (pure)."""

from __future__ import annotations

from dataclasses import dataclass

from bench.plots.marks import LINE_PX, WIDE_PX, Axis, Mark, Row
from bench.plots.scale import Scale
from bench.plots.svg import Drawing, text_width

ROW_PX, HEADING_PX, AXIS_PX = 30.0, 36.0, 46.0
GAP_PX = 8.0
KEY_GAP_PX = 18.0
ASIDE_PX = 7.0   # between marks of one row, so that equal ones do not hide each other


@dataclass(frozen=True)
class Dots:
    """Rows of marks. `rule` is a value with an upright line and the words on it, `is_bar` draws a
    bar from the axis' begin to each mark, and its label behind it."""

    rows: tuple[Row, ...]
    axis: Axis
    rule: tuple[float, str] | None = None
    is_bar: bool = False

    def draw(self, width: float) -> Drawing:
        """The plot, `width` pixels wide; narrow, titles stand above their rows."""
        is_wide = width >= WIDE_PX
        key = [] if self.is_bar else self._key_places(width)
        key_px = (key[-1][1] + LINE_PX) if key else 0.0
        rule_px = LINE_PX + 4 if self.rule else 0.0
        title_px = 0.0 if is_wide else LINE_PX
        row_px = ROW_PX if self.is_bar else max(
            ROW_PX, 16 + ASIDE_PX * (max(len(row.marks) for row in self.rows) - 1))
        groups = len(dict.fromkeys(row.group for row in self.rows if row.group))
        body_px = len(self.rows) * (row_px + title_px) + groups * HEADING_PX
        top = key_px + rule_px + 6
        drawing = Drawing(width, top + body_px + AXIS_PX)
        label_px = max((text_width(mark.label, is_bold=True)
                        for row in self.rows for mark in row.marks), default=0.0)
        left = (max(text_width(row.title) for row in self.rows) + 2 * GAP_PX if is_wide
                else max(GAP_PX, text_width(self.axis.ticks[0][1]) / 2))
        right = width - max(label_px + 1.5 * GAP_PX if label_px else 0.0,
                            text_width(self.axis.ticks[-1][1]) / 2)
        across = Scale(self.axis.ticks[0][0], self.axis.ticks[-1][0], left, right, self.axis.is_log)
        for x, y, mark in key:
            drawing.marker(x + 5, y - 4, mark.marker, mark.kind)
            drawing.text(x + 15, y, mark.series, f"name {mark.kind}")
        self._ground(drawing, across, top, top + body_px)
        y, group = top, ""
        for row in self.rows:
            if row.group and row.group != group:
                drawing.text(0, y + HEADING_PX - 11, row.group, "heading")
                y, group = y + HEADING_PX, row.group
            if is_wide:
                drawing.text(left - 2 * GAP_PX, y + row_px / 2 + 4, row.title, "row", "end")
            else:
                drawing.text(0, y + LINE_PX, row.title, "row")
                y += title_px
            self._row(drawing, row, across, y + row_px / 2)
            y += row_px
        return drawing

    def _key_places(self, width: float) -> list[tuple[float, float, Mark]]:
        """Where the key's entries stand: left to right, in as many lines as it takes."""
        entries = dict.fromkeys((mark.series, mark.kind, mark.marker)
                                for row in self.rows for mark in row.marks)
        x, y, places = 0.0, 12.0, []
        for series, kind, marker in entries:
            needed = 15 + text_width(series, is_bold=True)
            if x and x + needed > width:
                x, y = 0.0, y + LINE_PX + 3
            places.append((x, y, Mark(series, 0, 0, 0, kind, marker)))
            x += needed + KEY_GAP_PX
        return places if len(entries) > 1 else []

    def _ground(self, drawing: Drawing, across: Scale, top: float, bottom: float) -> None:
        free_from = -1e9
        for value, label in self.axis.ticks:
            at = across(value)
            drawing.line(at, top, at, bottom + 4, "grid")
            left = at - text_width(label) / 2
            if left > free_from:
                drawing.text(at, bottom + 4 + LINE_PX, label, "tick", "middle")
                free_from = left + text_width(label) + GAP_PX
        drawing.text(across.end, drawing.height - 6, self.axis.title, "title", "end")
        if self.rule:
            at = across(self.rule[0])
            drawing.line(at, top - 4, at, bottom + 4, "rule")
            half = text_width(self.rule[1]) / 2
            at = min(max(at, half), drawing.width - half)
            drawing.text(at, top - 8, self.rule[1], "note", "middle")

    def _row(self, drawing: Drawing, row: Row, across: Scale, y: float) -> None:
        if self.is_bar:
            self._bar(drawing, row, across, y)
            return
        drawing.line(across.start, y, across.end, y, "track")
        for place, mark in enumerate(row.marks):
            at = y + (place - (len(row.marks) - 1) / 2) * ASIDE_PX
            if mark.low < mark.high:
                drawing.whisker(across(mark.low), at, across(mark.high), at, mark.kind)
            drawing.marker(across(mark.value), at, mark.marker, mark.kind)

    def _bar(self, drawing: Drawing, row: Row, across: Scale, y: float) -> None:
        for mark in row.marks:
            if row.limit is not None:
                drawing.rect(across.start, y - 8, across(row.limit) - across.start, 16, "room")
            drawing.rect(across.start, y - 8, across(mark.value) - across.start, 16,
                         f"bar {mark.kind}", 2)
            if mark.low < mark.high:
                drawing.whisker(across(mark.low), y, across(mark.high), y, "over")
            ends = [mark.value, mark.high]
            if row.limit is not None:
                at = across(row.limit)
                drawing.line(at, y - 11, at, y + 11, "limit")
                ends.append(row.limit)
            drawing.text(across(max(ends)) + GAP_PX, y + 4, mark.label, "value")
