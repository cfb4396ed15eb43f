"""bench/rounds.py and bench/engine_report.py: who ran when, and what is made of it."""

import argparse
import json

import numpy as np
import pytest

from bench.engine import same_length, shape, some
from bench.engine_report import comparisons, precision_of, report_grid, report_invariance
from bench.engine_report import report_ragged
from bench.rounds import (BURST_RUNS_MOST, Burst, Timing, agreement, burst_runs, fastest_mode,
                          largest_change, ratios, time_in_turn, time_runs)
from bench.table import render

ROWS = [np.arange(5, 9), np.arange(5, 7)]


class Fake:
    """Takes the milliseconds that its script gives for a mode, and remembers being called."""

    def __init__(self, key: str, took: dict[str, float], log: list | None = None,
                 logits: np.ndarray | None = None) -> None:
        self.key, self.name, self.modes = key, f"fake {key}", tuple(took)
        self._took, self._log = took, [] if log is None else log
        self._logits = np.eye(2, dtype=np.float32) if logits is None else logits

    def run(self, rows, mode, repeats):
        self._log.append((self.key, mode, repeats))
        took = [self._took.get(mode, 1.0)] * repeats
        return Burst(took, took, self._logits[:len(rows)])


def test_rounds_contenders_run_once_a_round_in_an_order_that_moves_on():
    log: list = []
    entries = [(Fake(key, {"whole": 1000.0}, log), "whole") for key in "abc"]
    timings = time_in_turn(entries, ROWS, 4)
    assert "".join(key for key, _, _ in log[-12:]) == "abc" "bca" "cab" "abc"
    assert [timing.runs for timing in timings] == [[1000.0] * 4] * 3


def test_rounds_values_are_medians_of_bursts_and_the_least_of_all():
    timing = Timing(Fake("a", {}), "whole", np.zeros((1, 2)))
    for burst in ([3.0, 1.0, 9.0], [5.0, 4.0, 6.0], [8.0, 7.0, 7.0]):
        timing.add(Burst([one + 1 for one in burst], burst, np.zeros((1, 2))))
    assert timing.runs == [3.0, 5.0, 7.0]
    assert (timing.median_ms, timing.wall_ms, timing.best_ms) == (5.0, 6.0, 1.0)


def test_rounds_ratios_are_taken_within_a_round():
    ours = Timing(Fake("a", {}), "whole", np.zeros((1, 2)), [1.0, 2.0, 4.0])
    other = Timing(Fake("b", {}), "whole", np.zeros((1, 2)), [2.0, 4.0, 4.0])
    assert ratios(ours, other) == [2.0, 2.0, 1.0]


@pytest.mark.parametrize("run_ms, runs", [(0.0, BURST_RUNS_MOST), (1.0, BURST_RUNS_MOST),
                                          (20.0, 3), (1e5, 1)])
def test_rounds_bursts_are_short_for_what_is_slow(run_ms, runs):
    assert burst_runs(run_ms) == runs


def test_rounds_fastest_mode_is_the_one_with_least_time():
    fake = Fake("a", {"alone": 5.0, "256": 2.0, "buckets": 3.0})
    assert fastest_mode(fake, ROWS, fake.modes) == "256"
    assert fastest_mode(fake, ROWS, ("buckets", "alone")) == "buckets"


def test_rounds_time_runs_gives_a_time_a_run_and_the_last_logits():
    count = iter(range(9))
    burst = time_runs(lambda: np.full((1, 1), next(count)), 3)
    assert len(burst.wall_ms) == len(burst.cpu_ms) == 3
    assert burst.logits.tolist() == [[2]]


def test_rounds_checker_sees_one_changed_row():
    reference = np.array([[1.0, 0.0], [0.0, 1.0], [3.0, 2.0], [0.0, 0.5]])
    changed = reference.copy()
    changed[2] = [2.0, 2.25]
    assert largest_change(changed, reference) == 1.0
    assert agreement(changed, reference) == 0.75
    assert (largest_change(reference, reference), agreement(reference, reference)) == (0.0, 1.0)


@pytest.mark.parametrize("key, precision", [
    ("eager", "fp32"), ("int8", "int8"), ("ort-fp32-fused", "fp32"), ("ct2-float32", "fp32"),
    ("openvino-int8_bf16", "int8"), ("openvino-bf16", "bf16"), ("fp16", "fp16")])
def test_report_precision_is_read_from_the_key(key, precision):
    assert precision_of(key) == precision


def timing(key: str, mode: str, took: float) -> Timing:
    return Timing(Fake(key, {mode: took}), mode, np.eye(2, dtype=np.float32), [took] * 3,
                  [took] * 3, took)


def test_report_comparisons_hold_ours_against_the_best_form_of_each_peer():
    timings = [timing("eager", "whole", 9.0), timing("int8", "whole", 1.0),
               timing("fp32", "whole", 7.0),
               timing("ort-fp32", "256", 5.0), timing("ort-int8", "256", 2.0),
               timing("ort-int8", "alone", 4.0), timing("ort-int8-fused", "alone", 3.0),
               timing("ct2-int8", "buckets", 6.0)]
    found = {(mine.contender.key, other.contender.key, other.mode, kind)
             for mine, other, kind in comparisons(timings) if mine is timings[1]}
    assert found == {("int8", "fp32", "whole", "best"),
                     ("int8", "ort-int8", "256", "best"),
                     ("int8", "ort-int8-fused", "alone", "alone"),
                     ("int8", "ct2-int8", "buckets", "best"),
                     ("int8", "ct2-int8", "buckets", "buckets")}


def test_report_grid_emits_a_figure_each_and_a_table(capsys):
    timings = [timing("eager", "whole", 8.0), timing("fp32", "whole", 4.0)]
    report_grid("m", {"1x16": timings, "8x32": timings})
    said = capsys.readouterr()
    figures = [json.loads(line) for line in said.out.splitlines()]
    assert [(one["figure"], one["value"], one["shape"]) for one in figures] == [
        ("engine.ms", 8, "1x16"), ("engine.ms", 4, "1x16"),
        ("engine.ms", 8, "8x32"), ("engine.ms", 4, "8x32"),
        ("engine.ratio", 2, "1x16"), ("engine.ratio", 2, "8x32")]
    assert "fp32: eager fp32     2     2" in said.err


def test_report_ragged_table_has_milliseconds_a_text_fastest_first(capsys):
    report_ragged("m", "t.tsv", ROWS, [timing("eager", "alone", 8.0), timing("fp32", "whole", 4.0)])
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[:4] for line in lines[3:5]] == [["fake", "fp32", "whole", "2"],
                                                         ["fake", "eager", "alone", "4"]]


def test_report_invariance_tells_what_company_changes(capsys):
    class Moody(Fake):
        """Answers differently in larger calls."""
        def run(self, rows, mode, repeats):
            logits = np.full((len(rows), 2), 0.25 if mode == "256" else 0.0, np.float32)
            return Burst([1.0], [1.0], logits)
    rows = [np.arange(5, 9)] * 8
    steady = Fake("fp32", {"whole": 1.0}, logits=np.zeros((8, 2), np.float32))
    report_invariance("m", "t", rows, [Moody("ort-int8", {"256": 1.0}), steady])
    figures = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["contender"], one["value"]) for one in figures] == [("ort-int8", 0.25),
                                                                     ("fp32", 0)]


def test_table_columns_are_aligned_numbers_to_the_right():
    text = render("title", ["name", "ms"], [["a", 1.0], ["long name", 1234.6], ["c", None]])
    assert text == ("title\nname         ms\na             1\nlong name  1235\nc             -\n")


def test_engine_rows_of_a_shape_are_the_same_each_time():
    first, again = same_length(3, 16, 100), same_length(3, 16, 100)
    assert [row.tolist() for row in first] == [row.tolist() for row in again]
    assert {len(row) for row in first} == {16}
    assert all(5 <= value < 100 for row in first for value in row)
    assert len(some(ROWS * 50, 7)) == 7
    assert len(some(ROWS, 7)) == 2


def test_engine_shape_is_texts_by_tokens():
    assert shape("8x32") == (8, 32)
    for wrong in ("8", "8x", "x32", "0x8", "8x-1", "8x32x2"):
        with pytest.raises(argparse.ArgumentTypeError, match="is no shape"):
            shape(wrong)
