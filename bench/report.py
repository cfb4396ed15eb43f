"""The page of a results file.

    python -m bench.report bench/results/DAY-COMMIT.jsonl [-o PAGE.html]

The same lines give the same page, byte for byte.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path

from bench.pages import html
from bench.pages.against import peers_section
from bench.pages.costs import costs_section
from bench.pages.engine import roofline_section, throughput_section
from bench.pages.load import goodput_section, latency_section
from bench.pages.padding import padding_section
from bench.pages.rest import all_figures, programs_section
from bench.pages.schedule import schedule_section
from bench.pages.section import Section, percent
from bench.plots.scale import readable
from bench.results import Figure, read_results, select

SECTIONS = (latency_section, goodput_section, throughput_section, padding_section, peers_section,
            schedule_section, roofline_section, costs_section, programs_section)

SUBTITLE = """<p class="soft">A text-classification server in Python: what it does at a tenth of
its capacity, at its limit and beyond, and against what one would run instead.</p>"""
FOOTER = """<p class="soft">Values are medians of interleaved rounds; brackets and whiskers go from
the least to the largest round. Load is the machine's average of one minute while a figure was
taken, its own work included. Drawn from the lines of the results file beside this page by
<code>python -m bench.report</code>.</p>"""


def make_page(figures: Sequence[Figure]) -> str:
    """The page of these figures, whichever there are."""
    sections = [make(figures) for make in SECTIONS]
    days = sorted({one.text("at")[:10] for one in figures} - {""})
    title = "Firebrick: figures" + (f" of {days[-1]}" if days else "")
    tables = all_figures(figures)
    parts = [html.section(one, source(one.figures)) for one in sections]
    parts.append('<section id="all" aria-labelledby="all-heading"><h2 id="all-heading">All figures'
                 "</h2><p>Every line of the results file, as it was printed.</p>"
                 + "".join(html.details(table, table.title) for table in tables) + "</section>")
    return html.page(title, _header(title, figures, sections), parts, FOOTER)


def source(figures: Sequence[Figure]) -> str:
    """Where figures come from, in one line: how many, machine, commit, load."""
    if not figures:
        return ""
    machines = sorted({one.text("machine") for one in figures} - {""})
    commits = sorted({one.text("commit") for one in figures} - {""})
    loads = [one.facts["load_1m"] for one in figures
             if isinstance(one.facts.get("load_1m"), (int, float))]
    runs = sorted({len(one.runs) for one in figures if one.runs})
    return "; ".join(filter(None, (
        f"{len(figures)} figures" if len(figures) > 1 else "1 figure",
        f"medians of {_range(runs)} runs" if runs else "", " | ".join(machines),
        f"commit {', '.join(commits)}" if commits else "",
        f"load {_range([round(min(loads), 1), round(max(loads), 1)])}" if loads else ""))) + "."


def _range(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _header(title: str, figures: Sequence[Figure], sections: Sequence[Section]) -> str:
    machines = sorted({one.text("machine") for one in figures} - {""},
                      key=lambda machine: (-_cores(machine), machine))
    commits = sorted({one.text("commit") for one in figures} - {""})
    times = sorted({one.text("at") for one in figures} - {""})
    facts = [("machine", machines[0] if machines else "unknown"),
             ("commit", ", ".join(commits) or "unknown"),
             ("taken", _when(times[0], times[-1]) if times else "unknown"),
             ("figures", str(len(figures)))]
    rows = "".join(f"<dt>{name}</dt><dd>{html.text(value)}</dd>" for name, value in facts)
    tiles = "".join(f"<li><b>{html.text(value)} <small>{html.text(unit)}</small></b>"
                    f"<span>{html.text(words)}</span></li>"
                    for value, unit, words in _tiles(figures))
    links = "".join(f'<li><a href="#{escape(one.key)}">{html.text(one.title)}</a></li>'
                    for one in sections)
    return (f'<h1>{html.text(title)}</h1>\n{SUBTITLE}\n<dl class="facts">{rows}</dl>\n'
            + (f'<ul class="tiles">{tiles}</ul>\n' if tiles else "")
            + f'<nav aria-label="Sections"><ul>{links}<li><a href="#all">All figures</a></li></ul>'
            "</nav>")


def _when(first: str, last: str) -> str:
    """Example: 2026-11-30 11:59 to 12:14 UTC, of two times in ISO form."""
    begin, end = first[:16].replace("T", " "), last[:16].replace("T", " ")
    if begin == end:
        return f"{begin} UTC"
    return f"{begin} to {end[11:] if end[:10] == begin[:10] else end} UTC"


def _cores(machine: str) -> int:
    """The number before `cores`; programs pinned to one core say 1."""
    found = [word for word in machine.split(", ") if word.endswith((" core", " cores"))]
    return int(found[0].split()[0]) if found and found[0].split()[0].isdigit() else 0


def _tiles(figures: Sequence[Figure]) -> list[tuple[str, str, str]]:
    """(value, unit, words) of the few figures that a reader looks for first."""
    found = []
    for one in select(figures, "load.capacity")[:1]:
        facts = {"model": one.text("model"), "texts": one.text("texts")}
        found.append((readable(one.value), "/s", f"requests of {facts['model']} over HTTP: the "
                                                 "capacity, in a closed loop of 32 connections"))
        found += [(readable(p99.value), "ms", "p99 at 70 % of capacity, open loop")
                  for p99 in select(figures, "load.p99_ms", load=0.7, **facts)]
        found += [(percent(good.value), "", "of capacity answered when twice as much is offered")
                  for good in select(figures, "load.goodput", load=2.0, **facts)]
    found += [(percent(one.value), "",
               f"of what the same programs do without HTTP, {one.text('model')}")
              for one in select(figures, "serve.offline_ratio")[:1]]
    found += [(percent(one.value), "", "of computed tokens are padding, mixed lengths")
              for one in select(figures, "padding.share", way="firebrick", traffic="profile")[:1]]
    found += [(readable(one.value), "s", f"from start to ready with {one.text('model')}")
              for one in select(figures, "serve.ready_s")[:1]]
    return found


def write_page(results: Path) -> Path:
    """The page beside a results file; OSError where that cannot be read."""
    path = results.with_suffix(".html")
    path.write_text(make_page(read_results(results)), "utf-8")
    return path


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.report", allow_abbrev=False)
    parser.add_argument("results", type=Path, help="lines of figures")
    parser.add_argument("-o", "--output", type=Path, help="the page; else beside the results")
    options = parser.parse_args(arguments)
    try:
        made = make_page(read_results(options.results))
    except OSError as error:
        parser.exit(2, f"{options.results} cannot be read: {error.strerror}\n")
    path = options.output or options.results.with_suffix(".html")
    path.write_text(made, "utf-8")
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
