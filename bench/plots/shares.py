"""Wholes cut into parts: a bar of full length a row, its parts in per cent (pure)."""

from __future__ import annotations

from dataclasses import dataclass

from bench.plots.marks import LINE_PX, WIDE_PX
from bench.plots.svg import Drawing, text_width

ROW_PX, BAR_PX, KEY_GAP_PX, GAP_PX = 30.0, 20.0, 18.0, 8.0
LABEL_PX = 11.0


@dataclass(frozen=True)
class Shares:
    """`rows` are (title, share of each of `parts`), shares from 0 to 1; `kinds` the parts'
    colours."""

    parts: tuple[str, ...]
    kinds: tuple[str, ...]
    rows: tuple[tuple[str, tuple[float, ...]], ...]

    def draw(self, width: float) -> Drawing:
        """The plot, `width` pixels wide; narrow, titles stand above their rows."""
        is_wide = width >= WIDE_PX
        key, x, y = [], 0.0, 12.0
        for part, kind in zip(self.parts, self.kinds):
            needed = 16 + text_width(part)
            if x and x + needed > width:
                x, y = 0.0, y + LINE_PX + 3
            key.append((x, y, part, kind))
            x += needed + KEY_GAP_PX
        top, title_px = y + 12, 0.0 if is_wide else LINE_PX
        drawing = Drawing(width, top + len(self.rows) * (ROW_PX + title_px) + 4)
        for x, y, part, kind in key:
            drawing.rect(x, y - 10, 11, 11, f"bar {kind}", 2)
            drawing.text(x + 16, y, part, "row")
        left = max(text_width(title) for title, _ in self.rows) + GAP_PX if is_wide else 0.0
        for title, shares in self.rows:
            if is_wide:
                drawing.text(left - GAP_PX, top + ROW_PX / 2 + 4, title, "row", "end")
            else:
                drawing.text(0, top + LINE_PX, title, "row")
            top += title_px
            self._row(drawing, shares, left, top + ROW_PX / 2)
            top += ROW_PX
        return drawing

    def _row(self, drawing: Drawing, shares: tuple[float, ...], left: float, y: float) -> None:
        whole = sum(shares) or 1.0
        x = left
        for share, kind in zip(shares, self.kinds):
            length = (drawing.width - left) * share / whole
            drawing.rect(x, y - BAR_PX / 2, max(length - 1, 0), BAR_PX, f"bar {kind}")
            label = f"{100 * share / whole:.0f}"
            if text_width(label, LABEL_PX) + 4 < length:
                drawing.text(x + length / 2, y + 4, label, f"inside {kind}", "middle", LABEL_PX)
            x += length
