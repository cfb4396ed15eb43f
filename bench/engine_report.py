"""What bench.engine says: JSON lines, and the same figures as tables for readers."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import numpy as np

from bench.figures import emit, median
from bench.ours import PRECISIONS
from bench.rounds import Contender, Timing, agreement, fastest_mode, largest_change, ratios
from bench.table import render

# Our precisions, and the peers' that each is held against.
RIVALS = {"fp32": ("fp32",), "fp16": ("fp32",), "bf16": ("fp32", "bf16"), "int8": ("bf16", "int8")}


def precision_of(key: str) -> str:
    """The class that a contender competes in: fp32, fp16, bf16 or int8."""
    if "int8" in key:
        return "int8"
    return next((name for name in PRECISIONS if name in key), "fp32")


def comparisons(timings: Sequence[Timing]) -> list[tuple[Timing, Timing, str]]:
    """(ours, the rival's, kind) for each of our precisions, each peer and class, and each kind of
    mode: alone, buckets, and best of all. Of a peer's several forms the one with the least median
    is held against us. Our own fp32 is a rival of our other precisions."""
    found = []
    for mine in timings:
        if mine.contender.key not in PRECISIONS:
            continue
        rivals: dict[tuple[str, str, str], Timing] = {}
        for other in timings:
            key = other.contender.key
            is_rival = precision_of(key) in RIVALS[mine.contender.key]
            if key in PRECISIONS:
                is_rival = key == "fp32" != mine.contender.key
            if not is_rival:
                continue
            for kind in {other.mode if other.mode in ("alone", "buckets") else "best", "best"}:
                place = (key.split("-")[0], precision_of(key), kind)
                held = rivals.get(place)
                if held is None or other.median_ms < held.median_ms:
                    rivals[place] = other
        for (_, _, kind), other in rivals.items():
            found.append((mine, other, kind))
    return found


def report_grid(model: str, results: Mapping[str, Sequence[Timing]]) -> None:
    """A table of milliseconds, contenders down and shapes across; then ratios likewise."""
    for shape, timings in results.items():
        _emit(timings, model=model, shape=shape)
    keys = [one.contender.key for one in next(iter(results.values()))]
    by_shape = {shape: {one.contender.key: one for one in timings}
                for shape, timings in results.items()}
    _print(render(f"\n{model}: milliseconds a batch, median", ["contender", *results],
                  [[key, *(by_shape[shape][key].median_ms for shape in results)] for key in keys]))
    _print(render(f"\n{model}: max |Δlogit| against eager", ["contender", *results],
                  [[key, *(largest_change(by_shape[shape][key].logits, timings[0].logits)
                           for shape, timings in results.items())] for key in keys]))
    rows: dict[str, dict[str, float]] = {}
    for shape, timings in results.items():
        for title, value in _emit_ratios(timings, model=model, shape=shape).items():
            rows.setdefault(title, {})[shape] = value
    _print(render(f"\n{model}: times as long as ours took", ["ours against", *results],
                  [[title, *(found.get(shape) for shape in results)]
                   for title, found in rows.items()]))


def report_ragged(model: str, texts: str, rows: Sequence[np.ndarray],
                  timings: Sequence[Timing]) -> None:
    """A table of milliseconds a text, fastest first; then ratios."""
    lengths = [len(row) for row in rows]
    _emit(timings, model=model, texts=texts, texts_count=len(rows), tokens=sum(lengths))
    ordered = sorted(timings, key=lambda one: one.median_ms)
    _print(render(
        f"\n{model}, {texts}: {len(rows)} texts, mean {sum(lengths) / len(rows):.1f} tokens, max "
        f"{max(lengths)}; milliseconds a text",
        ["contender", "calls", "median", "best", "wall", "max |Δ|", "agreement %"],
        [[one.contender.name, one.mode, one.median_ms / len(rows), one.best_ms / len(rows),
          one.wall_ms / len(rows), largest_change(one.logits, timings[0].logits),
          100 * agreement(one.logits, timings[0].logits)] for one in ordered]))
    found = _emit_ratios(timings, model=model, texts=texts)
    _print(render(f"\n{model}, {texts}: times as long as ours took", ["ours against", "x"],
                  list(found.items())))


def report_invariance(model: str, texts: str, rows: Sequence[np.ndarray],
                      contenders: Sequence[Contender]) -> None:
    """For each contender the largest change of a text's logits between alone and in company."""
    lines = []
    for one in contenders:
        alone = one.run(rows, "alone", 1).logits
        companies = {"all": list(range(len(rows))), "moved": list(range(len(rows)))[::-1],
                     "half": list(range(0, len(rows), 2)), "few": list(range(5))}
        changes = {}
        for name, chosen in companies.items():
            mode = "whole" if one.key in PRECISIONS else fastest_mode(one, rows, one.modes)
            logits = one.run([rows[row] for row in chosen], mode, 1).logits
            changes[name] = largest_change(logits, alone[chosen])
        emit("engine.invariance", max(changes.values()), "logit", model=model, texts=texts,
             contender=one.key, name=one.name,
             **{f"of_{name}": _short(value) for name, value in changes.items()})
        lines.append([one.name, *changes.values()])
    _print(render(f"\n{model}, {texts}: max |Δlogit| between a text alone and in company",
                  ["contender", "all", "moved", "half", "few"], lines))


def _emit(timings: Sequence[Timing], **facts: object) -> None:
    for one in timings:
        emit("engine.ms", one.median_ms, "ms", one.runs, best_ms=round(one.best_ms, 4),
             wall_ms=round(one.wall_ms, 4), contender=one.contender.key, name=one.contender.name,
             mode=one.mode, agreement=agreement(one.logits, timings[0].logits),
             max_change=_short(largest_change(one.logits, timings[0].logits)), **facts)


def _emit_ratios(timings: Sequence[Timing], **facts: object) -> dict[str, float]:
    """Emits the ratios; title -> median."""
    found = {}
    for mine, other, kind in comparisons(timings):
        runs = ratios(mine, other)
        emit("engine.ratio", median(runs), "x", runs, ours=mine.contender.key,
             against=other.contender.key, mode=other.mode, kind=kind, **facts)
        key = other.contender.key
        peer = "our" if key in PRECISIONS else key.split("-")[0]
        title = f"{mine.contender.key}: {peer} {precision_of(key)}"
        found[title if kind == "best" else f"{title}, {kind}"] = median(runs)
    return found


def _short(value: float) -> float:
    return float(f"{value:.3g}")


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
