"""How fast the programs are, one core, beside plain torch and beside other engines.

    python -m bench.engine [--short] [--model DIR] [--texts FILE ...] [--base]
        [--peer ort|ct2|openvino ...] [--peer-python PATH] [--invariance] [--roofline]
        [--shapes 8x32 ...] [--only int8 ct2-int8 ...]

One JSON line a figure on stdout, the same as tables on stderr. Values are medians over interleaved
rounds of processor time (all threads of the contender's process; `wall_ms` is beside it), `best_ms`
is the least of all.

engine.ms          a batch: of texts of one length (`shape`, TEXTSxTOKENS), or of the file's texts
engine.ratio       how many times as long another contender took in the same rounds
engine.invariance  max |Δlogit| of texts between other company and alone (--invariance)
engine.peak        GOP/s of a kernel on the model's products (--roofline)
engine.fraction    what the program reaches of its kernel's peak (--roofline)

--invariance and --roofline measure what they say instead of time. Peers run in a scratch
environment (bench/peers/venv.py), one thread each, in their fastest way of being called.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.client import read_texts
from bench.engine_report import report_grid, report_invariance, report_ragged
from bench.figures import ROOT
from bench.front import TEXTS
from bench.ours import PRECISIONS, Model, Ours, Unoffered
from bench.peers.contender import PeerContender, PeerError
from bench.peers.venv import FOLDER, environment, files_of, missing
from bench.random_bert import write_base
from bench.rounds import Contender, fastest_mode, time_in_turn
from loader.errors import CheckpointError

MODEL = ROOT / "models" / "sms-spam"
GRID = ((1, 16), (1, 64), (1, 128), (8, 32), (32, 16), (8, 64), (8, 128), (4, 256), (32, 64))
GRID_SHORT = ((1, 16), (1, 128), (8, 32), (32, 16))
ROUNDS, ROUNDS_SHORT = 15, 3
RAGGED_TEXTS, RAGGED_SHORT = 125, 64
CALIBRATION_TEXTS = 300
SEED = 11
PEER_CONTENDERS = {
    "ort": ("ort-fp32", "ort-fp32-fused", "ort-int8", "ort-int8-fused"),
    "ct2": ("ct2-float32", "ct2-int8"),
    "openvino": ("openvino-fp32", "openvino-bf16", "openvino-int8", "openvino-int8_bf16")}
# Ways to call an engine with texts of one length: none of them pads.
SAME_LENGTH_MODES = ("whole", "256", "alone")


def shape(text: str) -> tuple[int, int]:
    """(texts, tokens) of TEXTSxTOKENS, both above 0."""
    texts, _, tokens = text.partition("x")
    if not (texts.isdecimal() and tokens.isdecimal() and int(texts) and int(tokens)):
        raise argparse.ArgumentTypeError(f"{text} is no shape; one is 8x32: texts x tokens")
    return int(texts), int(tokens)


def same_length(texts: int, tokens: int, vocab: int) -> list[np.ndarray]:
    """Rows of random ids, the same for a shape."""
    chance = random.Random(f"{SEED} {texts} {tokens}")
    return [np.array([chance.randrange(5, vocab) for _ in range(tokens)]) for _ in range(texts)]


def some(rows: Sequence[np.ndarray], count: int) -> list[np.ndarray]:
    """At most `count` of the rows, drawn once and for all."""
    return random.Random(SEED).sample(list(rows), min(count, len(rows)))


def open_contenders(stack: contextlib.ExitStack, model: Model, python: str | None,
                    options: argparse.Namespace) -> list[Contender]:
    """The ladder, then the peers; who cannot run is named in a sentence on stderr."""
    from bench.eager import Eager  # torch, only now

    def is_wanted(key: str) -> bool:
        return not options.only or key in options.only

    contenders: list[Contender] = [Eager(model.card, model.tensors())]
    for precision in filter(is_wanted, PRECISIONS):
        try:
            contenders.append(Ours(model, precision))
        except Unoffered as error:
            print(error, file=sys.stderr)
    if python is None:
        return contenders
    cache = files_of(model.name, model.card["version"])
    calibration = some(model.encode(read_texts(options.calibrate or options.texts[0])),
                       CALIBRATION_TEXTS)
    for peer in options.peer:
        for key in filter(is_wanted, PEER_CONTENDERS[peer]):
            try:
                contenders.append(stack.enter_context(
                    PeerContender(python, key, model.folder, cache, calibration)))
            except PeerError as error:
                print(error, file=sys.stderr)
    return contenders


def measure_grid(model: Model, contenders: Sequence[Contender], options: argparse.Namespace,
                 rounds: int) -> None:
    """Batches of one shape: everybody with the same ids, called in the way that is fastest."""
    results = {}
    for texts, tokens in options.shapes:
        if tokens > model.card["max_tokens"]:
            continue
        rows = same_length(texts, tokens, model.card["vocab_size"])
        modes = SAME_LENGTH_MODES if texts > 1 else ("whole",)
        entries = [(one, fastest_mode(one, rows, modes) if one.key not in PRECISIONS else "whole")
                   for one in contenders]
        results[f"{texts}x{tokens}"] = time_in_turn(entries, rows, rounds)
        print(f"{model.name} {texts}x{tokens} done", file=sys.stderr)
    report_grid(model.name, results)


def measure_ragged(model: Model, contenders: Sequence[Contender], path: Path, count: int,
                   rounds: int) -> None:
    """`count` of the file's texts as one batch: padding engines in buckets, one by one, and at
    their best."""
    rows = some(model.encode(read_texts(path)), count)
    entries = []
    for one in contenders:
        if one.key in PRECISIONS:
            entries.append((one, "whole"))
            continue
        best = fastest_mode(one, rows, one.modes)
        entries += [(one, mode) for mode in dict.fromkeys((best, "alone", "buckets"))
                    if mode in one.modes]
    report_ragged(model.name, path.name, rows, time_in_turn(entries, rows, rounds))


def measure_invariance(model: Model, contenders: Sequence[Contender], path: Path,
                       count: int) -> None:
    """Each text alone, then in other company: all, moved, half of them, equals."""
    rows = some(model.encode(read_texts(path)), count)
    report_invariance(model.name, path.name, rows, contenders)


def draw_roofline(model: Model, contenders: Sequence[Contender], options: argparse.Namespace,
                  rounds: int) -> None:
    """Our programs against the machine's peaks, on the grid and on ragged texts."""
    from bench.roofline import measure_roofline  # torch, only now

    vocab = model.card["vocab_size"]
    batches = {f"{texts}x{tokens}": same_length(texts, tokens, vocab)
               for texts, tokens in options.shapes if tokens <= model.card["max_tokens"]}
    if not options.base:
        batches |= {path.name: some(model.encode(read_texts(path)), options.ragged)
                    for path in options.texts}
    ours = [one for one in contenders if isinstance(one, Ours)]
    measure_roofline(model.name, model.card["settings"], ours, batches, rounds)


def parse() -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    parser = argparse.ArgumentParser(prog="python -m bench.engine")
    parser.add_argument("--short", action="store_true",
                        help=f"{ROUNDS_SHORT} rounds, a few shapes, {RAGGED_SHORT} ragged texts, "
                             f"else {ROUNDS} rounds, {RAGGED_TEXTS} texts")
    parser.add_argument("--model", default=str(MODEL), help="checkpoint folder")
    parser.add_argument("--texts", type=Path, nargs="+", default=[TEXTS],
                        help="files of ragged texts, one a line, last column")
    parser.add_argument("--calibrate", type=Path,
                        help="texts that peers may calibrate on; else the first of --texts")
    parser.add_argument("--base", action="store_true",
                        help="the grid with a random checkpoint of BERT-base's shape, nothing else")
    parser.add_argument("--peer", nargs="+", choices=sorted(PEER_CONTENDERS), default=[])
    parser.add_argument("--peer-python", help="a Python that has the peers, else .bench-venv")
    parser.add_argument("--invariance", action="store_true")
    parser.add_argument("--roofline", action="store_true")
    parser.add_argument("--shapes", type=shape, nargs="+", metavar="TEXTSxTOKENS",
                        help="the grid")
    parser.add_argument("--only", nargs="+", default=[], metavar="CONTENDER",
                        help="beside eager, which the others are compared with; as in figures")
    options = parser.parse_args()
    options.ragged = RAGGED_SHORT if options.short else RAGGED_TEXTS
    options.shapes = options.shapes or (GRID_SHORT if options.short else GRID)
    return parser, options


def main() -> None:
    parser, options = parse()
    for needed in [*options.texts, *filter(None, [options.calibrate])]:
        if not needed.is_file():
            parser.exit(2, f"there is no {needed}\n")
    python = None
    if options.peer:
        try:
            python = options.peer_python or environment(FOLDER, options.peer)
        except PeerError as error:
            parser.exit(2, f"{error}\n")
        for problem in [missing(python, peer) for peer in options.peer]:
            if problem:
                print(problem, file=sys.stderr)
        options.peer = [peer for peer in options.peer if not missing(python, peer)]
    # One core for us and, inherited, for every peer; the last, as the first serves interrupts.
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    rounds = ROUNDS_SHORT if options.short else ROUNDS
    with contextlib.ExitStack() as stack:
        folder = options.model
        if options.base:
            scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="firebrick-base-"))
            folder = str(write_base(Path(scratch) / "bert-base-random"))
        try:
            model = Model(folder)
        except CheckpointError as error:
            parser.exit(2, f"{error}\n")
        if model.card["family"] != "bert":
            parser.exit(2, f"{folder} is of the family {model.card['family']}; the ladder knows "
                           "bert only: name a BERT checkpoint with --model\n")
        contenders = open_contenders(stack, model, python, options)
        if options.roofline:
            draw_roofline(model, contenders, options, rounds)
        if options.invariance:
            measure_invariance(model, contenders, options.texts[0], options.ragged)
        if options.roofline or options.invariance:
            return
        measure_grid(model, contenders, options, rounds)
        for path in [] if options.base else options.texts:
            measure_ragged(model, contenders, path, options.ragged, rounds)


if __name__ == "__main__":
    main()
