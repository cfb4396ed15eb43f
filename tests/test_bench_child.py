"""bench/child.py keeps a benchmark's figures whatever the benchmark does."""

import os
import sys
import time

import pytest

from bench.child import run_child
from bench.figures import figure_line

FIGURE = figure_line("fake.value", 1.0, "s")


def run(code: str, limit_s: float = 60.0, tell=lambda passed_s: None):
    return run_child((sys.executable, "-c", code), limit_s, tell)


def test_child_figures_are_kept_as_they_were_printed():
    outcome = run(f"print('''{FIGURE}'''); print('''{FIGURE}''')")
    assert outcome.lines == (FIGURE, FIGURE)
    assert outcome.fault == ""


def test_child_that_fails_keeps_its_figures_and_says_its_last_words():
    outcome = run(f"print('''{FIGURE}''', flush=True); raise SystemExit('no such model')")
    assert outcome.lines == (FIGURE,)
    assert outcome.fault == "ended with 1: no such model"


@pytest.mark.parametrize("garbage", ["hello", '{"figure": "x"', '{"figure": "x", "value": NaN, '
                                     '"unit": "s"}', '[1]', '{"value": 1, "unit": "s"}'])
def test_child_line_that_is_no_figure_is_counted_and_left_out(garbage):
    outcome = run(f"print('''{garbage}'''); print('''{FIGURE}''')")
    assert outcome.lines == (FIGURE,)
    assert outcome.fault == "printed 1 lines that are no figures"


def test_child_bytes_that_are_no_text_are_survived():
    outcome = run("import os; os.write(1, bytes(range(128, 256)))")
    assert outcome.lines == () and "1 lines" in outcome.fault


def test_child_without_any_figure_is_a_fault():
    assert run("pass").fault == "printed no figure"


def test_child_that_cannot_start_is_a_fault():
    assert run_child(("/nonexistent/python",), 5.0).fault.startswith("did not start")


def test_child_that_hangs_is_ended_and_keeps_what_it_printed(tmp_path, monkeypatch):
    note = tmp_path / "printed"
    # The limit's clock stands still until the child has printed, however slow the machine is.
    monkeypatch.setattr(time, "perf_counter", lambda: 1000.0 if note.exists() else 0.0)
    outcome = run(f"import pathlib, time; print('''{FIGURE}''', flush=True)\n"
                  f"pathlib.Path({str(note)!r}).touch(); time.sleep(600)", 30.0)
    assert outcome.lines == (FIGURE,)
    assert outcome.fault == "was ended after 30 s"


def test_child_leaves_no_process_behind(tmp_path):
    note = tmp_path / "pid"
    code = ("import pathlib, signal, subprocess, sys\n"
            "child = subprocess.Popen([sys.executable, '-c', "
            "'import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); "
            "time.sleep(600)'])\n"
            f"pathlib.Path({str(note)!r}).write_text(str(child.pid))\n"
            "raise SystemExit(1)")
    run(code)
    assert is_gone(int(note.read_text()))


def is_gone(pid: int, within_s: float = 30.0) -> bool:
    """Whether the process ends, or is a zombie that waits for its new parent to look."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        try:
            os.kill(pid, 0)
            with open(f"/proc/{pid}/stat", encoding="ascii") as file:
                if file.read().rsplit(")", 1)[1].split()[0] == "Z":
                    return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.01)
    return False


def test_child_tells_how_long_it_has_run():
    heard: list[float] = []
    run("import time; time.sleep(1)", tell=heard.append)
    assert heard and heard == sorted(heard)
