"""The yardstick for serving: the engines' program fed from a full queue, without HTTP.

Engines are processes forked from one that built and warmed the program, as in the server. Texts are
tokenised beforehand; each engine draws whole batches of them at random for as long as it is told.
"""

import multiprocessing
import random
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from loader.prepare import map_file, open_card, prepare, seal
from loader.tokenizers.table import open_tokenizer
from model.families.table import FAMILIES

BATCH_SIZES = (1, 4, 16, 64)
CALIBRATION_S = 0.7


class Offline:
    """`engines` processes with the program of the checkpoint in `folder`, in the precision that is
    named as /info does; a context manager."""

    def __init__(self, folder: str, texts: Sequence[str], engines: int, precision: str) -> None:
        # The builder imports torch, which this process must not, as it forks.
        context = multiprocessing.get_context("fork")
        self._pipe, theirs = context.Pipe()
        self._builder = context.Process(target=_run_builder,
                                        args=(theirs, self._pipe, folder, list(texts), engines,
                                              precision))
        self._builder.start()
        theirs.close()
        self._pipe.recv()
        self.batch_size = max(BATCH_SIZES, key=lambda size: self._rate(size, CALIBRATION_S))

    def __enter__(self) -> "Offline":
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.close()
        self._builder.join()

    def rate(self, seconds: float) -> float:
        """Texts/s of all engines together, in batches of the size that was fastest at first."""
        return self._rate(self.batch_size, seconds)

    def _rate(self, batch_size: int, seconds: float) -> float:
        self._pipe.send((batch_size, seconds))
        return self._pipe.recv()


def _run_builder(pipe: Connection, other_end: Connection, folder: str, texts: Sequence[str],
                 engines: int, precision: str) -> None:
    """Builds, forks the engines, and passes orders to them until the pipe's end."""
    other_end.close()
    import numpy as np

    from model.families.table import build
    from model.program import Row

    files = seal(prepare(folder, Path(folder).name, FAMILIES, precision))
    card = open_card(files.card_fd)
    tokenizer = open_tokenizer(map_file(files.tokenizer_fd))
    program = build(card, map_file(files.weights_fd),
                    None if files.wide_fd is None else map_file(files.wide_fd))
    program.warm()
    kind = np.uint16 if card["id_bytes"] == 2 else np.uint32
    rows = []
    for text in texts:
        encoding = tokenizer.encode(text, None, card["max_tokens"])
        rows.append(Row(np.array(encoding.ids, kind), encoding.split))
    links, children = [], []
    for number in range(engines):
        ours, theirs = multiprocessing.Pipe()
        child = multiprocessing.get_context("fork").Process(
            target=_run_engine, args=(theirs, [*links, ours, pipe], program, rows, number))
        child.start()
        theirs.close()
        links.append(ours)
        children.append(child)
    pipe.send("ready")
    try:
        while True:
            order = pipe.recv()
            for link in links:
                link.send(order)
            pipe.send(sum(link.recv() for link in links))
    except EOFError:
        for link in links:
            link.close()
    for child in children:
        child.join()


def _run_engine(link: Connection, foreign: Sequence[Connection], program: object,
                rows: Sequence[object], number: int) -> None:
    """Runs batches for the time of each order and answers with texts/s, until the link's end."""
    for end in foreign:
        end.close()
    chance = random.Random(number)
    try:
        while True:
            batch_size, seconds = link.recv()
            count, begun = 0, time.perf_counter()
            while time.perf_counter() - begun < seconds:
                program.run(chance.choices(rows, k=batch_size))
                count += batch_size
            link.send(count / (time.perf_counter() - begun))
    except EOFError:
        return
