"""The ledger: parts in order, deaths judged, results in the order of the input."""

import random

import pytest

from tools.offline.ledger import FAULTS_ALONE, KILLS, Ledger


def drain(ledger: Ledger, engine: int) -> list[list[int]]:
    """Runs everything that waits, on one engine; the items of each part in turn."""
    ran = []
    while ledger.hand_out(engine) is not None:
        part = ledger.finished(engine)
        ledger.settle(part, list(part.items))
        ran.append(part.items)
    return ran


def test_ledger_results_come_in_the_order_of_the_input():
    ledger = Ledger(9)
    for first in (0, 10, 20):
        ledger.add(first, [first, first + 1])
    for engine in range(3):
        assert ledger.hand_out(engine).first == 10 * engine
    for engine, ready in ((2, []), (1, []), (0, ["0", "1", "2"])):
        ledger.settle(ledger.finished(engine), str(engine))
        assert ledger.ready() == ready
    assert ledger.is_empty and ledger.ready() == []


def test_ledger_window_full_takes_no_more():
    ledger = Ledger(2)
    assert ledger.has_room and ledger.is_empty
    ledger.add(0, ["a"])
    assert not ledger.has_room  # what waits goes first
    ledger.hand_out(0)
    assert ledger.has_room
    ledger.add(1, ["b"])
    ledger.hand_out(1)
    assert not ledger.has_room
    ledger.settle(ledger.finished(1), "b")
    assert not ledger.has_room and ledger.ready() == []
    ledger.settle(ledger.finished(0), "a")
    assert ledger.ready() == ["a", "b"] and ledger.has_room


def test_ledger_killed_engine_its_parts_run_again_whole_and_first():
    ledger = Ledger(9)
    for first in (0, 2, 4):
        ledger.add(first, [first, first + 1])
    assert [ledger.hand_out(0).first, ledger.hand_out(0).first] == [0, 2]
    assert ledger.died(0, is_fault=False) is None
    assert ledger.running(0) == 0
    assert drain(ledger, 1) == [[0, 1], [2, 3], [4, 5]]


def test_ledger_fault_runs_the_part_again_in_halves_but_not_what_only_waited():
    ledger = Ledger(9)
    ledger.add(7, [0, 1, 2, 3, 4])
    ledger.add(12, [5, 6])
    ledger.hand_out(0), ledger.hand_out(0)
    assert ledger.died(0, is_fault=True) is None
    part = ledger.hand_out(1)
    assert (part.first, part.items) == (7, [0, 1])
    ledger.settle(ledger.finished(1), [0, 1])
    assert ledger.hand_out(1).first == 9
    ledger.settle(ledger.finished(1), [2, 3, 4])
    assert drain(ledger, 1) == [[5, 6]]
    assert sum(ledger.ready(), []) == list(range(7))


def test_ledger_text_that_no_engine_survives_is_given_up_alone():
    ledger, deaths, given_up = Ledger(9), 0, []
    ledger.add(0, list(range(100)))
    while part := ledger.hand_out(0):
        if 63 in part.items:
            deaths += 1
            failed = ledger.died(0, is_fault=True)
            if failed is not None:
                given_up.append(failed.items)
                ledger.settle(failed, ["failed"])
        else:
            ledger.settle(ledger.finished(0), part.items)
    assert given_up == [[63]] and deaths <= 7 + FAULTS_ALONE
    assert sum(ledger.ready(), []) == [*range(63), "failed", *range(64, 100)]


def test_ledger_part_killed_again_and_again_counts_as_at_fault():
    ledger, deaths = Ledger(9), 0
    ledger.add(0, ["x"])
    while ledger.hand_out(0):
        deaths += 1
        failed = ledger.died(0, is_fault=False)
        if failed is not None:
            ledger.settle(failed, ["failed"])
    assert deaths == KILLS * FAULTS_ALONE and ledger.ready() == [["failed"]]


def test_ledger_idle_engine_that_dies_costs_nothing():
    ledger = Ledger(9)
    assert ledger.died(3, is_fault=True) is None and ledger.is_empty


@pytest.mark.parametrize("seed", range(20))
def test_ledger_random_deaths_change_no_result(seed):
    rng = random.Random(seed)
    items = list(range(300))
    poison = set(rng.sample(items, 3))
    ledger, at, results, held = Ledger(6), 0, [], {0: [], 1: [], 2: []}
    while at < len(items) or not ledger.is_empty:
        engine = rng.randrange(3)
        if ledger.has_room and at < len(items):
            size = rng.randrange(1, 20)
            ledger.add(at, items[at:at + size])
            at += len(items[at:at + size])
        if ledger.running(engine) < 2:
            part = ledger.hand_out(engine)
            if part:
                assert part.items == items[part.first:part.first + len(part.items)]
                held[engine].append(part)
        if held[engine] and rng.random() < 0.7:
            part = held[engine][0]
            is_poisoned = not poison.isdisjoint(part.items)
            if is_poisoned or rng.random() < 0.2:
                failed = ledger.died(engine, is_poisoned)
                held[engine] = []
                if failed is not None:
                    ledger.settle(failed, ["failed"])
            else:
                held[engine].pop(0)
                ledger.settle(ledger.finished(engine), part.items)
        for result in ledger.ready():
            results += result
    assert results == ["failed" if item in poison else item for item in items]
