"""bench.check_schedule serves and simulates the same arrivals; how well depends on the machine."""

import json

import pytest

from bench import check_schedule
from bench.schedule_workload import read

pytestmark = pytest.mark.sockets


def test_check_schedule_prints_each_figure_of_each_trace_and_stores_the_machine(
        tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(check_schedule, "CALIBRATING_S", 0.4)
    monkeypatch.setattr(check_schedule, "AGAIN_MOST", 0)
    stored = tmp_path / "some.json"
    assert check_schedule.main(["--rounds", "2", "--seconds", "0.3", "--engines", "1",
                                "--store", str(stored)]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["figure"] for line in lines] == 4 * [
        "schedule.check_goodput", "schedule.check_p99", "schedule.check_p50"]
    for line in lines:
        assert line["value"] > 0 and len(line["runs"]) == len(line["foretold"]) == 2
        assert line["predicted"] > 0 and line["served"] > 0
    workload = read(stored)
    assert workload.machine.engines == 1 and set(workload.lengths) == {"short", "profile"}
