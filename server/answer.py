"""Answers of the classify route: JSON objects, 16-byte records and error bodies."""

import json
from collections.abc import Sequence
from json.encoder import encode_basestring
from typing import NamedTuple
from urllib.parse import quote

from loader.wire import FAILED, NO_LABEL, NOT_UTF8, OK, TOO_LONG, pack_answer
from model.scores import scores as score_logits

RECORD_ERRORS = {NOT_UTF8: "not UTF-8", TOO_LONG: "longer than the model takes", FAILED: "failed"}


class Row(NamedTuple):
    """What is known of one text at its end. `logits` float32 [C] as Python floats, None where
    `status` is not OK; `tokens` counts ids with specials, after truncation."""

    user_id: int | str | None
    tokens: int
    truncated: bool
    logits: Sequence[float] | None
    status: int = OK


class Renderer:
    """Renders answers for one model; everything that depends on the model alone is made once."""

    def __init__(self, card: dict) -> None:
        self.function = card["function"]
        self.labels_header = ",".join(quote(label, safe="") for label in card["labels"])
        self._labels = [json.dumps(label, ensure_ascii=False) for label in card["labels"]]
        model, version = json.dumps(card["name"], ensure_ascii=False), json.dumps(card["version"])
        self._model = f'"model": {model}, "model_version": {version}'
        self._scores = "{" + ", ".join(
            label.replace("%", "%%") + ": %.6f" for label in self._labels) + "}"
        # What most requests get, in one piece.
        self._label_bytes = [label.encode() for label in self._labels]
        self._plain = (f'{{"label": %b, "score": %.6f, "scores": {self._scores}, '
                       f'"trace_id": "%b", {self._model.replace("%", "%%")}, "tokens": %d, '
                       '"truncated": %b, "latency_ms": %b}').encode()

    def winner(self, row: Row) -> tuple[int, list[float]]:
        """The index of the best label (the first of equals) and all scores, [C]."""
        values = score_logits(row.logits, self.function)
        return values.index(max(values)), values

    def plain(self, index: int, scores: Sequence[float], trace_id: bytes, tokens: int,
              truncated: bool, latency_ms: bytes) -> bytes:
        """As `one` of a text with nothing asked beside it; `index` is the best label's, `trace_id`
        holds nothing that JSON escapes, and `latency_ms` is the number that `one` writes."""
        return self._plain % (self._label_bytes[index], scores[index], *scores, trace_id, tokens,
                              b"true" if truncated else b"false", latency_ms)

    def one(self, row: Row, winner: tuple[int, list[float]] | None, want_logits: bool,
            top_k: int | None, trace_id: str, latency_ms: float) -> bytes:
        """The JSON answer to one text; `winner` is what `winner()` gave, None for a failed row."""
        fields = self._fields(row, winner, want_logits, top_k)
        return (f'{{{fields[0]}"trace_id": {_quote(trace_id)}, {self._model}, {fields[1]}, '
                f'"latency_ms": {latency_ms:.3f}}}').encode()

    def many(self, rows: Sequence[Row], winners: Sequence[tuple[int, list[float]] | None],
             want_logits: bool, top_k: int | None, trace_id: str, latency_ms: float) -> bytes:
        """The JSON answer to many texts, in order."""
        return self.join([self.result(row, winner, want_logits, top_k)
                          for row, winner in zip(rows, winners)], trace_id, latency_ms)

    def result(self, row: Row, winner: tuple[int, list[float]] | None, want_logits: bool = False,
               top_k: int | None = None) -> str:
        """One of the results of an answer to many texts."""
        return "{" + "".join(self._fields(row, winner, want_logits, top_k)) + "}"

    def join(self, results: Sequence[str], trace_id: str, latency_ms: float) -> bytes:
        """The JSON answer that holds these results."""
        return (f'{{"results": [{", ".join(results)}], "trace_id": {_quote(trace_id)}, '
                f'{self._model}, "latency_ms": {latency_ms:.3f}}}').encode()

    def record(self, user_id: int, row: Row, winner: tuple[int, list[float]] | None) -> bytes:
        """The 16-byte answer to one record."""
        if winner is None:
            return pack_answer(user_id, float("nan"), NO_LABEL, row.status)
        index, values = winner
        return pack_answer(user_id, values[index], index, OK)

    def _fields(self, row: Row, winner: tuple[int, list[float]] | None, want_logits: bool,
                top_k: int | None) -> tuple[str, str]:
        """The members of a row's object: label and scores with a trailing comma, then the rest."""
        user = "" if row.user_id is None else f'"user_id": {_quote(row.user_id)}'
        if winner is None:
            error = f'"error": {_quote(RECORD_ERRORS[row.status])}'
            return "", f"{user}, {error}" if user else error
        index, values = winner
        if top_k is None:
            table = self._scores % tuple(values)
        else:
            best = sorted(range(len(values)), key=values.__getitem__, reverse=True)[:top_k]
            table = "{" + ", ".join(f"{self._labels[i]}: {values[i]:.6f}" for i in best) + "}"
        head = f'"label": {self._labels[index]}, "score": {values[index]:.6f}, "scores": {table}, '
        rest = f'"tokens": {row.tokens}, "truncated": {"true" if row.truncated else "false"}'
        if user:
            rest += ", " + user
        if want_logits:
            rest += ', "logits": [' + ", ".join(map(_float, row.logits)) + "]"
        return head, rest


def render_error(code: str, message: str, trace_id: str) -> bytes:
    """The JSON body of every error."""
    return error_body(error_start(code, message), trace_id)


def error_start(code: str, message: str) -> bytes:
    """An error's body up to the trace id, for those that are sent often."""
    return (f'{{"error": {{"code": {_quote(code)}, "message": {_quote(message)}}}, '
            '"trace_id": ').encode()


def error_body(start: bytes, trace_id: str) -> bytes:
    """The JSON body that begins so."""
    return b"%b%b}" % (start, encode_basestring(trace_id).encode())


def _quote(value: int | str) -> str:
    return encode_basestring(value) if isinstance(value, str) else str(value)


def _float(value: float) -> str:
    """A float32 that reads back as the same: nine significant digits do (IEEE 754: 1 + 24 log10 2),
    and a point or an exponent, without which a reader takes it for an integer (and -0 for 0)."""
    text = f"{value:.9g}"
    return text if "." in text or "e" in text else text + ".0"
