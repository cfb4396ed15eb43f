"""The short form of every benchmark, one after another, into one results file and one page.

    python -m bench.all [--model DIR] [--texts FILE] [--only PROGRAM ...]

A program that fails, hangs or prints nonsense is said so, in the results too, and the others go on.
`--model` measures another checkpoint or bundle beside the shipped one. What runs against other
engines needs their packages; one command, which is said at the start, brings them.
"""

from __future__ import annotations

import argparse
import datetime
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.child import Outcome, run_child
from bench.figures import commit, figure_line, machine
from bench.peers.venv import FOLDER as PEER_FOLDER
from bench.report import write_page
from bench.results import results_path

LIMIT_S = 870.0      # of all together: make bench promises 15 minutes
SLACK = 2.5          # times the expected seconds after which a program hangs
HEAD_START_S = 20.0  # a program that expects less may take this long
LATE = 1.25          # times the expected seconds above which a program is named at the end
ENGINES = ("ort", "ct2")
SERVERS = ("fastapi-ort", "mosec-ort", "mosec-ct2")
# Of 512 tokens where two texts are not more: longer batches take longer and show the same.
BUCKET_SHAPES = ("8x16", "8x32", "8x64", "4x128", "2x256", "2x512")
ROOFLINE_SHAPES = ("8x32", "4x128")
# Without ONNX Runtime's fused fp32 graph, which was slower than the plain one in every shape.
CONTENDERS = ("fp32", "fp16", "bf16", "int8", "ort-fp32", "ort-int8", "ort-int8-fused",
              "ct2-float32", "ct2-int8")
# Seconds on two cores of a Xeon with AMX, its starts and ends included, with MiniLM as the model
# where one is named: some 750 in all, so that what is made once (exports, our bundle) fits too.
EXPECTED_S = {"padding": 3, "load": 105, "engine": 60, "engine with others": 110, "roofline": 35,
              "peers": 120, "load-model": 105, "serve-model": 55, "serve": 40, "front": 45,
              "tokenize": 2, "cache": 30, "schedule": 20, "peers-shipped": 75, "neighbours": 150}


@dataclass(frozen=True)
class Step:
    """A program of the plan, and how long it takes."""

    name: str
    arguments: tuple[str, ...]
    expected_s: float

    @property
    def limit_s(self) -> float:
        return max(HEAD_START_S, SLACK * self.expected_s)

    @property
    def command(self) -> str:
        """As a person would type it; of paths outside the clone the names alone, since they are of
        one machine and results are for others."""
        said = [one if not Path(one).is_absolute() and ".." not in Path(one).parts
                else Path(one).name for one in self.arguments]
        return " ".join(("python -m", *said))


def make_plan(model: str | None, texts: str | None, has_peers: bool) -> list[Step]:
    """The programs in their order: what the page is about first, so that on a slow machine, where
    the time is over sooner, the rest is left out."""
    named = (*(("--model", model) if model else ()), *(("--texts", texts) if texts else ()))
    engines = ("--peer", *ENGINES, "--only", *CONTENDERS) if has_peers else ()
    # Of a model and the shipped one, the larger tells more about programs: there is time for one.
    steps = [_step("padding", "bench.padding"),
             _step("load", "bench.load_curve", "--short"),
             Step("engine", ("bench.engine", "--short", *named, "--shapes", *BUCKET_SHAPES,
                             *engines),
                  EXPECTED_S["engine with others" if has_peers else "engine"]),
             _step("roofline", "bench.engine", "--short", "--roofline", *named, "--shapes",
                   *ROOFLINE_SHAPES)]
    if has_peers:
        steps.append(_step("peers", "bench.peers", "--short", *named))
    if model:
        steps += [_step("load-model", "bench.load_curve", "--short", *named),
                  _step("serve-model", "bench.serve", "--short", *named)]
    steps += [_step("serve", "bench.serve", "--short"),
              _step("front", "bench.front", "--short"),
              _step("tokenize", "bench.tokenize", "--rounds", "3"),
              _step("cache", "bench.cache", "--short"),
              _step("schedule", "bench.simulate_schedule", "--seconds", "10")]
    if not model:
        steps.append(_step("neighbours", "bench.neighbours", "--short"))
    elif has_peers:
        steps.append(_step("peers-shipped", "bench.peers", "--short", "--traffic", "short"))
    return steps


def _step(name: str, *arguments: str) -> Step:
    return Step(name, arguments, EXPECTED_S[name])


def run_steps(steps: Sequence[Step], results: Path) -> list[tuple[Step, Outcome]]:
    """Runs the steps within LIMIT_S; their lines and one of each program's own go to `results`."""
    begun, outcomes = time.perf_counter(), []
    ahead_s = sum(step.expected_s for step in steps)
    with open(results, "w", encoding="utf-8") as file:
        for number, step in enumerate(steps, 1):
            left_s = LIMIT_S - (time.perf_counter() - begun)
            title = f"[{number}/{len(steps)}] {step.name}"
            _say(f"{title}: some {step.expected_s:.0f} s, {ahead_s:.0f} s to the end")
            if left_s < step.expected_s:
                outcome = Outcome((), 0.0, f"was left out: {max(left_s, 0):.0f} s of "
                                           f"{LIMIT_S:.0f} s were left")
            else:
                outcome = run_child((sys.executable, "-m", *step.arguments),
                                    min(step.limit_s, left_s), _progress(title))
            ahead_s -= step.expected_s
            outcomes.append((step, outcome))
            file.writelines(line + "\n" for line in outcome.lines)
            file.write(figure_line("bench.program", outcome.took_s, "s", program=step.name,
                                   command=step.command, figures=len(outcome.lines),
                                   fault=outcome.fault) + "\n")
            file.flush()
            _say(f"{title}: {len(outcome.lines)} figures in {outcome.took_s:.0f} s"
                 + (f"; it {outcome.fault}" if outcome.fault else ""))
    return outcomes


def _progress(title: str):
    if not sys.stderr.isatty():
        return lambda passed_s: None
    return lambda passed_s: print(f"\r{title}: {passed_s:.0f} s", end="\r", file=sys.stderr)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.all", allow_abbrev=False)
    parser.add_argument("--model", help="a checkpoint or bundle to measure beside the shipped one")
    parser.add_argument("--texts", help="its texts, one a line, last column")
    parser.add_argument("--only", nargs="+", metavar="PROGRAM", help="leave the others out")
    options = parser.parse_args(arguments)
    for named in filter(None, (options.model, options.texts)):
        if not Path(named).exists():
            parser.exit(2, f"there is no {named}\n")
    has_peers = (PEER_FOLDER / "bin" / "python").is_file()
    steps = make_plan(options.model, options.texts, has_peers)
    names = [step.name for step in steps]
    for name in options.only or ():
        if name not in names:
            parser.exit(2, f"there is no program {name}; there are {', '.join(names)}\n")
    steps = [step for step in steps if not options.only or step.name in options.only]
    day = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    results = results_path(day, commit(), is_part=bool(options.only))
    results.parent.mkdir(exist_ok=True)
    _say(f"{machine()}; load {os.getloadavg()[0]:.1f} of others before it begins")
    if not has_peers:
        _say("without other engines: python -m bench.peers.venv " + " ".join((*SERVERS, *ENGINES))
             + " brings them, some 2 GB")
    outcomes = run_steps(steps, results)
    page = write_page(results)
    print(f"{os.path.relpath(results)}\n{os.path.relpath(page)}")
    for step, outcome in outcomes:
        if outcome.took_s > max(LATE * step.expected_s, HEAD_START_S):
            _say(f"{step.name} took {outcome.took_s:.0f} s, {step.expected_s:.0f} s are planned")
    failed = [(step, outcome) for step, outcome in outcomes if outcome.fault]
    for step, outcome in failed:
        _say(f"{step.command} {outcome.fault}")
    return 1 if failed else 0


if __name__ == "__main__":
    # As by Ctrl-C: the program that runs ends with this one.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("make bench was ended"))
    sys.exit(main(sys.argv[1:]))
