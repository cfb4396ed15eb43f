"""Rigs for tests of the parts of tools.gpucheck: a recorded device, tiny sizes, lines in a list."""

import json
from collections.abc import Callable
from pathlib import Path

from model.device.recorder import Recorder
from model.device.script import Script, write
from tools.gpucheck.report import Report
from tools.gpucheck.rig import Rig
from tools.gpucheck.sizes import Net, Sizes, bert

TINY = dict(small=Net("tiny", bert(32, 2, 2, 97, 32), 60_000, 85_000),
            base=Net("tiny base", bert(32, 2, 2, 97, 32), 15_000, 20_000), token_cap=64,
            rate_length=16, latency_lengths=(16,), latency_calls=10, replays=40, rate_s=0.0,
            loop_s=0.5, product=16, texts=30, rows_compared=2, load_threads=2, patience_s=60.0)
TICK_S = 5e-6


class Ticks:
    """Seconds that pass only when somebody looks: the same in every run."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        self.now += TICK_S
        return self.now


class Bench:
    """A rig on a scripted recorder of class `device`, and what was said on it."""

    def __init__(self, folder: Path, script: str = "", device: Callable = Recorder,
                 is_judged: bool = True, **sizes: object) -> None:
        faults, clock = str(folder / "faults"), Ticks()
        write(faults, script)
        self.lines: list[dict] = []
        report = Report("part", lambda line: self.lines.append(json.loads(line)), is_dry=True)

        report.is_judged = is_judged
        self.faults = faults
        self.rig = _Rig("recorder", Sizes(**{**TINY, **sizes}), report, faults,
                        lambda: device(Script(faults), clock=clock), clock)

    def verdicts(self) -> dict[str, str]:
        """The verdict of each claim; FAIL where one of the same name failed."""
        found: dict[str, str] = {}
        for line in self.lines:
            if "claim" in line:
                name = line["claim"].removeprefix("gpucheck.part.")
                if found.get(name) != "FAIL":
                    found[name] = line["verdict"]
        return found

    def failed(self) -> set[str]:
        return {name for name, verdict in self.verdicts().items() if verdict == "FAIL"}

    def figures(self) -> dict[str, float]:
        return {line["figure"].removeprefix("gpucheck.part."): line["value"]
                for line in self.lines if "figure" in line}


class _Rig(Rig):
    """Whose device says by itself whether targets are judged."""

    def open(self):
        return self.make_port()
