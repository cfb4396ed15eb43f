"""bench.simulate_schedule prints figures of each order of work, from stored workloads."""

import json

import pytest

from bench.schedule_machine import Machine
from bench.schedule_workload import STORED, Workload, read, write
from bench.simulate_schedule import TRACES, main, make
from tests.scheduler_desk import COSTS

MACHINE = Machine(tuple(COSTS), host_ms=0.2, link_ms=0.1)


def test_simulate_schedule_prints_each_figure_of_each_order(tmp_path, capsys):
    write(tmp_path / "some.json", Workload("some", "here", MACHINE, {"short": [10, 40]}))
    assert main(["--workload", str(tmp_path / "some.json"), "--seconds", "1",
                 "--only", "short"]) == 0
    said = capsys.readouterr()
    lines = [json.loads(line) for line in said.out.splitlines()]
    assert len(lines) == 24 and {line["trace"] for line in lines} == {"short"}
    assert {line["order"] for line in lines} == {"firebrick", "fifo", "sort-by-length",
                                                 "padded buckets"}
    padding = {line["order"]: line["value"] for line in lines
               if line["figure"] == "schedule.padding"}
    assert padding["firebrick"] == padding["fifo"] == 0 < padding["padded buckets"]
    assert "firebrick" in said.err


def test_simulate_schedule_workload_that_is_none_ends_with_two(tmp_path, capsys):
    (tmp_path / "bad.json").write_text('{"model": "x"}')
    with pytest.raises(SystemExit) as ended:
        main(["--workload", str(tmp_path / "bad.json")])
    assert ended.value.code == 2 and "no workload" in capsys.readouterr().err


def test_simulate_schedule_stored_workload_is_read_as_it_was_written(tmp_path):
    stored = read(STORED)
    write(tmp_path / "again.json", stored)
    assert read(tmp_path / "again.json") == stored
    assert set(stored.lengths) >= {name for name, _, _ in TRACES.values()}


@pytest.mark.parametrize("name", TRACES)
def test_simulate_schedule_trace_is_the_same_for_a_seed(name):
    _, load, kind = TRACES[name]
    one, two = (make(name, [10, 300], 50 * load, kind, 3.0, 5) for _ in range(2))
    assert one == two and one != make(name, [10, 300], 50 * load, kind, 3.0, 6)
    assert [asked.at_s for asked in one.requests] == sorted(
        asked.at_s for asked in one.requests)
