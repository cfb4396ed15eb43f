"""Latency by load and goodput under overload, of bench.load_curve's figures."""

from __future__ import annotations

from collections.abc import Sequence

from bench.pages.section import (DASH, Plot, Section, Table, distinct, joined, percent,
                                 with_spread)
from bench.plots.curves import Curves, points_of
from bench.plots.marks import Axis, Series
from bench.plots.scale import linear_ticks, log_ticks, readable
from bench.results import Figure, select

PERCENTILES = ("p50", "p90", "p99", "p99.9")
MAX_WAIT_MS = 2000.0  # the server's own default, with which bench.load_curve runs it
NO_WRK = (" The closed loop is bench.client's own, as wrk was not installed: it takes more of the "
          "cores than wrk, so install that to see what the server does beside a cheap client.")
MISSING = "Not in this run: python -m bench.load_curve --short measures it in some two minutes."


def latency_section(figures: Sequence[Figure]) -> Section:
    """One plot a model and kind of texts, percentiles over load."""
    used = [one for one in figures if one.name in {f"load.{name}_ms" for name in PERCENTILES}
            and _has_load(one)]
    capacities = select(figures, "load.capacity")
    plots = [_latencies(f"{model}, {texts}: latency by load", [
        one for one in used if (one.text("model"), one.text("texts")) == (model, texts)])
        for model, texts in distinct(used, "model", "texts")]
    capacity = joined([f"{readable(one.value)} requests/s of {one.text('model')} with "
                       f"{one.text('texts')}" for one in capacities])
    return Section(
        "latency", "Latency by load",
        "Requests arrive at random times whether or not the server keeps up, and each latency "
        "counts from the moment at which its request was planned, so a stall is in the latencies "
        "of all that waited for it. 100 % is what a closed loop of 32 connections got: "
        f"{capacity}. Above it some requests are refused; the latencies are those of the accepted "
        "ones. The client runs on the server's own cores." + (NO_WRK if any(
            one.text("client") == "own" for one in capacities) else ""),
        MISSING, (*capacities, *used), tuple(plots))


def _latencies(title: str, here: Sequence[Figure]) -> Plot:
    by_name = {name: _by_load(here, f"load.{name}_ms") for name in PERCENTILES}
    loads = sorted({load for found in by_name.values() for load in found})
    table = Table(f"{title}, ms: median of the rounds (least{DASH}largest)",
                  ("load", "requests/s", *PERCENTILES),
                  tuple((percent(load, 3), _asked(here, load),
                         *(with_spread(by_name[name][load]) if load in by_name[name]
                           else "too few" for name in PERCENTILES)) for load in loads))
    series = tuple(Series(name, points_of([(100 * load, one.value, one.low, one.high)
                                           for load, one in by_name[name].items()]), f"q{place}")
                   for place, name in enumerate(PERCENTILES))
    is_near = max(one.high for one in here) > MAX_WAIT_MS / 4
    return Plot(title, _latency_words(title, by_name), Curves(
        series, _load_axis(here), _time_axis(here), (100.0, "more than it can do"),
        (MAX_WAIT_MS, f"--max-wait-ms {MAX_WAIT_MS:g}") if is_near else None), table)


def goodput_section(figures: Sequence[Figure]) -> Section:
    """Offered against answered, as shares of the capacity."""
    goods, refusals, retries = (list(filter(_has_load, select(figures, f"load.{name}")))
                                for name in ("goodput", "refused", "retry_ok"))
    plots = []
    for model, texts in distinct(goods, "model", "texts"):
        good, refused = (_by_load(select(some, name, model=model, texts=texts), name)
                         for some, name in ((goods, "load.goodput"), (refusals, "load.refused")))
        plots.append(_goodput(f"{model}, {texts}: answered of what was offered", good, refused))
    obeyed = joined([f"{percent(one.value, 4)} of {one.text('retried')} ({one.text('model')})"
                     for one in retries])
    return Section(
        "goodput", "Goodput under overload",
        "What is answered with 2xx when more is offered than the server can do, by the time until "
        "the last answer: a queue that is worked off afterwards is no throughput. "
        + (f"Of the requests that were refused at {percent(retries[0].facts['load'], 3)} and came "
           f"back when Retry-After said so, {obeyed} succeeded. " if retries else "")
        + _client_words(goods), MISSING, (*goods, *refusals, *retries), tuple(plots))


def _goodput(title: str, good: dict[float, Figure], refused: dict[float, Figure]) -> Plot:
    most = 100 * max(max(good), *(one.high for one in good.values()))
    ticks = tuple((tick, f"{tick:g} %") for tick in linear_ticks(0, most, 4))
    last = max(good)
    words = (f"{title}. At {percent(last, 3)} of capacity {percent(good[last].value)} of capacity "
             "is answered with success"
             + (f" and {percent(refused[last].value)} of requests get 429."
                if last in refused else "."))
    answered = points_of([(100 * load, 100 * one.value, 100 * one.low, 100 * one.high)
                          for load, one in good.items()])
    offered = points_of([(100 * load, 100 * load, 100 * load, 100 * load) for load in good])
    table = Table(
        f"{title}: median of the rounds (least{DASH}largest)",
        ("load", "offered requests/s", "2xx a second", "% of capacity", "429, % of requests",
         "the client's core, %", "was the client the limit?"),
        tuple((percent(load, 3), _asked([one], load), readable(_number(one, "requests_per_s")),
               with_spread(one, 100),
               with_spread(refused[load], 100) if load in refused else "",
               readable(100 * _number(one, "client_cpu_share")),
               "; ".join(one.facts.get("client_limits") or ()) or "no")
              for load, one in good.items()))
    return Plot(title, words, Curves(
        (Series("offered", offered, "dashed", ""), Series("answered", answered, "s0")),
        _load_axis(list(good.values())), Axis("requests, % of capacity", ticks),
        (100.0, "more than it can do"), None,
        ("offered", "answered", _gap_words(good[last], refused.get(last)))), table)


def _has_load(figure: Figure) -> bool:
    return isinstance(figure.facts.get("load"), (int, float))


def _by_load(figures: Sequence[Figure], name: str) -> dict[float, Figure]:
    """load -> its figure, ascending; of several the last."""
    found = {float(one.facts["load"]): one for one in figures
             if one.name == name}
    return dict(sorted(found.items()))


def _load_axis(figures: Sequence[Figure]) -> Axis:
    most = max((100 * float(one.facts.get("load", 1)) for one in figures), default=100.0)
    return Axis("offered load, % of capacity", tuple(
        (tick, f"{tick:g}") for tick in linear_ticks(0, most, 4)))


def _time_axis(figures: Sequence[Figure]) -> Axis:
    ticks = log_ticks(min(max(one.low, 1e-3) for one in figures), max(one.high for one in figures))
    return Axis("latency, ms (each step as many times more)",
                tuple((tick, readable(tick)) for tick in ticks), is_log=True)


def _asked(figures: Sequence[Figure], load: float) -> str:
    return next((readable(_number(one, "asked_rps"), 4) for one in figures
                 if one.facts.get("load") == load), "")


def _number(figure: Figure, fact: str) -> float:
    found = figure.facts.get(fact)
    return float(found) if isinstance(found, (int, float)) else 0.0


def _gap_words(good: Figure, refused: Figure | None) -> str:
    """What became of what was offered and not answered, where most of it had one fate."""
    load = float(good.facts["load"])
    if refused and refused.value * load > (load - good.value) / 2:
        return "refused: 429, Retry-After"
    return "not answered in time"


def _client_words(goods: Sequence[Figure]) -> str:
    """Says where the client, not the server, was the limit; "" where it never was."""
    loads = sorted({float(one.facts["load"]) for one in goods if one.facts.get("client_limits")})
    if not loads:
        return ""
    return (f"At {joined([percent(load, 3) for load in loads])} the client itself was the limit "
            "in some round: what is shown there is the least that the server does.")


def _latency_words(title: str, by_name: dict[str, dict[float, Figure]]) -> str:
    said = []
    for name, found in by_name.items():
        if found:
            first, last = next(iter(found.items())), list(found.items())[-1]
            said.append(f"{name} is {readable(first[1].value)} ms at {percent(first[0], 3)} and "
                        f"{readable(last[1].value)} ms at {percent(last[0], 3)} of capacity")
    return f"{title}. " + "; ".join(said) + "."
