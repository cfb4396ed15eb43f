"""High priority under low load: each promise is kept by some devices and broken by others."""

import pytest

from tests.gpucheck_rig import Bench
from tools.gpucheck import lanes
from tools.gpucheck.lanes import Asked

LOW_MS = 4.0


@pytest.mark.parametrize("loaded_ms, failed", [
    (1.04, set()), (1.5, {"high_is_not_moved"}),
    (5.0, {"high_is_not_moved"}), (9.0, {"high_is_not_moved", "high_waits_for_one"})])
def test_lanes_promises_are_judged_by_the_p99(tmp_path, loaded_ms, failed):
    bench = Bench(tmp_path)
    lanes.tell(bench.rig, Asked([1.0] * 100, [0.5] * 98 + [loaded_ms] * 2), LOW_MS)
    assert set(bench.verdicts()) == {"high_is_not_moved", "high_waits_for_one"}
    assert bench.failed() == failed


def test_lanes_high_waits_for_one_low_batch_of_a_recorded_device(tmp_path):
    """It does one launch at a time, so a high one is moved, by one low one at most."""
    bench = Bench(tmp_path, "speed 10\n")
    lanes.run(bench.rig)
    assert bench.failed() == {"high_is_not_moved"}
    found = bench.figures()
    assert found["low_batch"] <= found["high_loaded_p99"] and found["low_texts"] > 0


def test_lanes_high_behind_all_low_batches_is_found(tmp_path, monkeypatch):
    """What one lane would do: whoever comes first is served first."""
    honest = lanes.Client._submit

    def late(self, rows, is_high):
        while is_high and self._low_open:
            self._poll()
        honest(self, rows, is_high)

    monkeypatch.setattr(lanes.Client, "_submit", late)
    bench = Bench(tmp_path, "speed 10\n")
    lanes.run(bench.rig)
    assert bench.failed() == {"high_is_not_moved", "high_waits_for_one"}


def test_lanes_wrong_answer_under_load_is_found(tmp_path):
    # Two graphs are compared and asked once; the device goes wrong later.
    bench = Bench(tmp_path, "once replay nan 30\n")
    lanes.run(bench.rig)
    assert "both_answer_right" in bench.failed()
