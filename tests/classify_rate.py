"""What `tools.classify` reaches of the rate of its engines' program alone.

    python -m tests.classify_rate [--model DIR] [--precision NAME] [--texts FILE.tsv] [--count N]
        [--engines N] [--rounds N]

The yardstick is the same program in as many processes, fed with the same texts, tokenised before,
in full batches of like lengths: no reading, tokenising, rendering or ordering. Rounds alternate;
one JSON line a figure: texts a second of both, and the ratio, the median of the rounds.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.figures import ROOT, emit, median
from bench.front import TEXTS
from loader.errors import CheckpointError
from model.program import Program, Row
from model.programs.packing import cut
from server.cores import usable_cores
from tools.offline.crew import Crew
from tools.offline.loading import load_worker
from tools.offline.source import Lines, Shard
from tools.offline.worker import Worker
from tools.texts.formats import read_tsv

MODEL = ROOT / "models" / "sms-spam"
COLUMNS = ("label", "text")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.classify_rate", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=str(MODEL), help="checkpoint folder or bundle")
    parser.add_argument("--precision", default="fp32", help="as of tools.classify")
    parser.add_argument("--texts", default=str(TEXTS), help="label<TAB>text a line")
    parser.add_argument("--count", type=int, default=10_000, help="texts, the file's over again")
    parser.add_argument("--engines", type=int, default=usable_cores())
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args(argv)
    lines = [line for line in Path(options.texts).read_bytes().split(b"\n") if line]
    lines = [lines[number % len(lines)] for number in range(options.count)]

    def read(item: bytes):
        return read_tsv(item, columns=COLUMNS)

    try:
        worker, words = load_worker(options.model, options.precision, read, False)
    except (CheckpointError, ArithmeticError) as error:
        print(error, file=sys.stderr)
        return 2
    print(words, file=sys.stderr)
    rows = sorted((worker.text(number, line).row for number, line in enumerate(lines)),
                  key=lambda row: len(row.ids))
    own, classified = [], []
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "texts.tsv")
        Path(path).write_bytes(b"\n".join(lines) + b"\n")
        for _ in range(options.rounds):
            own.append(len(lines) / _seconds(lambda: _alone(worker.program, rows, options.engines)))
            classified.append(len(lines) / _seconds(
                lambda: _classify(worker, path, options.engines)))
    facts = {"model": Path(options.model).name, "texts": len(lines), "engines": options.engines}
    emit("classify.alone", median(own), "texts/s", own, **facts)
    emit("classify.texts", median(classified), "texts/s", classified, **facts)
    ratios = [ours / alone for ours, alone in zip(classified, own)]
    emit("classify.ratio", median(ratios), "", ratios, **facts)
    return 0


def _alone(program: Program, rows: Sequence[Row], engines: int) -> None:
    """Each process takes every so manieth batch."""
    batches = list(cut(rows, program.token_cap))
    children = []
    for place in range(engines):
        child = os.fork()
        if not child:
            for batch in batches[place::engines]:
                program.run(batch)
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


def _classify(worker: Worker, path: str, engines: int) -> None:
    with Crew(worker, engines) as crew, open(os.devnull, "wb") as out:
        for answered in crew.classify(Lines(path, Shard(), 0)):
            if answered is not None:
                out.write(answered.output)


def _seconds(work: Callable[[], None]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


if __name__ == "__main__":
    sys.exit(main())
