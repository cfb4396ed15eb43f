"""The programs of a run and how they ended, and every figure that there is, of any name."""

from __future__ import annotations

from collections.abc import Sequence

from bench.pages.section import Section, Table, plain, with_spread
from bench.plots.scale import readable
from bench.results import Figure, select

COMMON = ("machine", "commit", "load_1m", "at")  # said once for a section


def programs_section(figures: Sequence[Figure]) -> Section:
    """What ran, how long, and what failed."""
    used = select(figures, "bench.program")
    rows = tuple((one.text("command"), readable(one.value), one.text("figures"),
                  one.text("fault") or "well") for one in used)
    failed = sum(bool(one.text("fault")) for one in used)
    lead = ("Each program can be run alone; it prints its figures as lines of JSON. "
            + (f"{failed} of {len(used)} did not end well." if failed
               else f"All {len(used)} ended well."))
    return Section("programs", "Programs of this run", lead if used else "",
                   "These lines were not gathered by make bench.", tuple(used), (),
                   (Table("Programs of this run", ("command", "seconds", "figures", "how it ended"),
                          rows),) if used else ())


def all_figures(figures: Sequence[Figure]) -> list[Table]:
    """A table for each first word of the figures' names."""
    tables = []
    for prefix in dict.fromkeys(map(_prefix, figures)):
        here = [one for one in figures if _prefix(one) == prefix]
        tables.append(Table(
            f"{prefix}: {len(here)} figures", ("figure", "value", "unit", "facts"),
            tuple((one.name, with_spread(one, digits=4), one.unit,
                   "; ".join(f"{name} {plain(value)}" for name, value in one.facts.items()
                             if name not in COMMON and value not in ("", None)))
                  for one in here), tuple(here)))
    return tables


def _prefix(figure: Figure) -> str:
    return figure.name.replace("_", ".").split(".")[0]
