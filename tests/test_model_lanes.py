"""Both lanes of a recorded device: right answers at once, and how long a high batch waits."""

import time

import numpy as np
import pytest
import torch

from model.device.ladder import HIGH_BATCHES, lane_shapes, needed
from model.device.recorder import Recorder
from model.device.script import Script, write
from model.grid import buckets
from model.programs.graphs import GraphProgram
from model.programs.lanes import LanePrograms
from tests.tiny_bert import make_rows
from tests.test_model_graphs import LABELS, made   # noqa: F401

# Of a launch for each of its padded tokens, in virtual time.
US = 1000
# The shapes below: texts of at most 16 tokens, in one graph of 4.
BATCH_MS = 4 * 16 * US / 1e3
ALONE_MS = 16 * US / 1e3


class Clock:
    """Monotonic seconds that pass only when told; computing takes none."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def lanes(made, tmp_path, monkeypatch):     # noqa: F811
    """(LanePrograms at scripted speed under a clock of the test's own, that clock, the card)."""
    card, _, compiled = made
    path, clock = str(tmp_path / "faults"), Clock()
    write(path, "")
    monkeypatch.setattr(time, "monotonic", clock)
    port = Recorder(Script(path), clock=clock)
    low, high = lane_shapes(buckets(card["max_tokens"]), 64, 1 << 40, 1)
    common = compiled, torch.float32
    rest = card["settings"], LABELS, card["max_tokens"]
    found = LanePrograms(GraphProgram(port, *common, low, *rest),
                         GraphProgram(port, *common, high, *rest, is_high=True))
    found.prepare()
    write(path, f"speed {US}\n")
    return found, clock, card


def _done_at(lanes, clock, upto_ms: float) -> dict[int, tuple[float, np.ndarray]]:
    """Number → (ms from now, logits) of what is done until then, polled every ms."""
    begun, found = clock.now, {}
    for ms in range(int(upto_ms) + 1):
        clock.now = begun + ms / 1e3 + 1e-6
        for finished in lanes.poll():
            found[finished.number] = ms, finished.logits
    return found


def test_lanes_answer_as_one_does_whatever_the_order(lanes):
    programs, clock, card = lanes
    batches = {number: make_rows(card, [3 + number, 9, 40][:1 + number % 3], seed=number)
               for number in range(12)}
    for number, rows in batches.items():
        programs.submit(number, rows, is_high=number % 3 == 0)
    found = _done_at(programs, clock, 10_000)
    assert sorted(found) == list(batches) and not programs.is_busy
    for number, rows in batches.items():
        programs.submit(number, rows, is_high=number % 2 == 0)
        ((_, again),) = _done_at(programs, clock, 1000).values()
        assert np.abs(found[number][1] - again).max() < 1e-5
    counts = programs.take_counts()
    assert counts.replays and not counts.eager


@pytest.mark.parametrize("ahead", [1, 2, 5])
@pytest.mark.parametrize("after_ms", [0, 5, 40])
def test_lanes_high_batch_waits_for_the_low_one_that_runs_and_no_other(lanes, ahead, after_ms):
    programs, clock, card = lanes
    for number in range(ahead):
        programs.submit(number, make_rows(card, [9] * 4), is_high=False)
    programs.poll()
    clock.now += after_ms / 1e3
    programs.submit(99, make_rows(card, [9]), is_high=True)
    found = _done_at(programs, clock, BATCH_MS * (ahead + 1))
    assert found[99][0] == pytest.approx(BATCH_MS - after_ms + ALONE_MS, abs=1.5)
    assert len(found) == ahead + 1


def test_lanes_low_batch_of_several_launches_is_one_batch(lanes):
    """All its launches may be on the device at once; those of the next one may not."""
    programs, clock, card = lanes
    rows = make_rows(card, [9] * 8)         # two launches
    programs.submit(1, rows, is_high=False)
    programs.submit(2, rows, is_high=False)
    programs.submit(99, make_rows(card, [9]), is_high=True)
    found = _done_at(programs, clock, 5 * BATCH_MS)
    assert found[1][0] == pytest.approx(2 * BATCH_MS + ALONE_MS, abs=1.5)
    assert found[99][0] <= BATCH_MS + ALONE_MS + 1.5
    assert found[2][0] == pytest.approx(4 * BATCH_MS + ALONE_MS, abs=2.5)


def test_lanes_low_batches_follow_one_another_without_a_gap_but_the_polling(lanes):
    programs, clock, card = lanes
    for number in range(5):
        programs.submit(number, make_rows(card, [9] * 4), is_high=False)
    found = _done_at(programs, clock, 6 * BATCH_MS)
    # A millisecond between two looks.
    assert found[4][0] <= 5 * (BATCH_MS + 1) + 1


def test_lanes_high_batches_do_not_wait_for_one_another_on_the_host(lanes):
    programs, clock, card = lanes
    for number in range(3):
        programs.submit(number, make_rows(card, [9]), is_high=True)
    found = _done_at(programs, clock, 4 * ALONE_MS)
    assert [ms for ms, _ in found.values()] == pytest.approx(
        [ALONE_MS, 2 * ALONE_MS, 3 * ALONE_MS], abs=1.5)


def test_lanes_sleep_no_longer_than_until_either_may_be_done(lanes):
    programs, clock, card = lanes
    assert programs.remaining_s() == 0.0 and programs.due() == float("inf")
    for program in (programs.low, programs.high):
        for launch in program._launches.values():
            launch.ms = 50.0
    programs.submit(1, make_rows(card, [9] * 4), is_high=False)
    clock.now += 0.02
    programs.submit(2, make_rows(card, [9]), is_high=True)
    assert programs.remaining_s() == pytest.approx(0.03)
    assert programs.low.due() == programs.due() < programs.high.due()


def test_lanes_ladder_shares_one_budget_and_knows_every_bucket_twice():
    sizes = buckets(512)
    whole = lane_shapes(sizes, 16384, 1 << 40, 7680)
    for share in (1.0, 0.5, 0.2, 1e-6):
        budget = int(sum(needed(lane, 7680) for lane in whole) * share)
        low, high = lane_shapes(sizes, 16384, budget, 7680)
        for lane in (low, high):
            assert {shape.length for shape in lane if shape.batch == 1} == set(sizes)
        is_least = all(shape.batch == 1 for shape in low + high)
        assert needed(low, 7680) + needed(high, 7680) <= budget or is_least
        assert {shape.batch for shape in high} <= set(HIGH_BATCHES)
        assert max(shape.tokens for shape in high) < max(shape.tokens for shape in low) or is_least
