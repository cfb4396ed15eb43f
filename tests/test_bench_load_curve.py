"""bench/load_curve.py offers each load as often as it says, and counts what came back."""

import json

import pytest

from bench import load_curve
from bench.load_curve import COUNTS, LOADS_SHORT, OVERLOAD_TIMES, Curve
from bench.load_report import Outcome

CAPACITY_RPS = 100.0
FACTS = {"model": "fake", "texts": "some.tsv", "engines": 2}


class FakeServer:
    host, port = "127.0.0.1", 1


class FakeClient:
    """Answers up to the capacity after a millisecond, and refuses the rest."""

    runs: list[tuple[int, float, bool]] = []
    ahead: list[int] = []

    def __init__(self, host, port, connections, obey_retry_after=False, opened_ahead=0):
        self.obey = obey_retry_after
        self.ahead.append(opened_ahead)
        self.cpu_share, self.starved, self.opened = 0.1, 0, 1

    def run(self, planned, seconds):
        self.runs.append((len(planned), seconds, self.obey))
        self.took_s = seconds
        able = round(CAPACITY_RPS * seconds)
        return [Outcome(one.at_s, one.at_s, one.at_s + 0.001 * (1 + place % 10),
                        200 if place < able or self.obey else 429,
                        refused=int(self.obey and place >= able))
                for place, one in enumerate(planned)]


@pytest.fixture
def curve(monkeypatch):
    FakeClient.runs, FakeClient.ahead = [], []
    monkeypatch.setattr(load_curve, "Client", FakeClient)
    return Curve(FakeServer(), ["a text"], CAPACITY_RPS, LOADS_SHORT, FACTS)


def figures(said: str) -> list[dict]:
    return [json.loads(line) for line in said.splitlines()]


def test_load_curve_every_load_runs_once_a_round_in_an_order_that_moves_on(curve):
    curve.measure(3, 4.0)
    assert len(FakeClient.runs) == 3 * len(LOADS_SHORT)
    first = [FakeClient.runs[number * len(LOADS_SHORT)] for number in range(3)]
    for (planned, seconds, _), load in zip(first, LOADS_SHORT):
        assert planned == pytest.approx(load * CAPACITY_RPS * seconds, rel=0.5)
    longer = [seconds for _, seconds, _ in FakeClient.runs if seconds > 4.0]
    assert longer == [4.0 * OVERLOAD_TIMES] * 3 * sum(load > 1 for load in LOADS_SHORT)


def test_load_curve_above_capacity_no_connection_is_opened_while_time_counts(curve):
    curve.measure(1, 4.0)
    for load, ahead in zip(LOADS_SHORT, FakeClient.ahead):
        assert ahead >= 10_000 if load > 1 else ahead == 0


def test_load_curve_reports_what_was_answered_and_refused(curve, capsys):
    curve.measure(2, 4.0)
    curve.report()
    found = figures(capsys.readouterr().out)
    good = {one["load"]: one["value"] for one in found if one["figure"] == "load.goodput"}
    refused = {one["load"]: one["value"] for one in found if one["figure"] == "load.refused"}
    assert list(good) == list(LOADS_SHORT)
    assert good[2.0] == pytest.approx(1.0) and good[0.1] == pytest.approx(0.1, rel=0.5)
    assert refused[2.0] == pytest.approx(0.5, abs=0.05) and refused[0.1] == 0
    assert all(len(one["runs"]) == 2 and one["model"] == "fake" for one in found)


def test_load_curve_percentile_of_too_few_answers_is_left_out(curve, capsys):
    curve.measure(1, 4.0)
    curve.report()
    for one in figures(capsys.readouterr().out):
        percent = one["figure"].removeprefix("load.").removesuffix("_ms")
        if percent in COUNTS:
            assert one["answers"] >= COUNTS[percent]
            assert percent != "p99.9" and 1 <= one["value"] <= 10


def test_load_curve_counts_what_came_back_when_it_was_told(curve, capsys):
    curve.report_retries(4.0)
    (one,) = figures(capsys.readouterr().out)
    assert one["figure"] == "load.retry_ok" and one["value"] == 1.0
    assert one["retried"] == FakeClient.runs[0][0] - 400 and FakeClient.runs[0][2]
