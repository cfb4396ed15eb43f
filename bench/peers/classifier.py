"""What a served peer computes, in each of its processes: bodies of requests in, of answers out.

A body is {"text": TEXT} or {"text": TEXT, "logits": true}; an answer has label, score, scores and,
where they were asked for, logits. Tokens come from the Rust tokenizers, JSON from orjson: what is
fast and usual. torch is nowhere near.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.peers.calls import cut_calls

VARIABLE = "FIREBRICK_PEER"
"""The environment variable through which a server's processes get their setup, as JSON."""

MODULES = {"ort": "bench.peers.ort", "ct2": "bench.peers.ct2"}


class Classifier:
    """A tokeniser and an engine on one thread, warmed."""

    def __init__(self, setup: dict[str, Any]) -> None:
        """`setup` is bench.peers.served's; the engine's files are already made."""
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        folder = Path(setup["folder"])
        config = json.loads((folder / "config.json").read_text("utf-8"))
        self._json = importlib.import_module("orjson")
        self._engine = importlib.import_module(MODULES[setup["engine"].split("-")[0]]).load(
            setup["engine"], str(folder), setup["cache"], [])
        self._mode: str = setup["mode"]
        tokenizers = importlib.import_module("tokenizers")
        self._tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(self._engine.max_tokens)
        self._tokenizer.no_padding()
        labels = config.get("id2label") or {}
        self._labels = [labels[key] for key in sorted(labels, key=int)]
        for body in (b'{"text": "warm"}', b'{"text": "warmer, and a little longer"}'):
            self.answer([body] * 2)

    def answer(self, bodies: Sequence[bytes]) -> list[bytes]:
        """The answers in the order of the bodies, which are computed together."""
        asked = [self._json.loads(body) for body in bodies]
        found = self._tokenizer.encode_batch_fast([one["text"] for one in asked])
        rows = [np.array(one.ids, np.int64) for one in found]
        calls = cut_calls([len(row) for row in rows], self._mode, self._engine.max_tokens)
        logits = self._engine.run(rows, calls)
        return [self._render(one, row) for one, row in zip(asked, logits)]

    def _render(self, asked: dict[str, Any], logits: np.ndarray) -> bytes:
        powers = np.exp(logits - logits.max())
        scores = (powers / powers.sum()).tolist()
        best = int(logits.argmax())
        answer = {"label": self._labels[best], "score": scores[best],
                  "scores": dict(zip(self._labels, scores))}
        if asked.get("logits"):
            answer["logits"] = logits.tolist()
        return self._json.dumps(answer)


def setup_of_process() -> dict[str, Any]:
    """What this server was started with."""
    return json.loads(os.environ[VARIABLE])
