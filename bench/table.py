"""Figures as a table of plain text: a heading, aligned columns, numbers to the right (pure)."""

from __future__ import annotations

from collections.abc import Sequence


def render(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """The table, its lines ended by newlines; floats get three significant digits, None a dash."""
    cells = [list(columns), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[place]) for row in cells) for place in range(len(columns))]
    is_number = [all(not isinstance(row[place], str) for row in rows) and bool(rows)
                 for place in range(len(columns))]
    lines = [title]
    for row in cells:
        lines.append("  ".join(cell.rjust(width) if right else cell.ljust(width)
                               for cell, width, right in zip(row, widths, is_number)).rstrip())
    return "\n".join(lines) + "\n"


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value)
