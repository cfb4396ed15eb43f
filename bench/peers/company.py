"""Whether a server's answers depend on what comes with them: logits over HTTP, compared."""

from __future__ import annotations

import http.client
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from bench.rounds import largest_change

CONNECTIONS = 32
ANSWER_TIMEOUT_S = 60.0
HEADERS = {"Content-Type": "application/json"}


class Change(NamedTuple):
    """Between alone and in company: the largest |Δlogit|, and how many of `answers` chose another
    label."""

    largest: float
    flipped: int
    answers: int


def change_in_company(host: str, port: int, texts: Sequence[str], rounds: int) -> Change:
    """Asks for each text alone, then for all of them over 32 connections, `rounds` times."""
    alone = _ask(host, port, texts)
    company = []
    for number in range(rounds):
        # Each round hands every connection other texts, so that others meet.
        moved = list(range(len(texts)))[number:] + list(range(number))
        parts = [moved[first::CONNECTIONS] for first in range(min(CONNECTIONS, len(texts)))]
        with ThreadPoolExecutor(len(parts)) as pool:
            found = list(pool.map(
                lambda part: _ask(host, port, [texts[at] for at in part]), parts))
        logits = np.empty_like(alone)
        for part, rows in zip(parts, found):
            logits[part] = rows
        company.append(logits)
    return compared(alone, company)


def compared(alone: np.ndarray, company: Sequence[np.ndarray]) -> Change:
    """Of logits [B, C] alone and of each round in company."""
    return Change(max(largest_change(logits, alone) for logits in company),
                  sum(int((logits.argmax(1) != alone.argmax(1)).sum()) for logits in company),
                  len(alone) * len(company))


def _ask(host: str, port: int, texts: Sequence[str]) -> np.ndarray:
    """The logits of each text, float64 [B, C], one after another on one connection."""
    connection = http.client.HTTPConnection(host, port, timeout=ANSWER_TIMEOUT_S)
    try:
        found = []
        for text in texts:
            connection.request("POST", "/infer", json.dumps({"text": text, "logits": True}),
                               HEADERS)
            response = connection.getresponse()
            body = response.read()
            if response.status != 200:
                raise RuntimeError(f"a text was answered {response.status}: {body[:200]!r}")
            found.append(_row(json.loads(body)["logits"]))
        return np.array(found)
    finally:
        connection.close()


def _row(logits: list[float] | dict[str, float]) -> list[float]:
    """Ours are by label, in the model's order."""
    return list(logits.values()) if isinstance(logits, dict) else logits
