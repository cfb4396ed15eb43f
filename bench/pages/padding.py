"""Padding, ours against what padded batches would compute, of bench.padding's figures."""

from __future__ import annotations

from collections.abc import Sequence

from bench.pages.section import Plot, Section, Table, distinct, mark_of, percent, plain
from bench.plots.dots import Dots
from bench.plots.marks import Axis, Row
from bench.plots.scale import readable
from bench.results import Figure, select

WAYS = {"firebrick": "Firebrick, packed",
        "sorted": "sorted, to the longest of a batch",
        "buckets": "each to its length bucket",
        "arrival": "as they come, to the longest",
        "limit": "all to the model's limit"}
TRAFFIC = {"short": "short messages", "profile": "mixed lengths"}
TICKS = tuple((tick, f"{tick} %") for tick in (0, 25, 50, 75, 100))


def padding_section(figures: Sequence[Figure]) -> Section:
    """Bars: the share of computed tokens that is padding, by way of making batches."""
    used = select(figures, "padding.share")
    rows, told = [], []
    for (traffic,) in distinct(used, "traffic"):
        here = select(used, "padding.share", traffic=traffic)
        title = TRAFFIC.get(traffic, traffic)
        group = (f"{title}: {plain(here[0].facts.get('texts'))} texts, "
                 f"{plain(here[0].facts.get('tokens'))} tokens")
        for one in here:
            way = one.text("way")
            rows.append(Row(WAYS.get(way, way), (
                mark_of(one, way, "s0" if way == "firebrick" else "pale",
                        label=percent(one.value), factor=100.0),), group))
            told.append((title, WAYS.get(way, way), percent(one.value, 3),
                         f"{readable(1 / (1 - one.value))} ×" if one.value < 1 else ""))
    words = "Padding as a share of all computed tokens. " + " ".join(
        f"{title}, {way}: {share}." for title, way, share, _ in told)
    return Section(
        "padding", "Padding",
        "Tokens that are computed and thrown away, when the same texts go in batches of 32. Ours "
        "are packed one behind the other; what is left fills a batch up to a number of rows that "
        "keeps every bit. Sorting first needs to know all texts beforehand, as a server cannot.",
        "Not in this run: python -m bench.padding counts it in seconds.", tuple(used),
        (Plot("Padding as a share of all computed tokens", words,
              Dots(tuple(rows), Axis("padding, % of computed tokens", TICKS), is_bar=True),
              Table("Padding", ("texts", "way of making batches", "padding", "work"),
                    tuple(told))),) if used else ())
