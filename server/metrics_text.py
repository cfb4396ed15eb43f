"""The pages of all places as Prometheus text 0.0.4: sums of counters, histograms and gauges."""

import os
import platform
from collections.abc import Iterator

import numpy as np

from server.metrics import GONE, HEADER_SLOTS, PID, STATE, Page, Registry
from server.metrics_schema import MAX_LABELS, SCHEMAS, Metric
from server.version import VERSION

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# A counter with no more samples than this shows all of them, so that a rate sees the first step
# away from 0; of others only those that were ever touched.
FEW_SAMPLES = 16


def render(registry: Registry, card: dict | None, generation: int) -> bytes:
    """The whole server's metrics; `card` names the labels of that generation, None before the
    model is there. Labels of another one mean nothing to it, so its predictions are left out.

    Costs milliseconds by what is shown, not by what could be: a front's turn waits for it.
    """
    lines: list[str] = []
    families: dict[str, tuple[Metric, np.ndarray]] = {}
    for role, schema in SCHEMAS.items():
        pages = _values(registry.pages(), role)
        own = _values(registry.pages_of(generation), role)
        sums, peaks, at = pages.sum(0), pages.max(0), 0
        for metric in schema:
            end = at + metric.width * metric.size
            values = (peaks if metric.kind == "peak" else sums)[at:end]
            if metric.name == "predictions_total":
                values = own[:, at:end].sum(0)
            values = values.reshape(metric.size, metric.width)
            if metric.name in families:         # two roles count it
                values = values + families[metric.name][1]
            families[metric.name] = metric, values
            at = end
    for metric, values in families.values():
        _family(lines, metric, values, _shown_always(metric, registry, card), card)
    _memory(lines, registry)
    lines += ["# HELP firebrick_build_info What runs.", "# TYPE firebrick_build_info gauge",
              f'firebrick_build_info{{version="{VERSION}",'
              f'python="{platform.python_version()}",'
              f'model_version="{card["version"] if card else ""}"}} 1']
    return ("\n".join(lines) + "\n").encode()


def _values(pages: Iterator[Page], role: str) -> np.ndarray:
    """float64 [pages of the role, their slots]."""
    return np.array([page.values[HEADER_SLOTS:] for page in pages if page.role == role])


def _shown_always(metric: Metric, registry: Registry, card: dict | None) -> int:
    """How many samples of a family, the first ones, are shown though they are 0."""
    if metric.name == "predictions_total":
        return min(len(card["labels"]), metric.size) if card else 1
    if metric.name == "engine_up":
        return registry.engines
    return metric.size if metric.kind == "counter" and metric.size <= FEW_SAMPLES else 1


def _family(lines: list[str], metric: Metric, samples: np.ndarray, always: int,
            card: dict | None) -> None:
    """`samples`: float64 [samples of the family, slots of one]."""
    name = f"firebrick_{metric.name}"
    kind = "gauge" if metric.kind == "peak" else metric.kind
    lines += [f"# HELP {name} {metric.help}", f"# TYPE {name} {kind}"]
    is_shown = samples.any(axis=1)
    is_shown[:always] = True
    for number in np.flatnonzero(is_shown):
        labels = [f'{label}="{_escape(_shown(metric, value, card))}"'
                  for label, value in zip(metric.labels, metric.sample(int(number)))]
        values = samples[number].tolist()
        if metric.kind == "histogram":
            _histogram(lines, name, metric, labels, values)
        else:
            lines.append(f"{name}{_braces(labels)} {_number(values[0])}")


def _histogram(lines: list[str], name: str, metric: Metric, labels: list[str],
               slots: list[float]) -> None:
    below = 0.0
    for limit, count in zip((*map("{:g}".format, metric.limits), "+Inf"), slots):
        below += count
        bound = [*labels, f'le="{limit}"']
        lines.append(f"{name}_bucket{_braces(bound)} {_number(below)}")
    lines.append(f"{name}_sum{_braces(labels)} {_number(slots[-1])}")
    lines.append(f"{name}_count{_braces(labels)} {_number(below)}")


def _memory(lines: list[str], registry: Registry) -> None:
    name = "firebrick_process_resident_memory_bytes"
    lines += [f"# HELP {name} Resident memory of a process, shared pages included.",
              f"# TYPE {name} gauge"]
    sizes: dict[tuple[str, int], int] = {}      # two generations have the same places
    for page in registry.pages():
        if page.get(STATE) == GONE:
            continue
        try:
            with open(f"/proc/{int(page.get(PID))}/statm", "rb") as file:
                resident = int(file.read().split()[1]) * PAGE_BYTES
        except OSError:
            continue
        place = page.role, page.index
        sizes[place] = sizes.get(place, 0) + resident
    lines += [f'{name}{{role="{role}",index="{index}"}} {size}'
              for (role, index), size in sizes.items()]


def _shown(metric: Metric, value: object, card: dict | None) -> str:
    if metric.name != "predictions_total":
        return str(value)
    labels = card["labels"] if card else ()
    if value == MAX_LABELS - 1 and len(labels) > MAX_LABELS:
        return "(others)"
    return labels[value] if value < len(labels) else str(value)


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    """Whole numbers with all their digits: a counter that sticks at 1.234567891e+10 has no rate."""
    return str(int(value)) if value.is_integer() else repr(value)


def _braces(labels: list[str]) -> str:
    return "{" + ",".join(labels) + "}" if labels else ""
