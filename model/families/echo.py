"""Echo: a family without weights whose answers tests can compute, and which fails on demand.

A folder with "model_type": "echo" is served as any other. Its logits are a hash of the token ids,
so a wrong, repeated or swapped answer shows. Keys of config.json beyond BERT's:

    "traps": {KIND: id, ...}   a batch with a row that holds this id misbehaves:
        exit       the process ends with status 3, unanswered
        segv       the process dies of SIGSEGV
        hang       sleeps for ever, using no CPU time
        spin       runs for ever, using all of it
        late       answers rightly, LATE_S later
        raise      raises RuntimeError
        nonsense   returns an array of another shape: one row and one class too many
    "delay_ms": ms             each batch sleeps that long
    "delay_us_per_token": us   and that much for each token in it
"""

from __future__ import annotations

import os
import signal
import time
import zlib
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from loader.config import real, whole
from loader.errors import CheckpointError
from model.program import Row

LATE_S = 0.3
EXIT_STATUS = 3
KINDS = ("exit", "segv", "hang", "spin", "late", "raise", "nonsense")
TOKEN_CAP = 4096
MAX_POSITIONS = 1 << 20
MAX_DELAY_MS = 60_000.0


def echo_logits(ids: Sequence[int], split: int, classes: int) -> list[float]:
    """The logits of one text: multiples of 2^-13 in [-4, 4), exact in float32.

    CRC-32 over `ids` as little-endian uint32, begun with `split`, then one zero byte more for each
    class; its low 16 bits are the logit. Example: echo_logits([2, 7, 3], 3, 2) is
    [0.253662109375, 3.543701171875].
    """
    state = zlib.crc32(np.asarray(ids, dtype="<u4").tobytes(), split)
    logits = []
    for _ in range(classes):
        state = zlib.crc32(b"\0", state)
        logits.append((state & 0xFFFF) / 8192 - 4)
    return logits


class EchoFamily:
    """The family's entry in the table."""

    name = "echo"
    model_types = ("echo",)
    architectures = ("EchoForSequenceClassification",)
    prefix = ""
    needs_weights = False

    def settings(self, config: dict[str, Any]) -> dict[str, Any]:
        """Sizes, traps and delays; raises CheckpointError."""
        vocabulary = whole(config, "vocab_size", 1, 1 << 24)
        traps = config.get("traps", {})
        if not isinstance(traps, dict) or not set(traps) <= set(KINDS):
            raise CheckpointError("config.json: traps must be an object of token ids by kind; "
                                  f"kinds: {', '.join(KINDS)}.")
        return {"max_position_embeddings":
                    whole(config, "max_position_embeddings", 1, MAX_POSITIONS, 512),
                "type_vocab_size": whole(config, "type_vocab_size", 1, 2, 2),
                "traps": {kind: whole(traps, kind, 0, vocabulary - 1) for kind in traps},
                "delay_ms": real(config, "delay_ms", 0.0, MAX_DELAY_MS, 0.0),
                "delay_us_per_token": real(config, "delay_us_per_token", 0.0, 1e6, 0.0)}

    def tensors(self, settings: dict[str, Any], labels: int) -> dict[str, tuple[int, ...]]:
        return {}

    def positions(self, settings: dict[str, Any]) -> int:
        return settings["max_position_embeddings"]

    def pair_types(self, settings: dict[str, Any]) -> int:
        return settings["type_vocab_size"]

    def build(self, card: dict[str, Any], image: None, plan: None) -> EchoProgram:
        return EchoProgram(card)

    def reference(self, card: dict[str, Any], weights: Any, rows: Sequence[Row]) -> np.ndarray:
        return _logits(rows, len(card["labels"]))


class EchoProgram:
    """A model.program.Program."""

    token_cap = TOKEN_CAP
    facts = {"precision": "fp32", "kernels": {}, "is_invariant": True}

    def __init__(self, card: dict[str, Any]) -> None:
        settings = card["settings"]
        self._classes = len(card["labels"])
        self._traps = {trap: kind for kind, trap in settings["traps"].items()}
        self._delay_s = settings["delay_ms"] / 1e3
        self._token_delay_s = settings["delay_us_per_token"] / 1e6

    def run(self, rows: Sequence[Row]) -> np.ndarray:
        delay_s = self._delay_s
        if self._token_delay_s:
            delay_s += self._token_delay_s * sum(len(row.ids) for row in rows)
        if delay_s:
            time.sleep(delay_s)
        extra = 0
        for trap in self._sprung(rows):
            if trap == "nonsense":
                extra = 1
            else:
                _spring(trap)
        logits = _logits(rows, self._classes)
        return np.pad(logits, (0, extra)) if extra else logits

    def _sprung(self, rows: Sequence[Row]) -> list[str]:
        """The kinds of the traps that the rows hold."""
        if not self._traps:
            return []
        held = self._traps.keys() & set().union(*(row.ids.tolist() for row in rows))
        return [self._traps[trap] for trap in held]

    def warm(self) -> None:
        """There is nothing to warm."""

    def idle(self) -> None:
        """There is nothing to give back."""

    def costs(self) -> list[tuple[int, int, float]]:
        """The configured delays and what hashing takes, without measuring."""
        return [(texts, texts * length, 1e3 * (self._delay_s + 1e-5 * texts
                                               + self._token_delay_s * texts * length))
                for texts in (1, 8) for length in (16, 256)]


def _logits(rows: Sequence[Row], classes: int) -> np.ndarray:
    return np.array([echo_logits(row.ids, row.split, classes) for row in rows],
                    dtype=np.float32).reshape(len(rows), classes)


def _spring(kind: str) -> None:
    if kind == "exit":
        os._exit(EXIT_STATUS)
    if kind == "segv":
        _die_of_segv()
    if kind == "raise":
        raise RuntimeError("a text sprang the echo model's trap")
    if kind == "late":
        time.sleep(LATE_S)
    while kind == "hang":
        time.sleep(3600)
    while kind == "spin":
        pass


def _die_of_segv() -> NoReturn:
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)  # no handler's tale of it
    os.kill(os.getpid(), signal.SIGSEGV)
    raise AssertionError("SIGSEGV did not kill")
