"""The Prometheus text: format, sums over pages, and one view of a histogram that is written."""

import os
import re
import signal
import time

import pytest

from server.metrics import UP, Registry
from server.metrics_text import CONTENT_TYPE, render

CARD = {"labels": ["ham", "spam"], "version": "1f3a9c02"}
SAMPLE = re.compile(r'^([a-zA-Z_:][a-zA-Z0-9_:]*)'
                    r'(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (\S+)$')


def read(text):
    """{(name, labels): value}; checks what the format demands of each line and family."""
    samples, families = {}, {}
    assert text.endswith(b"\n")
    for line in text.decode().splitlines():
        if line.startswith("# "):
            _, keyword, name, rest = line.split(" ", 3)
            assert keyword in ("HELP", "TYPE") and rest
            assert keyword not in families.setdefault(name, {}), f"{name} has two {keyword}"
            families[name][keyword] = rest
            continue
        name, labels, value = SAMPLE.match(line).groups()
        assert (name, labels) not in samples, f"{line} twice"
        samples[name, labels or ""] = float(value)
        family = name if name in families else re.sub("_(bucket|sum|count)$", "", name)
        assert set(families[family]) == {"HELP", "TYPE"}, f"{name} before its TYPE"
        if family != name:
            assert families[family]["TYPE"] == "histogram"
    return samples


@pytest.fixture
def registry():
    return Registry(fronts=2, engines=2)


def test_metrics_text_of_an_idle_server_names_every_family(registry):
    samples = read(render(registry, None, 0))
    names = {name for name, _ in samples}
    for name in ("requests_total", "request_seconds_count", "tokenize_seconds_sum",
                 "queue_seconds_bucket", "infer_seconds_count", "batch_size_count",
                 "tokens_total", "predictions_total", "refused_total", "recomputed_total",
                 "connections", "inflight", "backlog_seconds", "engine_up", "restarts_total",
                 "front_turn_seconds_max", "build_info"):
        assert f"firebrick_{name}" in names
    assert CONTENT_TYPE.startswith("text/plain; version=0.0.4")


def test_metrics_text_sums_all_pages_and_takes_the_largest_peak(registry):
    for index, generation in ((0, 1), (1, 1), (0, 2)):
        page = registry.page("front", index, generation)
        page.counter("requests_total", route="/infer", code=200).add(10)
        page.gauge("connections").set(3)
        page.gauge("front_turn_seconds_max").set(0.25 * (index + generation))
    samples = read(render(registry, CARD, 0))
    assert samples["firebrick_requests_total", 'route="/infer",code="200"'] == 30
    assert samples["firebrick_connections", ""] == 9
    assert samples["firebrick_front_turn_seconds_max", ""] == 0.5


def test_metrics_text_histogram_is_cumulative_and_its_count_is_inf(registry):
    histogram = registry.page("front", 0).histogram("request_seconds", bucket=64)
    for value in (0.0004, 0.003, 0.003, 70.0):
        histogram.observe(value)
    samples = read(render(registry, CARD, 0))
    buckets = [value for (name, labels), value in samples.items()
               if name == "firebrick_request_seconds_bucket" and 'bucket="64"' in labels]
    assert buckets == sorted(buckets) and buckets[0] == 1 and buckets[-2:] == [3, 4]
    assert samples["firebrick_request_seconds_bucket", 'bucket="64",le="+Inf"'] == 4
    assert samples["firebrick_request_seconds_count", 'bucket="64"'] == 4
    assert samples["firebrick_request_seconds_sum", 'bucket="64"'] == pytest.approx(70.0064)


def test_metrics_text_count_equals_inf_while_it_is_written(registry):
    child = os.fork()
    if not child:
        histogram = registry.page("front", 1).histogram("request_seconds", bucket=16)
        while True:
            histogram.observe(0.001)
    try:
        last, deadline = 0.0, time.monotonic() + 1.0
        while time.monotonic() < deadline:
            samples = read(render(registry, CARD, 0))
            count = samples.get(("firebrick_request_seconds_count", 'bucket="16"'), 0.0)
            assert count == samples.get(
                ("firebrick_request_seconds_bucket", 'bucket="16",le="+Inf"'), 0.0)
            assert count >= last
            last = count
        assert last > 0
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_metrics_text_labels_of_the_model_are_escaped(registry):
    page = registry.page("front", 0)
    page.counter("predictions_total", label=1).add(2)
    text = render(registry, {"labels": ["ham", 'sp"a\\m\n'], "version": "x"}, 0)
    samples = read(text)
    assert samples["firebrick_predictions_total", r'label="sp\"a\\m\n"'] == 2
    assert samples["firebrick_predictions_total", 'label="ham"'] == 0


def test_metrics_text_labels_beyond_the_page_are_counted_together(registry):
    registry.page("front", 0).counter("predictions_total", label=1023).add(5)
    samples = read(render(registry, {"labels": [f"L{n}" for n in range(3000)], "version": "x"}, 0))
    assert samples["firebrick_predictions_total", 'label="(others)"'] == 5


def test_metrics_text_dead_engine_is_shown_as_0(registry):
    registry.page("dispatcher", 0).gauge("engine_up", engine="cpu-1").set(1)
    samples = read(render(registry, CARD, 0))
    assert [samples["firebrick_engine_up", f'engine="cpu-{index}"'] for index in (0, 1)] == [0, 1]
    assert ("firebrick_engine_up", 'engine="cpu-2"') not in samples


def test_metrics_text_large_counters_keep_their_last_digit(registry):
    counter = registry.page("dispatcher", 0).counter("tokens_total", kind="real")
    counter.add(123_456_789_012_345)
    assert b'firebrick_tokens_total{kind="real"} 123456789012345\n' in render(registry, CARD, 0)
    counter.add()
    assert b'firebrick_tokens_total{kind="real"} 123456789012346\n' in render(registry, CARD, 0)


def test_metrics_text_memory_is_of_those_who_live(registry):
    page = registry.page("engine", 1)
    page.begin(os.getpid(), 1, 1, 0.0)
    page.set_state(UP)
    key = "firebrick_process_resident_memory_bytes", 'role="engine",index="1"'
    assert read(render(registry, CARD, 0))[key] > 1 << 20
    page.end()
    assert key not in read(render(registry, CARD, 0))


def test_metrics_text_predictions_are_those_of_the_model_that_is_served(registry):
    registry.page("front", 0, 1).counter("predictions_total", label=1).add(7)
    registry.page("front", 0, 2).counter("predictions_total", label=1).add(2)
    key = "firebrick_predictions_total", 'label="spam"'
    assert read(render(registry, CARD, 1))[key] == 7
    assert read(render(registry, CARD, 2))[key] == 2
    registry.begin_model(3)
    assert read(render(registry, CARD, 3))[key] == 0 and read(render(registry, CARD, 2))[key] == 2


def test_metrics_text_two_generations_in_a_place_are_one_sample(registry):
    for generation in (1, 2):
        page = registry.page("front", 0, generation)
        page.begin(os.getpid(), generation, generation, 0.0)
        page.set_state(UP)
    both = read(render(registry, CARD, 1))
    registry.page("front", 0, 2).end()
    key = "firebrick_process_resident_memory_bytes", 'role="front",index="0"'
    assert both[key] > 1.5 * read(render(registry, CARD, 1))[key]
