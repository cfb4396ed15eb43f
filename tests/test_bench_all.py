"""bench/all.py goes on whatever its programs do, and keeps its promise of time."""

import json
import re

import pytest

from bench import all as bench_all
from bench.all import LIMIT_S, Step, make_plan, run_steps
from bench.child import Outcome
from bench.figures import figure_line
from bench.results import read_results, select

LINE = figure_line("fake.value", 2.0, "s")


@pytest.fixture
def played(monkeypatch, tmp_path):
    """Plays outcomes by the program's name, in place of children; the limits that they got."""
    limits: dict[str, float] = {}
    clock = [0.0]

    def play(outcomes: dict[str, Outcome]):
        def run(command, limit_s, tell):
            name = command[-1]
            limits[name] = limit_s
            clock[0] += outcomes[name].took_s
            return outcomes[name]
        monkeypatch.setattr(bench_all, "run_child", run)
        monkeypatch.setattr(bench_all.time, "perf_counter", lambda: clock[0])
        steps = [Step(name, (name,), 10.0) for name in outcomes]
        path = tmp_path / "results.jsonl"
        return run_steps(steps, path), read_results(path), limits
    return play


def test_all_a_program_that_fails_is_noted_and_the_next_runs(played):
    outcomes, figures, _ = played({"bad": Outcome((LINE,), 1.0, "ended with 1: no such file"),
                                   "good": Outcome((LINE, LINE), 1.0, "")})
    assert [outcome.fault for _, outcome in outcomes] == ["ended with 1: no such file", ""]
    programs = select(figures, "bench.program")
    assert [(one.text("program"), one.text("figures"), one.text("fault")) for one in programs] == [
        ("bad", "1", "ended with 1: no such file"), ("good", "2", "")]
    assert len(select(figures, "fake.value")) == 3


def test_all_a_program_whose_time_is_not_left_is_left_out_in_words(played):
    outcomes, _, limits = played({"slow": Outcome((LINE,), LIMIT_S - 5, ""),
                                  "late": Outcome((LINE,), 1.0, "")})
    assert outcomes[1][1].fault == f"was left out: 5 s of {LIMIT_S:.0f} s were left"
    assert "late" not in limits


def test_all_no_program_gets_more_time_than_is_left(played):
    _, _, limits = played({"slow": Outcome((LINE,), LIMIT_S - 15, ""),
                           "next": Outcome((LINE,), 1.0, "")})
    assert limits == {"slow": 25.0, "next": 15.0}


@pytest.mark.parametrize("model", [None, "some-model"])
@pytest.mark.parametrize("has_peers", [False, True])
def test_all_the_plan_is_expected_to_fit_into_its_time_with_room(model, has_peers):
    plan = make_plan(model, "texts.tsv", has_peers)
    assert sum(step.expected_s for step in plan) < 0.9 * LIMIT_S
    names = [step.name for step in plan]
    assert len(set(names)) == len(names)


def test_all_other_engines_run_only_where_they_are_installed():
    for model in (None, "some-model"):
        assert not any("peers" in step.command or "--peer" in step.command
                       for step in make_plan(model, None, False))
        commands = " ".join(step.command for step in make_plan(model, None, True))
        assert "bench.peers --short" in commands and "--peer ort ct2" in commands


def test_all_every_program_of_the_plan_can_be_started():
    import importlib.util
    for step in make_plan("some-model", None, True):
        assert importlib.util.find_spec(step.arguments[0]), step.command


def test_all_unknown_program_is_refused_by_name(capsys):
    with pytest.raises(SystemExit) as ended:
        bench_all.main(["--only", "nonsense"])
    assert ended.value.code == 2
    assert "no program nonsense" in capsys.readouterr().err


def test_all_lines_have_machine_commit_and_time():
    line = json.loads(LINE)
    assert {"machine", "commit", "load_1m", "at"} < set(line)


def test_all_fakes_of_every_kind_end_in_one_page(monkeypatch, tmp_path, capsys):
    ways = ("fail", "hang", "garbage", "good")
    monkeypatch.setattr(bench_all, "make_plan", lambda *_: [
        Step(way, ("tests.fake_bench", way), 1.0 if way == "hang" else 60.0) for way in ways])
    monkeypatch.setattr(bench_all, "HEAD_START_S", 0.0)
    monkeypatch.setattr(bench_all, "results_path", lambda *_, **__: tmp_path / "results.jsonl")
    assert bench_all.main([]) == 1
    figures = read_results(tmp_path / "results.jsonl")
    assert {"fake.fail", "fake.garbage", "fake.good"} <= {one.name for one in figures}
    faults = {one.text("program"): one.text("fault") for one in select(figures, "bench.program")}
    assert faults == {"fail": "ended with 1: the disk is full", "hang": "was ended after 2 s",
                      "garbage": "printed 1 lines that are no figures", "good": ""}
    page = (tmp_path / "results.html").read_text("utf-8")
    assert "the disk is full" in page and "fake.good" in page
    out, err = capsys.readouterr()
    assert out.splitlines()[-1].endswith("results.html")
    assert "python -m tests.fake_bench hang was ended after 2 s" in err
    assert re.search(r"^hang took \d+ s, 1 s are planned$", err, re.M)
    assert "good took" not in err


def test_step_command_names_what_lies_elsewhere_without_its_path():
    step = Step("serve", ("bench.serve", "--model", "../models/mine", "--texts", "/data/eval.tsv",
                          "--only", "bench/x.tsv"), 1)
    assert step.command == "python -m bench.serve --model mine --texts eval.tsv --only bench/x.tsv"
