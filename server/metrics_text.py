"""The pages of all places as Prometheus text 0.0.4: sums of counters, histograms and gauges."""

import os
import platform

from server.metrics import GONE, HEADER_SLOTS, PID, STATE, Page, Registry
from server.metrics_schema import MAX_LABELS, SCHEMAS, Metric
from server.version import VERSION

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def render(registry: Registry, card: dict | None) -> bytes:
    """The whole server's metrics; `card` names the labels, None before the model is there.

    Samples that were never touched are left out, but each family has at least its first.
    """
    lines: list[str] = []
    for role, schema in SCHEMAS.items():
        pages = [page for page in registry.pages() if page.role == role]
        at = HEADER_SLOTS
        for metric in schema:
            _family(lines, metric, pages, at, card)
            at += metric.width * len(metric.samples())
    _memory(lines, registry)
    lines += ["# HELP firebrick_build_info What runs.", "# TYPE firebrick_build_info gauge",
              f'firebrick_build_info{{version="{VERSION}",'
              f'python="{platform.python_version()}",'
              f'model_version="{card["version"] if card else ""}"}} 1']
    return ("\n".join(lines) + "\n").encode()


def _family(lines: list[str], metric: Metric, pages: list[Page], at: int,
            card: dict | None) -> None:
    name = f"firebrick_{metric.name}"
    kind = "gauge" if metric.kind == "peak" else metric.kind
    lines += [f"# HELP {name} {metric.help}", f"# TYPE {name} {kind}"]
    first = True
    for values in metric.samples():
        slots = [_total(metric, pages, at + offset) for offset in range(metric.width)]
        at += metric.width
        if any(slots) or first or (metric.name == "predictions_total" and card
                                   and values[0] < len(card["labels"])):
            labels = [f'{label}="{_escape(_shown(metric, value, card))}"'
                      for label, value in zip(metric.labels, values)]
            if metric.kind == "histogram":
                _histogram(lines, name, metric, labels, slots)
            else:
                lines.append(f"{name}{_braces(labels)} {slots[0]:.10g}")
        first = False


def _total(metric: Metric, pages: list[Page], slot: int) -> float:
    values = [page.get(slot) for page in pages]
    return max(values, default=0.0) if metric.kind == "peak" else sum(values)


def _histogram(lines: list[str], name: str, metric: Metric, labels: list[str],
               slots: list[float]) -> None:
    below = 0.0
    for limit, count in zip((*map("{:g}".format, metric.limits), "+Inf"), slots):
        below += count
        bound = [*labels, f'le="{limit}"']
        lines.append(f"{name}_bucket{_braces(bound)} {below:.10g}")
    lines.append(f"{name}_sum{_braces(labels)} {slots[-1]:.10g}")
    lines.append(f"{name}_count{_braces(labels)} {below:.10g}")


def _memory(lines: list[str], registry: Registry) -> None:
    name = "firebrick_process_resident_memory_bytes"
    lines += [f"# HELP {name} Resident memory of a process, shared pages included.",
              f"# TYPE {name} gauge"]
    for page in registry.pages():
        if page.get(STATE) == GONE:
            continue
        try:
            with open(f"/proc/{int(page.get(PID))}/statm", "rb") as file:
                resident = int(file.read().split()[1]) * PAGE_BYTES
        except OSError:
            continue
        lines.append(f'{name}{{role="{page.role}",index="{page.index}"}} {resident}')


def _shown(metric: Metric, value: object, card: dict | None) -> str:
    if metric.name != "predictions_total":
        return str(value)
    labels = card["labels"] if card else ()
    if value == MAX_LABELS - 1 and len(labels) > MAX_LABELS:
        return "(others)"
    return labels[value] if value < len(labels) else str(value)


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _braces(labels: list[str]) -> str:
    return "{" + ",".join(labels) + "}" if labels else ""
