"""A peer's process: loads one contender, runs rows as told on stdin, answers on stdout.

    PYTHON -m bench.peers.worker

PYTHON is that of the peers' environment. Orders (bench.peers.protocol):
{"load": CONTENDER, "folder": CHECKPOINT, "cache": FOLDER, "texts": LENGTHS} with calibration rows,
{"run": LENGTHS, "mode": MODE, "repeats": N} with rows; the answer has the wall and processor time
of each repeat in ms, and float32 logits [B, C]. What fails is answered as {"error": SENTENCE}.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import numpy as np

from bench.peers.calls import cut_calls
from bench.peers.protocol import read_frame, read_rows, write_frame
from bench.rounds import time_runs

MODULES = {"ort": "bench.peers.ort", "ct2": "bench.peers.ct2", "openvino": "bench.peers.openvino"}


def serve() -> None:
    """Answers orders until the pipe's end."""
    # Libraries print to stdout as they like: the pipe gets a descriptor of its own.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    contender: Any = None
    while True:
        try:
            order, body = read_frame(sys.stdin.buffer)
        except EOFError:
            return
        try:
            if "load" in order:
                peer = order["load"].split("-")[0]
                contender = importlib.import_module(MODULES[peer]).load(
                    order["load"], order["folder"], order["cache"],
                    read_rows(order["texts"], body))
                write_frame(answers, {"name": contender.name, "modes": list(contender.modes)})
            else:
                write_frame(answers, *_run(contender, order, body))
        except Exception as error:  # whatever a peer's library raises is reported as its failure
            said = str(error).strip().splitlines() or [""]
            write_frame(answers, {"error": f"{type(error).__name__}: {said[0]}"})


def _run(contender: Any, order: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
    rows = read_rows(order["run"], body)

    def work() -> np.ndarray:
        return contender.run(rows, cut_calls(order["run"], order["mode"], contender.max_tokens))
    burst = time_runs(work, order["repeats"])
    return ({"wall_ms": burst.wall_ms, "cpu_ms": burst.cpu_ms},
            burst.logits.astype("<f4").tobytes())


if __name__ == "__main__":
    serve()
