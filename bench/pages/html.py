"""Sections as one HTML page that needs nothing else: no script, no other file (pure)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

from bench.pages.section import Section, Table
from bench.pages.style import STYLE
from bench.plots.marks import NARROW_PX, WIDE_PX
from bench.plots.svg import number
from bench.results import Figure

STRIP_PX = 84.0
LONG = 28  # characters of a cell that may break into lines
COMMAND = re.compile(r"python -m [\w.]+(?: --[\w-]+)*|\bmake bench\b|--max-wait-ms|--cache-mb")
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header>
{header}
</header>
<main>
{main}
</main>
<footer>
{footer}
</footer>
</body>
</html>
"""


def text(words: str) -> str:
    """Words as HTML."""
    return escape(words, quote=False)


def prose(words: str) -> str:
    """Sentences as HTML, commands in them as code."""
    return COMMAND.sub(r"<code>\g<0></code>", text(words))


def page(title: str, header: str, sections: Sequence[str], footer: str) -> str:
    """The whole page of parts that are HTML already."""
    return PAGE.format(title=text(title), style=STYLE, header=header, main="\n".join(sections),
                       footer=footer)


def section(one: Section, source: str) -> str:
    """A section with its plots at two widths, each above its table."""
    parts = [f'<section id="{one.key}" aria-labelledby="{one.key}-heading">',
             f'<h2 id="{one.key}-heading">{text(one.title)}</h2>']
    if not one.figures:
        return "\n".join([*parts, f'<p class="missing">{prose(one.missing)}</p>', "</section>"])
    parts.append(f"<p>{prose(one.lead)}</p>")
    for place, plot in enumerate(one.plots):
        name = f"{one.key}-{place}"
        parts += ["<figure>", f"<h3>{text(plot.title)}</h3>"]
        parts += [plot.drawn.draw(width).render(f"{name}-{kind}", plot.title, plot.words, kind)
                  for kind, width in (("wide", WIDE_PX), ("narrow", NARROW_PX))]
        parts += ["</figure>", details(plot.table) if plot.table else ""]
    parts += [details(table, table.title) if one.plots else table_of(table)
              for table in one.tables]
    parts += [f'<p class="source">{text(source)}</p>' if source else "", "</section>"]
    return "\n".join(filter(None, parts))


def details(table: Table, summary: str = "The figures as a table") -> str:
    """A table that unfolds."""
    return f"<details><summary>{text(summary)}</summary>{table_of(table)}</details>"


def table_of(table: Table) -> str:
    """A table that scrolls by itself where the page is narrower; numbers stand to the right."""
    is_number = [place > 0 and any(row[place] for row in table.rows)
                 and all(_is_number(row[place]) for row in table.rows)
                 for place in range(len(table.columns))]
    head = "".join(f'<th scope="col"{_kind(right)}>{text(column)}</th>'
                   for column, right in zip(table.columns, is_number))
    if table.strips:
        head += '<th scope="col">runs</th>'
    body = []
    for place, row in enumerate(table.rows):
        cells = [f'<th scope="row"{_kind(False, row[0])}>{text(row[0])}</th>']
        cells += [f"<td{_kind(right, cell)}>{text(cell)}</td>"
                  for cell, right in zip(row[1:], is_number[1:])]
        if table.strips:
            cells.append(f"<td>{strip(table.strips[place])}</td>")
        body.append(f"<tr>{''.join(cells)}</tr>")
    return (f'<div class="wide-table" tabindex="0" role="region" '
            f'aria-label="{escape(table.title)}"><table><caption>{text(table.title)}</caption>'
            f"<thead><tr>{head}</tr></thead>"
            f"<tbody>{''.join(body)}</tbody></table></div>")


def strip(figure: Figure) -> str:
    """The runs of a figure from nought to the largest; "" where there is no spread to show."""
    if len(figure.runs) < 2 or figure.high <= 0 or figure.low < 0:
        return ""
    def at(value: float) -> str:
        return number(3 + value / figure.high * (STRIP_PX - 6))
    return (f'<svg class="strip" viewBox="0 0 {number(STRIP_PX)} 12" aria-hidden="true">'
            f'<line class="base" x1="0" y1="6" x2="{number(STRIP_PX)}" y2="6"/>'
            f'<line x1="{at(figure.low)}" y1="6" x2="{at(figure.high)}" y2="6"/>'
            f'<circle cx="{at(figure.value)}" cy="6" r="3"/></svg>')


def _kind(is_number: bool, cell: str = "") -> str:
    if is_number:
        return ' class="number"'
    return ' class="long"' if len(cell) > LONG else ""


def _is_number(cell: str) -> bool:
    """Whether a cell is a figure, or empty, or says in a few words that there is none."""
    return not cell or cell == "too few" or (len(cell) <= LONG and (
        cell[0].isdigit() or cell[0] == "\u2212"))
