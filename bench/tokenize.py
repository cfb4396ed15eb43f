"""Texts tokenised a second by one thread, what a front pays to open the tables, the worst bodies.

    python -m bench.tokenize [TSV ...] [--model FOLDER ...] [--peer PYTHON]

Models are checkpoints, or folders with tokenizer files alone, of any kind. `--peer` names a Python
that has the `tokenizers` package: it takes turns with ours on the same tokenizer.json and texts,
one thread each, and must give the same ids.
"""

import argparse
import hashlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench.client import read_texts
from bench.figures import ROOT, emit, median
from loader.checkpoint import Folder
from loader.tokenizer_files import read_tokenizer
from loader.tokenizers.table import Encoding, Tokenizer, compile_tokenizer, open_tokenizer

TEXTS = ROOT / "data" / "sms-spam" / "eval.tsv"
MODEL = ROOT / "models" / "sms-spam"
MAX_TOKENS = 512
BODY_BYTES = 4 << 20
# Bodies that cost a careless tokeniser seconds.
BODIES = {
    "letters": "a", "cyrillic": "ж", "hangul": "한", "punctuation": ".", "ideographs": "中",
    "marks": "\u0301", "spaces": " ", "controls": " \x01", "zero width": "\u200b ",
    "barriers": "\u034f\u0301", "special tokens": "[SEP]</s>", "dashes": "-", "lines": "\r\n",
    "words": "the quick brown fox ", "kana": "あいうえお", "flags": "🇩🇪", "unordered": "a\u0301\u0323",
}
PEER = """
import hashlib, json, sys, time
from tokenizers import Tokenizer
tokenizer = Tokenizer.from_file(sys.argv[1])
tokenizer.no_padding()
tokenizer.enable_truncation(int(sys.argv[2]))
texts = json.loads(sys.stdin.readline())
ids = [tokenizer.encode(text).ids for text in texts]
print(hashlib.sha256(json.dumps(ids).encode()).hexdigest(), flush=True)
for line in sys.stdin:
    begun = time.perf_counter()
    for text in texts:
        tokenizer.encode(text).ids
    print(time.perf_counter() - begun, flush=True)
"""


class Peer:
    """A child that tokenises the same texts with the `tokenizers` package when asked to."""

    def __init__(self, python: str, tokenizer_json: Path, texts: Sequence[str]) -> None:
        self._child = subprocess.Popen(
            [python, "-c", PEER, str(tokenizer_json), str(MAX_TOKENS)], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"})
        self._tell(json.dumps(texts))
        self.ids_hash = self._hear()

    def seconds(self) -> float:
        """How long one pass over the texts takes."""
        self._tell("again")
        return float(self._hear())

    def close(self) -> None:
        """Ends the child."""
        self._child.stdin.close()
        self._child.wait()
        self._child.stdout.close()

    def _tell(self, line: str) -> None:
        self._child.stdin.write(line + "\n")
        self._child.stdin.flush()

    def _hear(self) -> str:
        line = self._child.stdout.readline()
        if not line:
            raise SystemExit("the peer's Python ended; does it have the package tokenizers?")
        return line.strip()


def seconds(work: Callable[[], object]) -> float:
    """How long it takes once."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def longest_step(steps: Iterator[Encoding | None]) -> float:
    """How long the longest piece of work takes, in ms."""
    longest, is_done = 0.0, False
    while not is_done:
        begun = time.perf_counter()
        is_done = next(steps) is not None
        longest = max(longest, time.perf_counter() - begun)
    return 1000 * longest


def measure_texts(tokenizer: Tokenizer, texts: Sequence[str], rounds: int, peer: Peer | None,
                  **facts: str) -> None:
    """Texts a second: the first pass with an empty cache, then warm, beside the peer."""
    def whole() -> list[list[int]]:
        return [tokenizer.encode(text, None, MAX_TOKENS).ids for text in texts]

    emit("tokenize_first_pass", len(texts) / seconds(whole), "texts/s", **facts)
    if peer is not None and hashlib.sha256(json.dumps(whole()).encode()).hexdigest() \
            != peer.ids_hash:
        raise SystemExit(f"{facts}: the peer's ids are others; do its settings differ?")
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(len(texts) / seconds(whole))
        if peer is not None:
            theirs.append(len(texts) / peer.seconds())
    emit("tokenize_warm", median(ours), "texts/s", ours, **facts)
    if theirs:
        emit("tokenize_peer", median(theirs), "texts/s", theirs, **facts)
        ratios = [mine / other for mine, other in zip(ours, theirs)]
        emit("tokenize_to_peer", median(ratios), "x", ratios, **facts)


def measure_bodies(tokenizer: Tokenizer, rounds: int, **facts: str) -> None:
    """The worst bodies, each as long as a request may be: whole, and the longest step of it."""
    for name, unit in BODIES.items():
        text = unit * (BODY_BYTES // len(unit.encode()))
        runs = [1000 * seconds(lambda: tokenizer.encode(text, None, MAX_TOKENS))
                for _ in range(rounds)]
        emit("tokenize_worst_body", median(runs), "ms", runs, body=name, **facts)
        emit("tokenize_longest_step", longest_step(tokenizer.steps(text, None, MAX_TOKENS)), "ms",
             body=name, **facts)


def measure(model: Path, paths: Sequence[Path], rounds: int, python: str | None) -> None:
    """All figures of one folder."""
    with Folder(str(model)) as folder:
        table = compile_tokenizer(read_tokenizer(folder)[0])
    runs = [1000 * seconds(lambda: open_tokenizer(table)) for _ in range(rounds)]
    emit("tokenize_open", median(runs), "ms", runs, model=model.name, bytes=len(table))
    for path in paths:
        texts = read_texts(path)
        peer = Peer(python, model / "tokenizer.json", texts) if python else None
        measure_texts(open_tokenizer(table), texts, rounds, peer, model=model.name,
                      file=path.name)
        if peer is not None:
            peer.close()
    measure_bodies(open_tokenizer(table), rounds, model=model.name)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.tokenize")
    parser.add_argument("texts", type=Path, nargs="*", default=[TEXTS],
                        help="one text a line, last column")
    parser.add_argument("--model", type=Path, action="append",
                        help="folder with a checkpoint's tokenizer files; may be given again")
    parser.add_argument("--peer", help="a Python with the package tokenizers")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    for needed in options.texts:
        if not needed.is_file():
            parser.exit(2, f"there is no {needed}\n")
    for model in options.model or [MODEL]:
        measure(model, options.texts, options.rounds, options.peer)


if __name__ == "__main__":
    main()
