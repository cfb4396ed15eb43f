"""The report of an open-loop run: outcomes in, figures and a table, JSON or Prometheus out (pure).

Latency is counted from the planned send time to the last byte of the last answer, so a stall of the
server, or of the client, is in the latencies of all that was planned meanwhile.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bench.figures import percentile
from bench.table import render

PERCENTS = (50, 90, 99, 99.9, 100)
LATE_S = 0.005      # sent so much after the plan counts as late
LATE_SHARE = 0.01   # of the requests; more, and the client was the limit
BUSY_SHARE = 0.9    # of a core used by the client; more, and it was the limit


class Outcome(NamedTuple):      # every answer makes one, and a frozen dataclass takes 3 µs
    """One planned request; times in seconds of one clock. `status` is that of the last answer, 0
    where there was none, and `fault` then says why."""

    planned: float
    sent: float             # the first time; nan if never
    ended: float
    status: int
    high: bool = False
    refused: int = 0        # answers with Retry-After that were obeyed before the last one
    bucket: str = ""        # X-Bucket
    server_ms: float = float("nan")  # X-Latency-ms
    fault: str = ""
    head: bytes = b""       # of the last answer, where the client keeps heads

    @property
    def is_good(self) -> bool:
        return 200 <= self.status <= 299

    @property
    def latency_ms(self) -> float:
        return (self.ended - self.planned) * 1e3


@dataclass(frozen=True)
class Run:
    """All outcomes of a run, and what it cost the client."""

    outcomes: Sequence[Outcome]
    rps: float              # asked for
    duration_s: float       # asked for
    cpu_share: float        # of one core, used by the client while it ran
    starved: int = 0        # requests that waited because all connections were busy
    connections: int = 0    # open at most
    deadline_ms: int | None = None
    took_s: float = 0.0     # until the last answer, which is later than asked where a queue grew


def is_within(outcome: Outcome, run: Run) -> bool:
    """Whether the request got a 2xx, and within its deadline where it had one."""
    return outcome.is_good and (run.deadline_ms is None or outcome.latency_ms <= run.deadline_ms)


def client_limits(run: Run) -> list[str]:
    """Why the figures may tell of the client rather than of the server; none is best."""
    reasons = []
    late = sum(not one.sent - one.planned <= LATE_S for one in run.outcomes)
    if run.starved:
        reasons.append(f"{run.starved} requests waited for a connection: raise --connections above "
                       f"{run.connections}")
    elif late > LATE_SHARE * len(run.outcomes):
        reasons.append(f"{late} of {len(run.outcomes)} requests were sent more than "
                       f"{LATE_S * 1e3:g} ms late")
    if run.cpu_share > BUSY_SHARE:
        reasons.append(f"the client used {run.cpu_share:.0%} of a core: spread the load over "
                       "several clients")
    return reasons


def summary(run: Run) -> dict[str, object]:
    """Every figure of the report; latencies in milliseconds. Goodput is by the time until the last
    answer, so that a queue which is still worked off afterwards does not count as throughput."""
    outcomes = run.outcomes
    answered = Counter(str(one.status) for one in outcomes if one.status)
    good = sum(is_within(one, run) for one in outcomes)
    retried = [one for one in outcomes if one.refused]
    return {
        "asked_rps": run.rps, "duration_s": run.duration_s, "planned": len(outcomes),
        "took_s": round(run.took_s, 3),
        "goodput_rps": good / max(run.duration_s, run.took_s),
        "statuses": dict(sorted(answered.items())),
        "faults": dict(sorted(Counter(one.fault for one in outcomes if not one.status).items())),
        "deadline_ms": run.deadline_ms, "in_time": good,
        "refusals_obeyed": sum(one.refused for one in retried),
        "retried": len(retried), "retried_ok": sum(one.is_good for one in retried),
        "latency_ms": _latencies(outcomes, lambda one: "all"),
        "latency_ms_by_priority": _latencies(outcomes, lambda one: "high" if one.high else "low"),
        "latency_ms_by_bucket": _latencies(outcomes, lambda one: one.bucket),
        "server_ms": _percentiles([one.server_ms for one in outcomes
                                   if one.is_good and one.server_ms == one.server_ms]),
        "send_lag_ms": _percentiles([(one.sent - one.planned) * 1e3 for one in outcomes
                                     if one.sent == one.sent]),
        "connections": run.connections, "client_cpu_share": run.cpu_share,
        "client_limits": client_limits(run),
    }


def _percentiles(values: Sequence[float]) -> dict[str, float | None]:
    found = {f"p{percent:g}": percentile(values, percent) for percent in PERCENTS}
    return {"count": len(values), **{name: round(value, 4) if values else None
                                     for name, value in found.items()}}


def _latencies(outcomes: Iterable[Outcome],
               group: Callable[[Outcome], str]) -> dict[str, dict[str, float | None]]:
    """Percentiles by group of what was answered 2xx; a refusal is quick and would flatter them."""
    groups: dict[str, list[float]] = {}
    for one in outcomes:
        if one.is_good and group(one):
            groups.setdefault(group(one), []).append(one.latency_ms)
    return {name: _percentiles(groups[name])
            for name in sorted(groups, key=lambda name: (len(name), name))}


def as_json(run: Run) -> str:
    """One line."""
    return json.dumps(summary(run), ensure_ascii=False) + "\n"


def as_table(run: Run) -> str:
    """For people."""
    facts = summary(run)
    rows = [(name, *values.values()) for name, values in _named(facts)]
    text = render("latency from the planned send time, ms, of 2xx answers",
                  ("", "count", *(f"p{percent:g}" for percent in PERCENTS)), rows)
    statuses = ", ".join(f"{code}: {count}" for code, count in facts["statuses"].items()) or "none"
    faults = ", ".join(f"{why}: {count}" for why, count in facts["faults"].items()) or "none"
    lines = [f"planned {facts['planned']} requests at {run.rps:g}/s for {run.duration_s:g} s",
             f"goodput {facts['goodput_rps']:.1f}/s",
             f"answers by status: {statuses}; without an answer: {faults}"]
    if run.deadline_ms is not None:
        lines.append(f"within {run.deadline_ms} ms: {facts['in_time']}")
    if facts["retried"]:
        lines.append(f"sent again after Retry-After: {facts['retried']} requests, "
                     f"{facts['refusals_obeyed']} times; {facts['retried_ok']} with success")
    lines += [f"the client was the limit: {reason}" for reason in facts["client_limits"]]
    return text + "\n".join(lines) + "\n"


def _named(facts: Mapping[str, object]) -> Iterable[tuple[str, Mapping[str, object]]]:
    yield from facts["latency_ms"].items()
    yield from facts["latency_ms_by_priority"].items()
    for bucket, values in facts["latency_ms_by_bucket"].items():
        yield f"bucket {bucket}", values
    yield "X-Latency-ms", facts["server_ms"]
    yield "sent after plan", facts["send_lag_ms"]


def as_prometheus(run: Run) -> str:
    """Text format 0.0.4, as for a pushed or a scraped file."""
    facts = summary(run)
    lines: list[str] = []

    def add(name: str, kind: str, samples: Iterable[tuple[str, float]]) -> None:
        lines.append(f"# TYPE firebrick_load_{name} {kind}")
        lines.extend(f"firebrick_load_{name}{labels} {value:.9g}" for labels, value in samples)

    add("asked_rps", "gauge", [("", run.rps)])
    add("goodput_rps", "gauge", [("", facts["goodput_rps"])])
    add("answers", "gauge", [(f'{{code="{code}"}}', count)
                             for code, count in facts["statuses"].items()])
    add("unanswered", "gauge", [("", sum(facts["faults"].values()))])
    add("retried", "gauge", [("", facts["retried"])])
    add("retried_ok", "gauge", [("", facts["retried_ok"])])
    add("client_was_limit", "gauge", [("", bool(facts["client_limits"]))])
    add("client_cpu_share", "gauge", [("", run.cpu_share)])
    samples = [(f'{{{label}="{name}",percentile="{percent[1:]}"}}', value / 1e3)
               for label, field in (("priority", "latency_ms_by_priority"),
                                    ("bucket", "latency_ms_by_bucket"))
               for name, values in facts[field].items()
               for percent, value in values.items() if percent != "count"]
    samples += [(f'{{percentile="{percent[1:]}"}}', value / 1e3)
                for values in facts["latency_ms"].values()
                for percent, value in values.items() if percent != "count"]
    add("latency_seconds", "gauge", samples)
    return "\n".join(lines) + "\n"
