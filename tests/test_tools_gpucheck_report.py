"""What a part says: one JSON line each, in the form that every figure of ours has."""

import json

import pytest

from bench import figures
from tools.gpucheck import report


@pytest.fixture
def said():
    """(a report of a dry run, its lines)."""
    lines = []
    return report.Report("latency", lambda line: lines.append(json.loads(line)), True), lines


def test_report_figure_has_the_keys_of_every_benchmark(said, capsys):
    one, lines = said
    one.figure("p50", 1.23456, "ms", [1.0, 1.23456, 2.0], model="x")
    figures.emit("gpucheck.latency.p50", 1.23456, "ms", [1.0, 1.23456, 2.0], model="x")
    theirs = json.loads(capsys.readouterr().out)
    assert set(lines[0]) == set(theirs) | {"device", "dry_run"}
    assert {key: lines[0][key] for key in ("figure", "value", "unit", "runs", "model")} == {
        key: theirs[key] for key in ("figure", "value", "unit", "runs", "model")}


def test_report_every_line_of_a_dry_run_says_so(said):
    one, lines = said
    one.figure("a", 1, "s")
    one.claim("b", True, "seen")
    one.target("c", True, "seen")
    one.skip("d", "missing")
    assert len(lines) == 4 and all("dry run" in line["dry_run"] for line in lines)


def test_report_target_is_judged_on_its_device_alone_and_a_claim_everywhere(said):
    one, lines = said
    for one.is_judged in (False, True):
        one.target("fast", False, "")
        one.target("fast", True, "")
        one.claim("right", False, "")
        one.claim("right", True, "")
    assert [line["verdict"] for line in lines] == [
        "NOT JUDGED", "NOT JUDGED", "FAIL", "PASS", "FAIL", "PASS", "FAIL", "PASS"]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_report_value_that_is_no_number_is_null(said, value):
    one, lines = said
    one.figure("a", value, "ms")
    assert lines[0]["value"] is None


@pytest.mark.parametrize("values, percent, wanted", [
    ([3, 1, 2], 50, 2), (range(1, 101), 99, 99), (range(1, 101), 100, 100), ([5], 99, 5),
    ([1, 2], 1, 1)])
def test_report_percentile_is_the_nearest_rank(values, percent, wanted):
    assert report.percentile(list(values), percent) == wanted \
        == figures.percentile(list(values), percent)
