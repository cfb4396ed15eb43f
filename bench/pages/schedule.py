"""Simulated schedules, ours against others, of bench.simulate_schedule's figures."""

from __future__ import annotations

from collections.abc import Sequence

from bench.pages.section import Plot, Section, Table, distinct, joined, mark_of, percent, plain
from bench.plots.dots import Dots
from bench.plots.marks import Axis, Row
from bench.plots.scale import log_ticks, readable
from bench.results import Figure, select

ORDERS = {"firebrick": ("Firebrick", "s0", "circle"),
          "fifo": ("first in, first out", "s1", "square"),
          "sort-by-length": ("shortest first", "s2", "triangle"),
          "padded buckets": ("padded buckets", "s3", "diamond")}
TRACES = {"short": "short texts at 70 %", "profile": "mixed lengths at 70 %",
          "bursts": "bursts at 50 %", "short-double": "short texts at 200 %",
          "profile-double": "mixed lengths at 200 %", "pipelining": "one client that pipelines",
          "large": "one request of 256 long texts", "high": "15 % high priority at 90 %"}


def schedule_section(figures: Sequence[Figure]) -> Section:
    """p99 and padding by trace and order of work."""
    used = [one for one in figures if one.name.startswith("schedule.")]
    traced = [one for one in used if one.text("trace") and one.text("order")]
    # Below its capacity every order answers all that comes: there the rates say nothing.
    rates = [one for one in select(traced, "schedule.goodput_rps")
             if float(one.facts.get("load") or 0) > 1]
    plots = [*_plot(select(traced, "schedule.p99_ms"),
                    "p99 from the planned send time, ms: less is better"),
             *_plot(rates, "answered under overload, requests a second: more is better")]
    columns = {"answered a second": "schedule.goodput_rps", "p50, ms": "schedule.p50_ms",
               "p99, ms": "schedule.p99_ms"}
    shares = {"refused": "schedule.refused", "padding": "schedule.padding"}
    rows = []
    for trace, order in distinct(traced, "trace", "order"):
        here = {"trace": trace, "order": order}
        rows.append((TRACES.get(trace, trace), _order(order)[0],
                     *(joined([readable(one.value) for one in select(traced, name, **here)])
                       for name in columns.values()),
                     *(joined([percent(one.value) for one in select(traced, name, **here)])
                       for name in shares.values())))
    checks = [one for one in used if one not in traced]
    tables = [Table("Simulated: what each order of work makes of the same arrivals",
                    ("arrivals", "order", *columns, *shares), tuple(rows))] if rows else []
    if checks:
        tables.append(Table(
            "Predicted by the simulation, and done by the server",
            ("figure", "arrivals", "predicted", "served", "predicted / served"),
            tuple((one.name, _arrivals(one), plain(one.facts.get("predicted")),
                   plain(one.facts.get("served")), readable(one.value)) for one in checks)))
    return Section(
        "schedule", "Schedules, simulated",
        "The same arrivals, planned once, through the server's own scheduler and through what "
        "others do, on a simulated machine with costs that were measured: nothing else differs.",
        "Not in this run: python -m bench.simulate_schedule plays it in a minute.",
        tuple(used), tuple(plots), tuple(tables))


def _plot(figures: Sequence[Figure], title: str) -> list[Plot]:
    """A row a trace, a mark an order."""
    rows = []
    for (trace,) in distinct(figures, "trace"):
        marks = tuple(mark_of(one, *_order(one.text("order"))) for one in figures
                      if one.text("trace") == trace and one.value > 0)
        if marks:
            rows.append(Row(TRACES.get(trace, trace), marks))
    if not rows:
        return []
    values = [mark.value for row in rows for mark in row.marks]
    ticks = log_ticks(min(values), max(values))
    said = " ".join(f"{row.title}: " + joined([f"{mark.series} {readable(mark.value)}"
                                               for mark in row.marks]) + "." for row in rows)
    return [Plot(title, f"{title}. {said}", Dots(tuple(rows), Axis(title.partition(":")[0], tuple(
        (tick, readable(tick)) for tick in ticks), is_log=True)))]


def _order(order: str) -> tuple[str, str, str]:
    return ORDERS.get(order, (order, "s6", "ring"))


def _arrivals(figure: Figure) -> str:
    return ", ".join(figure.text(fact) for fact in ("trace", "texts", "kind", "load")
                     if figure.text(fact))
