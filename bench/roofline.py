"""What the machine's products could do, what the programs reach of it, and where the rest goes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from torch.profiler import ProfilerActivity, profile

from bench.figures import emit, median
from bench.gemm import KERNELS, Ready, Unoffered
from bench.ours import Ours
from bench.rounds import burst_runs
from bench.table import render

PEAK_ROWS = (64, 256, 1024)
PEAK_TIMES = 3
PROFILES = 3  # whose median is taken: the profiler's clock counts neighbours too
# Operators by what they are for; the first word found in an operator's name decides.
PARTS = (("softmax", ("softmax",)),
         ("attention", ("scaled_dot_product", "bmm")),
         ("layernorm", ("layer_norm",)),
         ("GELU", ("gelu", "silu", "relu", "tanh")),
         ("products", ("linear", "addmm", "aten::mm", "packed_mm", "onednn", "mkldnn")),
         ("quantise", ("amax", "amin", "quantize", "round", "clamp", "div", "reciprocal", "xor",
                       "maximum", "to_copy", "mul", "int_repr", "abs")),
         ("moves", ("copy", "index", "cat", "embedding", "gather", "contiguous", "clone")))
COLUMNS = ("products", "attention", "softmax", "layernorm", "GELU", "quantise", "moves", "rest")


def part_of(operator: str) -> str:
    """The part of a program that an operator belongs to, `rest` for what has no name here."""
    return next((part for part, words in PARTS if any(word in operator for word in words)), "rest")


def operations(settings: dict[str, Any], lengths: Sequence[int]) -> int:
    """Additions and multiplications of the products that logits need: the last layer's queries and
    what follows its attention for one token a text. Attention, pooler and classifier not counted.

    Example: one layer, hidden 2, intermediate 8, one text of 3 tokens: 2·(3·8 + 4 + 4 + 32) = 128.
    """
    hidden, inner = settings["hidden_size"], settings["intermediate"]
    whole = 4 * hidden * hidden + 2 * hidden * inner
    last = 2 * hidden * hidden
    return 2 * (sum(lengths) * ((settings["layers"] - 1) * whole + last)
                + len(lengths) * (whole - last))


def layer_products(settings: dict[str, Any], rows: int) -> list[tuple[int, int, int]]:
    """(M, N, K) of a layer's products for so many tokens."""
    hidden, inner = settings["hidden_size"], settings["intermediate"]
    return [(rows, 3 * hidden, hidden), (rows, hidden, hidden), (rows, inner, hidden),
            (rows, hidden, inner)]


def measure_peaks(model: str, settings: dict[str, Any]) -> dict[str, Ready]:
    """Emits GOP/s of every kernel for several numbers of rows; precision -> the fastest one, ready
    to be timed again: machines drift, so each program is held against a peak of its own minute."""
    best: dict[str, tuple[float, Ready]] = {}
    lines = []
    for kernel, (precision, _) in KERNELS.items():
        cells: list[object] = [kernel]
        for rows in PEAK_ROWS:
            try:
                ready = Ready(kernel, layer_products(settings, rows))
            except Unoffered:
                cells.append(None)
                continue
            found = [ready.rate() for _ in range(PEAK_TIMES)]
            cells.append(median(found))
            emit("engine.peak", median(found), "GOP/s", found, model=model, kernel=kernel,
                 precision=precision, rows=rows)
            if precision not in best or median(found) > best[precision][0]:
                best[precision] = median(found), ready
        lines.append(cells)
    print(render(f"\n{model}: GOP/s of a layer's products, by tokens in the call",
                 ["kernel", *(str(rows) for rows in PEAK_ROWS)], lines), file=sys.stderr)
    return {precision: ready for precision, (_, ready) in best.items()}


def measure_roofline(model: str, settings: dict[str, Any], programs: Sequence[Ours],
                     batches: dict[str, Sequence[Any]], rounds: int) -> None:
    """Emits and prints peaks, then for each program and batch (title -> rows of token ids) the
    fraction of the peak of its precision that is reached, and the share of each part."""
    peaks = measure_peaks(model, settings)
    lines = []
    for title, rows in batches.items():
        needed = operations(settings, [len(row) for row in rows])
        for program in programs:
            program.run(rows, "whole", 1)
            repeats = burst_runs(program.run(rows, "whole", 1).cpu_ms[0])
            rates, fractions = [], []
            for _ in range(rounds):
                peak = peaks[program.key].rate()
                rates.append(needed / min(program.run(rows, "whole", repeats).cpu_ms) / 1e6)
                fractions.append(rates[-1] / peak)
            shares = measure_shares(program, rows, repeats)
            emit("engine.fraction", median(fractions), "of peak", fractions, model=model,
                 batch=title, precision=program.key, name=program.name,
                 gop_per_s=round(median(rates), 1),
                 shares={part: round(share, 4) for part, share in shares.items()})
            lines.append([title, program.key, median(rates), median(fractions),
                          *(100 * shares[part] for part in COLUMNS)])
    print(render(f"\n{model}: GOP/s of the products that are needed over the whole program's time, "
                 "and what fraction that is of the best\nkernel's in the same minute; then % of "
                 "time by part (softmax is in attention where one kernel does both,\nquantising in "
                 "products likewise)",
                 ["batch", "program", "GOP/s", "fraction", *COLUMNS], lines), file=sys.stderr)


def measure_shares(program: Ours, rows: Sequence[Any], repeats: int) -> dict[str, float]:
    """Part -> share of the program's time, by torch's profiler. `rest` has what no operator of
    torch claims: numpy, the interpreters, and the profiler's own cost where operators are short."""
    found = [_profiled(program, rows, repeats) for _ in range(PROFILES)]
    middle = {part: median([shares[part] for shares in found]) for part in COLUMNS}
    return {part: share / sum(middle.values()) for part, share in middle.items()}


def _profiled(program: Ours, rows: Sequence[Any], repeats: int) -> dict[str, float]:
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        burst = program.run(rows, "whole", repeats)
    spent_us = dict.fromkeys(COLUMNS, 0.0)
    for event in seen.key_averages():
        spent_us[part_of(event.key)] += event.self_cpu_time_total
    whole_us = max(sum(burst.wall_ms) * 1e3, sum(spent_us.values()))
    spent_us["rest"] += whole_us - sum(spent_us.values())
    return {part: spent / whole_us for part, spent in spent_us.items()}
