"""README's figures, rewritten from a results file so that nobody copies a number by hand.

    python -m bench.readme bench/results/DAY-COMMIT.jsonl

Replaces what stands between the two marks in README.md; a test holds that it is what the results
named there give.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.figures import ROOT
from bench.pages.against import ENGINES, SERVERS, TRAFFIC
from bench.pages.section import distinct, joined, percent, with_spread
from bench.plots.scale import readable
from bench.results import Figure, read_results, select

README = ROOT / "README.md"
BEGIN = re.compile(r"<!-- figures of ([^ ]+): python -m bench\.readme -->\n")
END = "<!-- end of figures -->\n"
PRECISIONS = ("int8", "bf16", "fp16", "fp32")

NOTHING = "nothing"  # named in place of a results file before there is one
SHIPPED = "sms-spam"

Row = tuple[str, str, str]  # what, figure, command


def render(name: str, figures: Sequence[Figure]) -> str:
    """The block between the marks, marks included, of the figures of the file `name`."""
    if name == NOTHING:
        return (f"<!-- figures of {NOTHING}: python -m bench.readme -->\n"
                f"Not taken yet: `make bench`, then `python -m bench.readme RESULTS`.\n{END}")
    machines = [one.text("machine") for one in select(figures, "bench.program")]
    commits = sorted({one.text("commit") for one in figures})
    days = sorted({one.text("at")[:10] for one in figures})
    page = name.removesuffix(".jsonl") + ".html"
    rows = [row for make in (_load, _serving, _peers, _programs, _padding, _front)
            for row in make(figures)]
    lines = [f"<!-- figures of {name}: python -m bench.readme -->",
             f"Of {joined(days)}, commit {joined(commits)}, on",
             f"{machines[0] if machines else 'an unknown machine'}; medians of interleaved rounds,",
             f"least–largest in brackets. All of them, with plots: [{page}]({page}).",
             "", "| what | figure | command |", "| --- | --- | --- |",
             *(f"| {what} | {figure} | `{command}` |" for what, figure, command in rows)]
    return "\n".join(lines) + "\n" + END


def rewritten(readme: str, name: str, figures: Sequence[Figure]) -> str:
    """README's text with its block made anew; ValueError where it has no marks."""
    begin, end = BEGIN.search(readme), readme.find(END)
    if not begin or end < begin.start():
        raise ValueError(f"README has no block from {BEGIN.pattern!r} to {END.strip()!r}")
    return readme[:begin.start()] + render(name, figures) + readme[end + len(END):]


def named(readme: str) -> str:
    """The results file that README's block is of; ValueError where it has no marks."""
    begin = BEGIN.search(readme)
    if not begin:
        raise ValueError(f"README has no mark {BEGIN.pattern!r}")
    return begin.group(1)


def _command(program: str, model: str) -> str:
    """What prints a figure; the model that is shipped need not be named."""
    return f"python -m bench.{program} --short" + " --model DIR" * (model != SHIPPED)


def _load(figures: Sequence[Figure]) -> list[Row]:
    rows = []
    for one in select(figures, "load.capacity"):
        model, texts = one.text("model"), one.text("texts")
        here = {"model": model, "texts": texts}
        command = _command("load_curve", model)
        rows.append((f"{model}, texts of {texts}, {one.text('connections')} connections",
                     f"{with_spread(one)} requests/s", command))
        waits = [f"{name} {with_spread(found)} ms" for name in ("p50", "p99")
                 for found in select(figures, f"load.{name}_ms", load=0.7, **here)]
        if waits:
            rows.append(("the same, 70 % of that in open loop", joined(waits), command))
        answered = [f"{percent(good.value)} of capacity answered"
                    for good in select(figures, "load.goodput", load=2.0, **here)]
        answered += [f"p99 of the accepted {readable(found.value)} ms"
                     for found in select(figures, "load.p99_ms", load=2.0, **here)]
        if answered:
            rows.append(("the same, twice as much as it can do", joined(answered), command))
    return rows


def _serving(figures: Sequence[Figure]) -> list[Row]:
    rows = [(f"{one.text('model')}, texts of {one.text('texts')}: served, as a share of the same "
             "programs without HTTP", with_spread(one), _command("serve", one.text("model")))
            for one in select(figures, "serve.offline_ratio")]
    rows += [(f"{one.text('model')}: the same on the cores that the load client leaves",
              with_spread(one), _command("serve", one.text("model")))
             for one in select(figures, "serve.offline_left")]
    rows += [(f"{one.text('model')}: interpreter start to ready", f"{with_spread(one)} s",
              _command("serve", one.text("model")))
             for one in select(figures, "serve.ready_s")]
    rows += [(f"{one.text('model')}: an engine's kill -9 until its successor is up",
              f"{with_spread(one)} s", _command("serve", one.text("model")))
             for one in select(figures, "serve.engine_back_s")]
    return rows


def _peers(figures: Sequence[Figure]) -> list[Row]:
    rows = []
    found = select(figures, "peers.ratio")
    for model, traffic in distinct(found, "model", "traffic"):
        ratios = joined([f"{with_spread(one)} × {SERVERS.get(one.text('server'), ('?',))[0]}"
                         for one in select(found, "peers.ratio", model=model, traffic=traffic)])
        rows.append((f"{model}, {TRAFFIC.get(traffic, traffic)}: requests/s against other servers "
                     "in 8 bits", ratios, _command("peers", model)))
    return rows


def _programs(figures: Sequence[Figure]) -> list[Row]:
    rows = []
    found = [one for one in select(figures, "engine.ms") if one.text("texts")]
    for model, texts in distinct(found, "model", "texts"):
        here = select(found, "engine.ms", model=model, texts=texts)
        said = [f"{key} {readable(one.value / float(one.facts['texts_count']))}"
                for key in PRECISIONS
                for one in select(here, "engine.ms", contender=key, mode="whole")]
        for engine, (name, *_) in ENGINES.items():
            theirs = [one for one in here if one.text("contender").startswith(f"{engine}-int8")]
            if theirs:
                best = min(theirs, key=lambda one: one.value)
                each = best.value / float(best.facts["texts_count"])
                said.append(f"{name} in 8 bits {readable(each)}")
        rows.append((f"{model}, texts of {texts}, one core: ms a text", joined(said),
                     _command("engine", model)))
    return rows


def _padding(figures: Sequence[Figure]) -> list[Row]:
    found = select(figures, "padding.share", traffic="profile")
    said = [f"{percent(one.value)}{words}" for way, words in (
        ("firebrick", ""), ("buckets", " in padded buckets"),
        ("arrival", " where a batch is padded to its longest"))
        for one in select(found, "padding.share", way=way)]
    return [("tokens computed for nothing, mixed lengths", joined(said), "python -m bench.padding")
            ] if said else []


def _front(figures: Sequence[Figure]) -> list[Row]:
    command = "python -m bench.front --short"
    rows = [("one connection, a model that does nothing", f"p50 {with_spread(one)} µs", command)
            for one in select(figures, "front.p50_1_us")]
    rows += [("64 connections, a model that does nothing",
              f"{with_spread(one)} of a bare epoll loop that parses nothing", command)
             for one in select(figures, "front.ratio_64")]
    return rows


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.readme", allow_abbrev=False)
    parser.add_argument("results", type=Path, help="a results file in the clone")
    options = parser.parse_args(arguments)
    try:
        name = options.results.resolve().relative_to(ROOT).as_posix()
        text = rewritten(README.read_text("utf-8"), name, read_results(options.results))
    except (OSError, ValueError) as error:
        parser.exit(2, f"{error}\n")
    README.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
