"""The loop of GPU engines around a program, fed by a process in the dispatcher's place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from model.device.ladder import Shape
from model.programs.lanes import LanePrograms
from server import link
from server.gpu_engine import GpuEngine
from server.metrics import Registry
from server.processes import ChildSpec, Control
from tools.gpucheck.networks import rows_of
from tools.gpucheck.report import ROOT

# Batches of other texts, sent in turn.
KINDS = 4


class LoopEnded(Exception):
    """The engine's loop ended by itself; the message is what it would have told its master."""


@dataclass(frozen=True)
class Loop:
    """Texts a second, batches that were answered, and those whose logits were others."""

    rate: float
    answered: int
    differing: int


def measure(program: LanePrograms, card: dict[str, Any], shape: Shape, seconds: float) -> Loop:
    """Runs the loop in this process for so long; the program is then still usable. Raises
    LoopEnded."""
    batches = [rows_of(shape, [], card["vocab_size"], seed) for seed in range(KINDS)]
    name = f"firebrick-gpucheck-{os.getpid()}-{shape.length}-{shape.batch}"
    registry = Registry(1, 1)
    ours, theirs = Control.pair()
    with tempfile.TemporaryDirectory() as folder, link.listen(name) as listener:
        path = Path(folder) / "batches.npz"
        np.savez(path, **{f"ids_{number}_{row}": text.ids.astype("<u2")
                          for number, rows in enumerate(batches)
                          for row, text in enumerate(rows)},
                 splits=np.array([[row.split for row in rows] for rows in batches]),
                 logits=np.stack([program.run(rows) for rows in batches]))
        feeder = subprocess.Popen(
            [sys.executable, "-m", "tools.gpucheck.feeder", str(listener.fileno()),
             str(ours.fileno()), str(path), str(seconds)], cwd=ROOT, text=True,
            stdout=subprocess.PIPE, pass_fds=(listener.fileno(), ours.fileno()))
        spec = ChildSpec("gpu_engine", 0, 1, 1, None, theirs, registry.page("gpu_engine", 0),
                         registry, name, os.getppid())
        engine = GpuEngine(spec, card, program, _fall)
        try:
            engine.serve()
        finally:
            if engine.link is not None:
                engine.link.close()
            told = _end(feeder)
            ours.close()        # not before: to an engine it would mean that its master is gone
            theirs.close()
    return Loop(**json.loads(told))


def _fall(reason: str, words: object) -> NoReturn:
    raise LoopEnded(f"{reason}: {words}")


def _end(feeder: subprocess.Popen[str]) -> str:
    told, _ = feeder.communicate(timeout=30)
    return told
