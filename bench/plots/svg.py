"""A drawing: shapes and texts as SVG elements, and how much room each text takes (pure).

Colours are classes (`s0` …, `q0` … of bench/page_style.py) that set `color`; shapes paint with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

TEXT_PX = 12.0
# Widths in em of a common sans serif, generous: a text may only turn out narrower.
NARROW, WIDE = "fijlrtI.,:;'|!()[]/ -", "mwMWQO@%—"
BOLD_TIMES = 1.12
BOLD_KINDS = ("name", "heading", "value")
MARKERS = ("circle", "square", "triangle", "diamond", "ring", "cross")


def number(value: float) -> str:
    """A coordinate: two decimals, no needless zeros, never -0."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def text_width(text: str, size: float = TEXT_PX, is_bold: bool = False) -> float:
    """How many pixels a text takes, rather too many."""
    ems = sum(0.38 if one in NARROW else 0.95 if one in WIDE else 0.62 for one in text)
    return ems * size * (BOLD_TIMES if is_bold else 1.0)


class Drawing:
    """Elements in the order in which they are painted. `boxes` are the texts' places: (left, top,
    right, bottom, text)."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self.boxes: list[tuple[float, float, float, float, str]] = []
        self._elements: list[str] = []

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        self._add("line", kind, x1=x1, y1=y1, x2=x2, y2=y2)

    def path(self, points: Sequence[tuple[float, float]], kind: str,
             is_closed: bool = False) -> None:
        """A line through the points, or the area that they enclose."""
        steps = "L".join(f"{number(x)} {number(y)}" for x, y in points)
        self._add("path", kind, d=f"M{steps}" + "Z" * is_closed)

    def rect(self, x: float, y: float, width: float, height: float, kind: str,
             round_px: float = 0.0) -> None:
        corners = {"rx": round_px} if round_px else {}
        self._add("rect", kind, x=x, y=y, width=max(width, 0.0), height=height, **corners)

    def text(self, x: float, y: float, text: str, kind: str = "", anchor: str = "start",
             size: float = TEXT_PX) -> None:
        """A line of text on the base line `y`; `anchor` is start, middle or end."""
        width = text_width(text, size, kind.split(" ")[0] in BOLD_KINDS)
        left = x - {"start": 0.0, "middle": width / 2, "end": width}[anchor]
        self.boxes.append((left, y - 0.75 * size, left + width, y + 0.2 * size, text))
        anchors = {} if anchor == "start" else {"text-anchor": anchor}
        sizes = {} if size == TEXT_PX else {"font-size": size}
        self._add("text", kind, escape(text, quote=False), x=x, y=y, **anchors, **sizes)

    def marker(self, x: float, y: float, shape: str, kind: str, radius: float = 4.0) -> None:
        """One of MARKERS, so that colour is never the only difference."""
        if shape in ("circle", "ring"):
            self._add("circle", f"{shape} {kind}", cx=x, cy=y, r=radius)
        elif shape == "square":
            self.rect(x - radius * 0.9, y - radius * 0.9, radius * 1.8, radius * 1.8,
                      f"dot {kind}")
        elif shape == "cross":
            reach = radius * 0.85
            self.line(x - reach, y - reach, x + reach, y + reach, f"cross {kind}")
            self.line(x - reach, y + reach, x + reach, y - reach, f"cross {kind}")
        else:
            reach = radius * 1.25
            foot = y + reach * 0.75
            corners = ([(x, y - reach), (x + reach, foot), (x - reach, foot)]
                       if shape == "triangle" else
                       [(x, y - reach), (x + reach, y), (x, y + reach), (x - reach, y)])
            self.path(corners, f"dot {kind}", is_closed=True)

    def whisker(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        """The spread of runs, upright or level, with caps at its ends."""
        self.line(x1, y1, x2, y2, f"whisker {kind}")
        dx, dy = (3.0, 0.0) if x1 == x2 else (0.0, 3.0)
        for x, y in ((x1, y1), (x2, y2)):
            self.line(x - dx, y - dy, x + dx, y + dy, f"whisker {kind}")

    def render(self, name: str, title: str, words: str, kind: str = "") -> str:
        """The SVG element; `name` makes its ids unique in the page, `title` and `words` are read
        out in its place."""
        return (f'<svg class="plot {escape(kind)}" role="img" viewBox="0 0 {number(self.width)} '
                f'{number(self.height)}" xmlns="http://www.w3.org/2000/svg" '
                f'aria-labelledby="{escape(name)}-title {escape(name)}-words">'
                f'<title id="{escape(name)}-title">{escape(title, quote=False)}</title>'
                f'<desc id="{escape(name)}-words">{escape(words, quote=False)}</desc>'
                + "".join(self._elements) + "</svg>")

    def _add(self, element: str, kind: str, inside: str = "", **attributes: float | str) -> None:
        written = "".join(f' {name}="{value if isinstance(value, str) else number(value)}"'
                          for name, value in attributes.items())
        label = f' class="{escape(kind.strip())}"' if kind.strip() else ""
        end = f">{inside}</{element}>" if inside else "/>"
        self._elements.append(f"<{element}{label}{written}{end}")
