"""Parts that hang, crash or say nothing fail with their last words, and the next one goes on."""

import json
import os
import sys
import time

import pytest

from tests.house import is_alive, wait_until
from tests.style_rules import reachable, read_sources
from tools.gpucheck import __main__ as gpucheck
from tools.gpucheck import runner
from tools.gpucheck.parts import PARTS, TOTAL_S, Part
from tools.gpucheck.report import Report

LINE = {"claim": "gpucheck.part.right", "verdict": "PASS", "why": "seen", "device": "NVIDIA H200, "
        "sm_90"}
SAYS = f"import json, os, sys, time; print(json.dumps({LINE!r}), flush=True); "
ENDS = "print('{\"ended\": \"part\"}', flush=True); "


@pytest.fixture
def played(monkeypatch):
    """A function: a program in a part's place → the lines that come out."""
    def play(program: str, limit_s: int = 20) -> list[dict]:
        monkeypatch.setattr(runner, "command", lambda part, kind: [sys.executable, "-c", program])
        lines: list[dict] = []
        runner.run_part(Part("part", limit_s, "", ""), "cuda", lines.append)
        return lines
    return play


def _failure(lines: list[dict]) -> str:
    (line,) = [line for line in lines if line.get("claim") == "gpucheck.part.runs_to_its_end"]
    assert line["verdict"] == "FAIL"
    return line["why"]


def test_runner_part_that_ends_is_passed_on_with_the_time_it_took(played):
    lines = played(SAYS + ENDS)
    assert lines[0] == LINE and len(lines) == 2
    assert lines[1]["figure"] == "gpucheck.part.took" and lines[1]["device"] == LINE["device"]


@pytest.mark.parametrize("program, words", [
    (SAYS + "time.sleep(600)", "took more than 1 s: it left no words"),
    (SAYS + "print('stuck at graph 7', file=sys.stderr, flush=True); time.sleep(600)",
     "took more than 1 s: stuck at graph 7"),
])
def test_runner_part_that_hangs_is_ended_in_time(played, program, words):
    begun = time.monotonic()
    lines = played(program, limit_s=1)
    assert lines[0] == LINE and words in _failure(lines)
    assert time.monotonic() - begun < 60


@pytest.mark.parametrize("program, words", [
    (SAYS + "os.abort()", "ended with signal 6"),
    (SAYS + "os.kill(os.getpid(), 9)", "ended with signal 9"),
    (SAYS + "raise ValueError('700: illegal address')", "ended with exit status 1: .*700: illegal"),
    (SAYS, "ended with exit status 0: it left no words"),
    (SAYS + "os._exit(0)", "ended with exit status 0"),
    (ENDS, "claimed nothing"),
    ("import os; " + ENDS + "os.abort()", "claimed nothing"),
])
def test_runner_part_that_does_not_do_its_work_fails_with_its_last_words(played, program, words):
    import re
    assert re.search(words, _failure(played(program)))


def test_runner_part_leaves_no_process_behind(played, tmp_path):
    path = tmp_path / "pid"
    played(SAYS + "import subprocess; child = subprocess.Popen(['sleep', '600']); "
           f"open({str(path)!r}, 'w').write(str(child.pid)); " + ENDS)
    wait_until("its child is gone", lambda: not is_alive(int(path.read_text())))


def test_runner_lines_that_come_in_pieces_are_put_together(played):
    text = json.dumps(LINE)
    lines = played("import sys, time\n" + "".join(
        f"sys.stdout.write({piece!r}); sys.stdout.flush(); time.sleep(0.05)\n"
        for piece in (text[:9], text[9:] + "\n" + text, "\n")) + ENDS)
    assert lines[:2] == [LINE, LINE] and len(lines) == 3


@pytest.mark.parametrize("named, first", [({}, "0"), ({"CUDA_VISIBLE_DEVICES": "2,0"}, "2"),
                                          ({"CUDA_VISIBLE_DEVICES": "GPU-a"}, "GPU-a"),
                                          ({"CUDA_VISIBLE_DEVICES": ""}, "")])
def test_runner_parts_see_one_device(named, first):
    found = runner.one_device({"HOME": "/x", **named})
    assert found == {"HOME": "/x", "CUDA_VISIBLE_DEVICES": first,
                     "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def test_results_are_kept_under_the_devices_name(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(runner, "ROOT", tmp_path)
    results = runner.Results(None)
    results.save()
    assert os.listdir(tmp_path / "bench/results") == ["gpucheck-no-device.jsonl"]
    results.add({**LINE, "device": "no device"})
    results.add(LINE)
    results.save()
    kept = (tmp_path / "bench/results/gpucheck-nvidia-h200.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in kept][1] == LINE
    said = capsys.readouterr()
    assert said.out.splitlines() == kept and said.err.count("PASS") == 2


@pytest.mark.parametrize("verdicts, is_good", [
    ([], False), (["PASS"], True), (["SKIP", "NOT JUDGED"], False), (["PASS", "FAIL"], False),
    (["PASS", "SKIP", "NOT JUDGED"], True)])
def test_results_are_good_where_something_passed_and_nothing_failed(verdicts, is_good):
    results = runner.Results(None)
    for verdict in verdicts:
        results.add({**LINE, "verdict": verdict})
    assert results.is_good() is is_good


def test_parts_together_take_no_more_than_the_whole_may():
    assert sum(part.limit_s for part in PARTS.values()) <= TOTAL_S
    assert next(iter(PARTS)) == "first"


@pytest.mark.parametrize("name", PARTS)
def test_parts_have_functions(name):
    assert callable(PARTS[name].load())


@pytest.fixture
def runs(monkeypatch, tmp_path):
    """The names of parts that `main` ran; those in `bad` fail."""
    names, bad = [], set()

    def run_part(part, kind, hear):
        names.append((part.name, kind))
        Report(part.name, lambda text: hear(json.loads(text))).claim("right", part.name not in bad,
                                                                     "")
    monkeypatch.setattr(gpucheck, "run_part", run_part)
    return names, bad, ["--out", str(tmp_path / "out.jsonl")]


def test_main_runs_all_parts_in_order_whatever_fails(runs, tmp_path):
    names, bad, out = runs
    assert gpucheck.main(out) == 0
    assert names == [(name, "cuda") for name in PARTS]
    bad.update({"first", "memory"})
    names.clear()
    assert gpucheck.main([*out, "--device", "recorder"]) == 1
    assert names == [(name, "recorder") for name in PARTS]
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == len(PARTS)


@pytest.mark.parametrize("flags, wanted", [
    (["--quick"], ["first"]), (["--only", "kill"], ["kill"]),
    (["--only", "memory", "--only", "probes"], ["memory", "probes"])])
def test_main_flags_choose_parts(runs, flags, wanted):
    names, _, out = runs
    assert gpucheck.main([*out, *flags]) == 0
    assert [name for name, _ in names] == wanted


@pytest.mark.parametrize("flags", [["--only", "lunch"], ["--device", "cpu"], ["--fast"],
                                   ["--quick", "--only", "kill"]])
def test_main_wrong_flag_is_refused(runs, flags, capsys):
    with pytest.raises(SystemExit) as ended:
        gpucheck.main(flags)
    assert ended.value.code == 2 and not runs[0]


def test_main_starts_without_torch(repo):
    """Which would cost the first seconds of a short run."""
    chains = reachable("tools.gpucheck.__main__", read_sources(repo))
    assert "tools.gpucheck.runner" in chains and "torch" not in chains


def test_main_help_lists_every_part_and_status(capsys):
    with pytest.raises(SystemExit):
        gpucheck.main(["--help"])
    said = capsys.readouterr().out
    assert all(part.name in said and part.shows in said for part in PARTS.values())
    assert "exit status: 0" in said and f"{TOTAL_S}" in said


@pytest.mark.slow
def test_main_quick_dry_run_is_green_and_says_what_it_is(tmp_path):
    path = tmp_path / "out.jsonl"
    assert gpucheck.main(["--quick", "--device", "recorder", "--out", str(path)]) == 0
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert all("dry run" in line["dry_run"] and line["device"] == "recorder" for line in lines)
    assert {line["verdict"] for line in lines if "claim" in line} == {"PASS", "NOT JUDGED"}


@pytest.mark.slow
@pytest.mark.sockets
@pytest.mark.parametrize("part", ["pressure", "kill"])
def test_main_falls_of_a_real_server_on_a_recorded_device_pass(tmp_path, part):
    path = tmp_path / "out.jsonl"
    assert gpucheck.main(["--only", part, "--device", "recorder", "--out", str(path)]) == 0
    claims = [json.loads(line) for line in path.read_text().splitlines() if '"claim"' in line]
    assert len(claims) == 6


def test_main_without_a_device_fails_in_a_sentence(tmp_path):
    torch = pytest.importorskip("torch")
    if torch.version.cuda is not None:
        pytest.skip("this torch could use a GPU")
    path = tmp_path / "out.jsonl"
    assert gpucheck.main(["--only", "probes", "--out", str(path)]) == 1
    (claim,) = [json.loads(line) for line in path.read_text().splitlines() if '"claim"' in line]
    assert claim["verdict"] == "FAIL" and "built without CUDA" in claim["why"]
