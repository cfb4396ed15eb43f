"""Pages of counters: places, successors, and what another process sees."""

import os

import pytest

from server.metrics import (ALIVE_UNTIL, CPU_UNTIL, GONE, HEADER_SLOTS, LOOP_LEASE_S, STATE,
                            TURN_AT, UP, WORKED, Registry)
from server.metrics_schema import SCHEMAS, SECONDS, page_slots, slots


@pytest.fixture
def registry():
    return Registry(fronts=2, engines=3)


def begun(page, incarnation=1):
    page.begin(os.getpid(), incarnation, 1, 100.0)
    return page


@pytest.mark.parametrize("role", SCHEMAS)
def test_metrics_samples_of_a_role_never_overlap(role):
    taken, places = [], slots(role)
    for metric in SCHEMAS[role]:
        for number, sample in enumerate(metric.samples()):
            assert metric.sample(number) == sample
            first = places[(metric.name, *sample)]
            taken += range(first, first + metric.width)
        assert metric.size == len(metric.samples())
    assert sorted(taken) == list(range(page_slots(role)))


def test_metrics_pages_of_places_and_generations_are_apart(registry):
    pages = [registry.page("front", index, generation)
             for index in (0, 1) for generation in (1, 2)]
    for number, page in enumerate(pages):
        page.counter("requests_total", route="/infer", code=200).add(number + 1)
    values = [page.get(HEADER_SLOTS + slots("front")["requests_total", "/infer", 200])
              for page in pages]
    assert values == [1, 2, 3, 4]
    assert registry.page("front", 0, 3) is registry.page("front", 0, 1)


def test_metrics_successor_carries_counters_on_and_zeroes_gauges(registry):
    page = begun(registry.page("front", 0))
    page.counter("requests_total", route="/infer", code=200).add(7)
    page.gauge("connections").set(5)
    page.gauge("front_turn_seconds_max").raise_to(0.5)
    page.histogram("request_seconds", bucket=64).observe(0.2)
    page.end()
    begun(page, 2)
    after = [page.get(HEADER_SLOTS + slots("front")[key]) for key in (
        ("requests_total", "/infer", 200), ("connections",), ("front_turn_seconds_max",))]
    assert after == [7, 0, 0]
    at = HEADER_SLOTS + slots("front")["request_seconds", 64]
    assert page.get(at + len(SECONDS) + 1) == 0.2, "the sum"


def test_metrics_gauges_of_the_dead_are_0_before_a_successor_comes(registry):
    page = begun(registry.page("dispatcher", 0))
    for index in range(3):
        page.gauge("engine_up", engine=f"cpu-{index}").set(1)
    page.end()
    first = HEADER_SLOTS + slots("dispatcher")["engine_up", "cpu-0"]
    assert [page.get(first + index) for index in range(3)] == [0, 0, 0]


def test_metrics_histogram_limit_is_inclusive(registry):
    page = registry.page("front", 0)
    histogram = page.histogram("tokenize_seconds")
    for value in (0.0, SECONDS[0], SECONDS[0] + 1e-9, SECONDS[-1], SECONDS[-1] + 1):
        histogram.observe(value)
    at = HEADER_SLOTS + slots("front")["tokenize_seconds",]
    counts = [page.get(at + number) for number in range(len(SECONDS) + 1)]
    assert counts[:2] == [2, 1] and counts[-2:] == [1, 1] and sum(counts) == 5


def test_metrics_peak_only_rises(registry):
    peak = registry.page("front", 0).gauge("front_turn_seconds_max")
    for value in (0.1, 0.3, 0.2):
        peak.raise_to(value)
    at = HEADER_SLOTS + slots("front")["front_turn_seconds_max",]
    assert registry.page("front", 0).get(at) == 0.3


def test_metrics_unknown_name_or_label_is_an_error(registry):
    with pytest.raises(StopIteration):
        registry.page("front", 0).counter("nonsense_total")
    with pytest.raises(KeyError):
        registry.page("front", 0).counter("requests_total", route="/infer", code=299)


def test_metrics_lease_follows_turns_and_promises(registry):
    page = begun(registry.page("engine", 2))
    assert page.get(ALIVE_UNTIL) == 100.0 + LOOP_LEASE_S
    page.turn(101.0)
    assert (page.get(TURN_AT), page.get(ALIVE_UNTIL)) == (101.0, 101.0 + LOOP_LEASE_S)
    page.promise(500.0, 12.0)
    assert (page.get(ALIVE_UNTIL), page.get(CPU_UNTIL)) == (500.0, 12.0)
    page.turn(102.0)
    assert (page.get(ALIVE_UNTIL), page.get(CPU_UNTIL)) == (102.0 + LOOP_LEASE_S, 0.0)
    page.set_worked()
    assert page.get(WORKED)
    begun(page, 2)
    assert not page.get(WORKED)


def test_metrics_processes_lists_who_is_there(registry):
    begun(registry.page("engine", 1), 9).set_state(UP)
    begun(registry.page("front", 0), 4)
    begun(registry.page("front", 1), 5).end()
    assert registry.processes() == [
        {"role": "front", "index": 0, "pid": os.getpid(), "incarnation": 4, "generation": 1,
         "state": "starting"},
        {"role": "engine", "index": 1, "pid": os.getpid(), "incarnation": 9, "generation": 1,
         "state": "up"}]
    assert registry.page("front", 1).get(STATE) == GONE


def test_metrics_written_by_a_child_are_read_by_its_parent(registry):
    counter = registry.page("front", 1).counter("requests_total", route="/infer", code=200)
    child = os.fork()
    if not child:
        for _ in range(1000):
            counter.add()
        os._exit(0)
    os.waitpid(child, 0)
    assert registry.page("front", 1).get(
        HEADER_SLOTS + slots("front")["requests_total", "/infer", 200]) == 1000
