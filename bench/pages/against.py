"""Ours against peers: whole servers (bench.peers), and programs alone (bench.engine --peer)."""

from __future__ import annotations

from collections.abc import Sequence

from bench.pages.section import (DASH, Plot, Section, Table, distinct, joined, mark_of,
                                 with_spread)
from bench.plots.dots import Dots
from bench.plots.marks import Axis, Row
from bench.plots.scale import linear_ticks, log_ticks, readable
from bench.results import Figure, select

OURS = "firebrick"
SERVERS = {OURS: ("Firebrick", "s0", "circle"),
           "fastapi-ort": ("FastAPI, ONNX Runtime", "s1", "square"),
           "mosec-ort": ("mosec, ONNX Runtime", "s2", "triangle"),
           "mosec-ct2": ("mosec, CTranslate2", "s3", "diamond")}
ENGINES = {"ort": ("ONNX Runtime", "s1", "square"), "ct2": ("CTranslate2", "s3", "diamond"),
           "openvino": ("OpenVINO", "s2", "triangle")}
TRAFFIC = {"short": "short texts", "profile": "mixed lengths"}
MISSING = ("Not in this run: the other engines' packages were not installed. python -m "
           "bench.peers.venv fastapi-ort mosec-ort mosec-ct2 ort ct2 brings them, some 2 GB, "
           "beside the clone; make bench then measures them too.")


def peers_section(figures: Sequence[Figure]) -> Section:
    """Servers first, then programs."""
    served = [one for one in figures if one.name.startswith("peers.")]
    ratios = [one for one in select(figures, "engine.ratio") if _is_like_for_like(one)]
    plots = []
    for (model,) in distinct(select(served, "peers.requests_per_s"), "model"):
        here = [one for one in served if one.text("model") == model]
        plots += [_rates(model, here), *_waits(model, here)]
    plots += [_programs(model, [one for one in ratios if one.text("model") == model])
              for (model,) in distinct(ratios, "model")]
    return Section(
        "peers", "Ours against peers",
        "What a team would run instead, in 8 bits with the Rust tokenizers, one thread a process, "
        "on the same cores, asked by the same client with the same texts in turn with ours; each "
        "set up as its table says. Programs alone are asked without any server, each in its "
        "fastest way of being called." + _company_words(served), MISSING, (*served, *ratios),
        tuple(plots))


def _company_words(served: Sequence[Figure]) -> str:
    """How far company moved a logit, the worst of each server."""
    changes: dict[str, float] = {}
    for one in select(served, "peers.change"):
        server = _server(one.text("server"))[0]
        changes[server] = max(changes.get(server, 0.0), one.value)
    if not changes:
        return ""
    return (" Alone and in company one text's logits differ by up to "
            + joined([f"{readable(change, 2)} ({server})" for server, change in changes.items()])
            + ".")


def _is_like_for_like(figure: Figure) -> bool:
    """A peer's 8 bits against ours, its fp32 against ours, both at their best."""
    ours, against = figure.text("ours"), figure.text("against")
    return (figure.text("kind") == "best" and against.split("-")[0] in ENGINES
            and ours in ("int8", "fp32") and ("int8" in against) == (ours == "int8"))


def _rates(model: str, here: Sequence[Figure]) -> Plot:
    """Bars of requests/s, ours on top of each kind of traffic."""
    title = f"{model}: requests a second at 32 connections"
    rows, said = [], []
    found = select(here, "peers.requests_per_s")
    for (traffic,) in distinct(found, "traffic"):
        for one in select(found, "peers.requests_per_s", traffic=traffic):
            name, kind, _ = _server(one.text("server"))
            ratio = "".join(f", ours {readable(more.value)} ×" for more in
                            select(here, "peers.ratio", traffic=traffic, server=one.text("server")))
            rows.append(Row(name, (mark_of(one, name, kind, label=readable(one.value) + ratio),),
                            TRAFFIC.get(traffic, traffic)))
            said.append(f"{TRAFFIC.get(traffic, traffic)}, {name}: {readable(one.value)}{ratio}.")
    most = max(mark.high for row in rows for mark in row.marks)
    return Plot(title, f"{title}. " + " ".join(said), Dots(tuple(rows), Axis(
        "requests/s", tuple((tick, readable(tick)) for tick in linear_ticks(0, most, 4))),
        is_bar=True), _served_table(model, here))


def _waits(model: str, here: Sequence[Figure]) -> list[Plot]:
    """The round trips of all servers, a row for each kind of load."""
    title = f"{model}: round trips, ms"
    rows = []
    for name, words in (("peers.p50_ms", "p50 at 32 connections"),
                        ("peers.p99_ms", "p99 at 32 connections"),
                        ("peers.alone_p50_ms", "p50 of one connection")):
        for (traffic,) in distinct(select(here, name), "traffic"):
            marks = [mark_of(one, *_server(one.text("server")))
                     for one in select(here, name, traffic=traffic)]
            rows.append(Row(words, tuple(marks), TRAFFIC.get(traffic, traffic)))
    if not rows:
        return []
    rows.sort(key=lambda row: row.group, reverse=True)  # the short ones first
    said = " ".join(f"{row.group}, {row.title}: " + joined(
        [f"{mark.series} {readable(mark.value)}" for mark in row.marks]) + "." for row in rows)
    return [Plot(title, f"{title}. {said}", Dots(tuple(rows), _log_axis("ms, less is better",
                                                                        rows)))]


def _served_table(model: str, here: Sequence[Figure]) -> Table:
    columns = {"requests/s": "peers.requests_per_s", "ours, times as many": "peers.ratio",
               "p50, ms": "peers.p50_ms", "p99, ms": "peers.p99_ms",
               "one connection, p50, ms": "peers.alone_p50_ms",
               "processor time, ms a request": "peers.cpu_ms",
               "changed by company, logit": "peers.change"}
    rows = []
    for traffic, server in distinct(here, "traffic", "server"):
        cells = [joined([with_spread(one) for one in select(here, name, traffic=traffic,
                                                            server=server)])
                 for name in columns.values()]
        setup = next((one.text("setup") for one in here
                      if (one.text("traffic"), one.text("server")) == (traffic, server)
                      and one.text("setup")), "")
        rows.append((f"{TRAFFIC.get(traffic, traffic)}, {_server(server)[0]}", *cells, setup))
    return Table(f"{model}: servers (least{DASH}largest round)", ("server", *columns, "set up as"),
                 tuple(rows))


def _programs(model: str, here: Sequence[Figure]) -> Plot:
    title = f"{model}: how many times as long another engine takes, one core"
    rows = []
    for ours in ("int8", "fp32"):
        for batch in dict.fromkeys(map(_batch, here)):
            marks = []
            for engine, style in ENGINES.items():
                found = [one for one in here if one.text("ours") == ours and _batch(one) == batch
                         and one.text("against").split("-")[0] == engine]
                if found:  # of several forms of an engine the fastest
                    marks.append(mark_of(min(found, key=lambda one: one.value), *style))
            if marks:
                rows.append(Row(batch, tuple(marks), f"{ours}, both"))
    said = " ".join(f"{row.group}, {row.title}: " + joined(
        [f"{mark.series} {readable(mark.value)} times" for mark in row.marks]) + "."
                    for row in rows)
    return Plot(title, f"{title}. {said}", Dots(
        tuple(rows), _log_axis("times as long as ours: further right is better for ours", rows),
        (1.0, "as fast as ours")), Table(
            f"{title} (least{DASH}largest round)",
            ("batch", "ours", "against", "called", "times as long"),
            tuple((_batch(one), one.text("ours"), one.text("against"), one.text("mode"),
                   with_spread(one)) for one in here)))


def _log_axis(title: str, rows: Sequence[Row]) -> Axis:
    values = [end for row in rows for mark in row.marks for end in (mark.low, mark.high) if end > 0]
    low, high = min((*values, 1.0)) if "ours" in title else min(values), max(values)
    ticks = log_ticks(low, max(high, low * 1.01))
    return Axis(title, tuple((tick, readable(tick)) for tick in ticks), is_log=True)


def _server(server: str) -> tuple[str, str, str]:
    return SERVERS.get(server, (server, "s6", "ring"))


def _batch(figure: Figure) -> str:
    shape = figure.text("shape")
    if shape:
        texts, _, tokens = shape.partition("x")
        return f"{texts} × {tokens} tokens"
    return f"texts of {figure.text('texts')}"
