"""What a simulated schedule came to: figures of a played trace, and tables of them (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.figures import percentile
from bench.schedule_play import Played
from bench.table import render


@dataclass(frozen=True)
class Summary:
    """Latencies in ms by class, of what was answered and not refused; `padding` is a share of the
    tokens computed, `refused` of the requests, `goodput_rps` counts until the last answer."""

    requests: int
    goodput_rps: float
    refused: float
    p50_ms: float
    p99_ms: float
    by_class: Mapping[str, tuple[int, float, float]]
    padding: float
    batch_texts: float
    longest_batch_ms: float
    tries_most: int


def summarise(played: Played) -> Summary:
    """The figures of one played trace; a class is `kind`, with "high" before it for such."""
    good = [one for one in played.outcomes if one.is_good]
    classes: dict[str, list[float]] = {}
    for one in good:
        name = ("high " if one.asked.high else "") + one.asked.kind
        classes.setdefault(name, []).append(one.latency_ms)
    latencies = [one.latency_ms for one in good]
    computed = sum(batch.computed for batch in played.batches)
    return Summary(
        requests=len(played.outcomes),
        goodput_rps=len(good) / max(played.took_s, played.trace.duration_s),
        refused=1 - len(good) / max(len(played.outcomes), 1),
        p50_ms=percentile(latencies, 50), p99_ms=percentile(latencies, 99),
        by_class={name: (len(found), percentile(found, 50), percentile(found, 99))
                  for name, found in sorted(classes.items())},
        padding=1 - sum(batch.tokens for batch in played.batches) / max(computed, 1),
        batch_texts=sum(batch.texts for batch in played.batches) / max(len(played.batches), 1),
        longest_batch_ms=max((batch.ms for batch in played.batches), default=0.0),
        tries_most=max((one.tries for one in played.outcomes), default=0))


def table(title: str, rows: Sequence[tuple[str, Summary]]) -> str:
    """A line for each order of work, with one more for each class of requests."""
    lines: list[tuple[object, ...]] = []
    for name, one in rows:
        lines.append((name, one.requests, one.goodput_rps, 100 * one.refused, one.p50_ms,
                      one.p99_ms, 100 * one.padding, one.batch_texts, one.longest_batch_ms))
        if len(one.by_class) > 1:
            lines += [(f"  {kind}", count, None, None, p50, p99, None, None, None)
                      for kind, (count, p50, p99) in one.by_class.items()]
    return render(title, ("", "requests", "good/s", "refused %", "p50 ms", "p99 ms", "padding %",
                          "texts a batch", "longest ms"), lines)
