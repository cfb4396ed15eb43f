"""Throughput by bucket and precision, and the roofline, of bench.engine's figures."""

from __future__ import annotations

import re
from collections.abc import Sequence

from bench.pages.section import (DASH, Plot, Section, Table, distinct, joined, mark_of, percent,
                                 with_spread)
from bench.plots.curves import Curves, points_of
from bench.plots.dots import Dots
from bench.plots.marks import Axis, Row, Series
from bench.plots.scale import linear_ticks, readable
from bench.plots.shares import Shares
from bench.results import Figure, select

SHAPE = re.compile(r"^(\d+)x(\d+)$")
# Our programs, and plain torch as a reader may know it: (name, colour, marker).
STYLES = {"int8": ("int8", "s0", "circle"), "bf16": ("bf16", "s1", "square"),
          "fp16": ("fp16", "s4", "diamond"), "fp32": ("fp32", "s2", "triangle"),
          "eager": ("torch, eager", "s6", "ring")}
PART_KINDS = {"products": "s0", "attention": "s1", "softmax": "s5", "layernorm": "s2", "GELU": "s4",
              "quantise": "s3", "moves": "s7", "rest": "s6"}


def throughput_section(figures: Sequence[Figure]) -> Section:
    """One plot a model: tokens/s over the texts' length, a line a precision."""
    used = [one for one in select(figures, "engine.ms") if one.text("contender") in STYLES
            and SHAPE.match(one.text("shape")) and int(SHAPE.match(one.text("shape"))[1]) > 1]
    plots = [_throughput(model, [one for one in used if one.text("model") == model])
             for (model,) in distinct(used, "model")]
    return Section(
        "throughput", "Throughput by bucket and precision",
        "The server's programs on one core, without serving: batches of texts of one length, all "
        "precisions in turn within each round, counted in processor time so that neighbours on "
        "the machine do not count. Plain torch on the same checkpoint beside them.",
        "Not in this run: python -m bench.engine --short measures it in a minute.",
        tuple(used), tuple(plots))


def _throughput(model: str, here: Sequence[Figure]) -> Plot:
    title = f"{model}: tokens a second on one core, by length and precision"
    shapes = sorted({one.text("shape") for one in here}, key=_tokens)
    by_key = {key: {one.text("shape"): one for one in here if one.text("contender") == key}
              for key in STYLES}
    series = tuple(Series(STYLES[key][0], points_of([_rate_row(one) for one in found.values()]),
                          *STYLES[key][1:]) for key, found in by_key.items())
    most = max(point.high for one in series for point in one.points)
    lengths = sorted(set(map(_tokens, shapes)))
    table = Table(
        f"{title}: thousands, by the median of the rounds (slowest{DASH}fastest)",
        ("texts × tokens", *(STYLES[key][0] for key in by_key if by_key[key])),
        tuple((shape.replace("x", " × "), *(_rate_text(found.get(shape))
                                            for found in by_key.values() if found))
              for shape in shapes))
    return Plot(title, _throughput_words(title, series), Curves(
        series, Axis("tokens a text, its length bucket",
                     tuple((length, str(length)) for length in lengths), is_log=True),
        Axis("thousand tokens/s", tuple((tick, readable(tick))
                                        for tick in linear_ticks(0, most)))), table)


def roofline_section(figures: Sequence[Figure]) -> Section:
    """Bars up to what is reached with a tick at the peak, and what the time goes to."""
    reached, peaks = select(figures, "engine.fraction"), select(figures, "engine.peak")
    plots = []
    for (model,) in distinct(reached, "model"):
        here = [one for one in reached if one.text("model") == model]
        plots += [_reached(model, here), *_parts(model, here)]
    tables = [_peaks(model, [one for one in peaks if one.text("model") == model])
              for (model,) in distinct(peaks, "model")]
    return Section(
        "roofline", "Roofline",
        "A whole program can be no faster than its matrix products alone. The bar is what the "
        "products that logits need come to by the whole program's time, the tick what the fastest "
        "kernel of the same precision does with nothing else around it, in the same minute on the "
        "same core. Below it, what the time goes to.",
        "Not in this run: python -m bench.engine --short --roofline measures it in a minute.",
        (*reached, *peaks), tuple(plots), tuple(tables))


def _peaks(model: str, here: Sequence[Figure]) -> Table:
    rows = sorted({int(one.facts.get("rows", 0)) for one in here})
    return Table(
        f"{model}: GOP/s of a layer's products alone, by kernel and tokens in the call",
        ("kernel", *map(str, rows)),
        tuple((kernel, *(joined([with_spread(one) for one in
                                 select(here, "engine.peak", kernel=kernel, rows=count)])
                         for count in rows)) for (kernel,) in distinct(here, "kernel")))


def _reached(model: str, here: Sequence[Figure]) -> Plot:
    title = f"{model}: billion operations a second, and the kernels' peak"
    rows = []
    for (batch,) in distinct(here, "batch"):
        for one in (one for one in here if one.text("batch") == batch):
            name, kind, marker = STYLES.get(one.text("precision"),
                                            (one.text("precision"), "s6", "circle"))
            factor = _rate(one) / one.value if one.value else 0.0
            rows.append(Row(name, (mark_of(one, name, kind, marker, percent(one.value), factor),),
                            _batch(batch), factor))
    table = Table(title, ("batch", "precision", "GOP/s", "% of the peak"),
                  tuple((_batch(one.text("batch")), one.text("precision"), readable(_rate(one)),
                         with_spread(one, 100)) for one in here))
    most = max(max(row.limit, *(mark.high for mark in row.marks)) for row in rows)
    words = title + ". " + " ".join(f"{_batch(one.text('batch'))}, {one.text('precision')}: "
                                    f"{readable(_rate(one))}, {percent(one.value)} of the peak."
                                    for one in here)
    return Plot(title, words, Dots(tuple(rows), Axis(
        "GOP/s", tuple((tick, readable(tick)) for tick in linear_ticks(0, most))), is_bar=True),
        table)


def _parts(model: str, here: Sequence[Figure]) -> list[Plot]:
    title = f"{model}: % of the program's time by what it is spent on"
    rows = tuple((f"{_batch(one.text('batch'))}, {one.text('precision')}",
                  tuple(_shares(one).get(part, 0.0) for part in PART_KINDS))
                 for one in here if _shares(one))
    words = title + ". " + " ".join(f"{row}: {percent(shares[0])} in products."
                                    for row, shares in rows)
    drawn = Shares(tuple(PART_KINDS), tuple(PART_KINDS.values()), rows)
    table = Table(title, ("batch", *PART_KINDS),
                  tuple((row, *(percent(share) for share in shares)) for row, shares in rows))
    return [Plot(title, words, drawn, table)] if rows else []


def _batch(batch: str) -> str:
    shape = SHAPE.match(batch)
    if not shape:
        return f"texts of {batch}"
    return f"{shape[1]} {'text' if shape[1] == '1' else 'texts'} of {shape[2]} tokens"


def _shares(figure: Figure) -> dict[str, float]:
    found = figure.facts.get("shares")
    return found if isinstance(found, dict) else {}


def _rate(figure: Figure) -> float:
    found = figure.facts.get("gop_per_s")
    return float(found) if isinstance(found, (int, float)) else 0.0


def _tokens(shape: str) -> int:
    return int(SHAPE.match(shape)[2])


def _rate_row(figure: Figure) -> tuple[float, float, float, float]:
    """(tokens a text, thousand tokens/s, of the slowest and of the fastest run)."""
    texts, tokens = map(int, SHAPE.match(figure.text("shape")).groups())
    return (float(tokens), *(texts * tokens / ms for ms in (figure.value, figure.high, figure.low)))


def _rate_text(figure: Figure | None) -> str:
    if figure is None:
        return ""
    _, value, low, high = _rate_row(figure)
    return f"{readable(value)} ({readable(low)}{DASH}{readable(high)})"


def _throughput_words(title: str, series: Sequence[Series]) -> str:
    said = [f"{one.name} reaches {readable(max(point.value for point in one.points))} thousand at "
            "its best" for one in series if one.points]
    return f"{title}. {joined(said)}."
