"""`POST /infer` with JSON or text: bodies to token ids to requests in flight, and back to answers.

Work on a body is a generator that yields between bounded pieces, so that one large body cannot hold
up a turn of the front's loop. It ends when the request is in flight or refused (ClientError); its
answer is rendered by `finish` when the outcome is known.
"""

import struct
import time
from array import array
from collections.abc import Iterator, Sequence
from itertools import count

from loader.tokenizers.id_runs import IdRuns
from loader.tokenizers.table import Tokenizer
from loader.wire import FAILED
from model.grid import bucket
from server import log
from server.actions import Outcome
from server.answer import Renderer, Row
from server.body import ClassifyBody, TextItem, read_json, read_text
from server.connection import Exchange
from server.errors import ClientError
from server.inflight import InFlight
from server.messages import CACHE, ENGINE_KINDS, Result
from server.messages import Row as JobRow
from server.metrics import Page
from server.metrics_schema import LENGTH_BUCKETS, MAX_LABELS
from server.plain_bodies import PlainBodies
from server.replies import JSON as JSON_TYPE
from server.replies import Replies, outcome_error
from server.routes import TEXT

# A longer body is worked on in pieces, after everybody's sockets were served.
INLINE_BYTES = 8 << 10
# Texts are tokenised in pieces of about this many characters, some hundred µs.
PIECE_CHARACTERS = 8 << 10
# What a text costs whatever its length, in characters.
TEXT_CHARACTERS = 200


# What is kept of a text until its answer: (user_id, tokens, whether it was cut).
Text = tuple[int | str | None, int, bool]


class Counters:
    """A front's metrics of classified texts, each looked up once."""

    def __init__(self, page: Page, card: dict) -> None:
        self.tokenize_seconds = page.histogram("tokenize_seconds")
        # A model's last bucket is its limit, which may lie between two that are counted.
        self.request_seconds = {
            length: page.histogram("request_seconds", bucket=bucket(
                min(length, LENGTH_BUCKETS[-1]), LENGTH_BUCKETS))
            for length in card["buckets"]}
        self.predictions = [page.counter("predictions_total", label=min(index, MAX_LABELS - 1))
                            for index in range(len(card["labels"]))]


class Classifier:
    """Classifies for one front with one model."""

    def __init__(self, card: dict, tokenizer: Tokenizer, settings: object, page: Page,
                 inflight: InFlight, replies: Replies) -> None:
        self.card = card
        self.renderer = Renderer(card)
        self.inflight = inflight
        self.replies = replies
        self.counters = Counters(page, card)
        self.max_tokens = card["max_tokens"]
        self.takes_pairs = card["pair_types"] > 1
        self._id_code = "H" if card["id_bytes"] == 2 else "I"
        self.runs = IdRuns(tokenizer, self._id_code, self.max_tokens)
        self.plain_bodies = PlainBodies(tokenizer, self.runs, self._id_code, self.max_tokens)
        self._max_texts = settings.max_texts
        self.may_cut = settings.truncate == "auto"
        self.logs_text = settings.log_text
        self.buckets = {tokens: bucket(tokens, card["buckets"])
                        for tokens in range(self.max_tokens + 1)}
        self.logits = struct.Struct(f"<{len(card['labels'])}f")
        self.targets: dict[int, object] = {}     # group → whose end it is
        self.groups = count(1)                  # the numbers of new ones
        self._last_batch: tuple[int, ...] = ()
        self._batch_fields = b""

    def encode(self, text: str, pair: str | None) -> tuple[JobRow, bool]:
        """(what travels to an engine, whether the text was cut)."""
        tokens, split, ids, was_cut = self.runs.encode(text, pair)
        return JobRow(tokens, split, ids), was_cut

    def row(self, ids: Sequence[int], split: int) -> JobRow:
        """Token ids as they travel to an engine."""
        return JobRow(len(ids), split, array(self._id_code, ids).tobytes())

    def may_take(self, was_cut: bool) -> bool:
        """Whether a text is classified, cut or not (`--truncate`)."""
        return self.may_cut or not was_cut

    def start(self, exchange: Exchange, content: bytes) -> Iterator[None] | None:
        """Takes a JSON or text body into flight, or gives a generator that does so in pieces.

        Both raise ClientError.
        """
        if len(content) > INLINE_BYTES:
            return self._work(exchange, content)
        for _ in self._encode_all(exchange, self._read(exchange, content)):
            continue
        return None

    def _read(self, exchange: Exchange, content: bytes) -> ClassifyBody:
        return read_text(content) if exchange.plan.kind == TEXT \
            else read_json(content, self._max_texts)

    def _work(self, exchange: Exchange, content: bytes) -> Iterator[None]:
        body = self._read(exchange, content)
        yield
        yield from self._encode_all(exchange, body)

    def _encode_all(self, exchange: Exchange, body: ClassifyBody) -> Iterator[None]:
        jobs: list[JobRow] = []
        texts: list[Text] = []
        spent_s, piece = 0.0, 0
        begun = time.perf_counter()
        for item in body.texts:
            job, text = self._encode(item)
            jobs.append(job)
            texts.append(text)
            piece += TEXT_CHARACTERS + len(item.text)
            if piece > PIECE_CHARACTERS:
                piece = 0
                spent_s += time.perf_counter() - begun
                yield
                begun = time.perf_counter()
        self._open(exchange, body, jobs, texts, spent_s + time.perf_counter() - begun)

    def _encode(self, item: TextItem) -> tuple[JobRow, Text]:
        text, pair, user_id = item
        if pair is not None and not self.takes_pairs:
            raise ClientError(400, "invalid_field", "this model takes one text, no pair; leave "
                              "text_pair out")
        job, was_cut = self.encode(text, pair)
        if was_cut and not self.may_cut:
            raise self._too_long()
        return job, (user_id, job.tokens, was_cut)

    def _too_long(self) -> ClientError:
        return ClientError(422, "text_too_long", f"a text has more than {self.max_tokens} tokens; "
                           "shorten it or start with --truncate auto")

    def _log(self, exchange: Exchange, texts: list[str]) -> None:
        log.event("request", trace_id=self.replies.trace_id(exchange), texts=texts)

    def _open(self, exchange: Exchange, body: ClassifyBody, jobs: list[JobRow],
              texts: list[Text], spent_s: float) -> None:
        self.counters.tokenize_seconds.observe(spent_s)
        if self.logs_text:
            self._log(exchange, [text for text, _, _ in body.texts])
        # Not the texts themselves, which may be megabytes.
        exchange.details = body.many, body.logits, body.top_k, texts, spent_s * 1000
        exchange.group = self.open(exchange, exchange, jobs, exchange.plan.priority)

    def open(self, target: object, exchange: Exchange, jobs: Sequence[JobRow], priority: int,
             is_partial: bool = False) -> int:
        """Puts texts of an exchange into flight as one group, whose end goes to `target`."""
        group = next(self.groups)
        self.targets[group] = target
        deadline_s = exchange.plan.deadline_s
        self.inflight.open(group, exchange.connection.number, priority,
                           None if deadline_s is None else exchange.received_at + deadline_s,
                           jobs, time.monotonic(), is_partial)
        return group

    def abandon(self, group: int) -> None:
        """Gives up a group: its client left."""
        self.targets.pop(group, None)
        self.inflight.cancel(group)

    def finish(self, exchange: Exchange, outcome: Outcome) -> None:
        """Answers an exchange whose group ended "ok"."""
        is_many, wants_logits, top_k, texts, tokenize_ms = exchange.details
        results, renderer = outcome.results, self.renderer
        trace = self.replies.trace_id(exchange)
        if not is_many:
            at = 0
            row, winner = self.judge(texts[0], results[0])
            has_failed = winner is None
        else:
            at = last_finished(results)
            judged = [self.judge(text, result) for text, result in zip(texts, results)]
            has_failed = any(winner is None for _, winner in judged)
        now = time.monotonic()
        if has_failed:
            self.replies.refuse(exchange, outcome_error(Outcome("failed"))[0], now)
            return
        latency_ms = (now - exchange.received_at) * 1000
        if is_many:
            content = renderer.many(*zip(*judged), wants_logits, top_k, trace, latency_ms)
        else:
            content = renderer.one(row, winner, wants_logits, top_k, trace, latency_ms)
        fields = self.timing_fields(results[at], texts[at][1], tokenize_ms, latency_ms)
        self.replies.send(exchange, 200, content, JSON_TYPE, now, fields, latency_ms)

    def judge(self, text: Text, result: Result | None) -> tuple[Row, tuple | None]:
        """(row, winner of the renderer) of a text; counts the prediction.

        A text without a result, or with logits that are not finite, has failed.
        """
        if result is not None and len(result.logits) == self.logits.size:
            row = Row(*text, self.logits.unpack(result.logits))
            try:
                winner = self.renderer.winner(row)
            except ValueError:
                log.event("logits_not_finite", engine=result.engine)
            else:
                self.counters.predictions[winner[0]].add()
                return row, winner
        return Row(*text, None, FAILED), None

    def timing_fields(self, result: Result, tokens: int, tokenize_ms: float,
                      latency_ms: float) -> bytes:
        """The header lines that say who computed an answer and how long it took; counts it."""
        length = self.buckets[tokens]
        self.counters.request_seconds[length].observe(latency_ms / 1000)
        return self.timing(length, tokenize_ms, result.queue_us, (
            result.kind, result.engine, result.batch_size, result.infer_us))

    def timing(self, length: int, tokenize_ms: float, queue_us: int, batch: tuple) -> bytes:
        """The header lines of `timing_fields`; `batch` are kind, engine, size and µs of one."""
        if batch != self._last_batch:   # its texts are mostly answered one after the other
            kind, engine, size, infer_us = self._last_batch = batch
            name = b"cache" if kind == CACHE else b"%b-%d" % (_KINDS[kind], engine)
            self._batch_fields = b"infer;dur=%.3f\r\nX-Engine: %b\r\nX-Batch: %d\r\n" % (
                infer_us / 1000, name, size)
        return b"Server-Timing: tokenize;dur=%.3f, queue;dur=%.3f, %bX-Bucket: %d\r\n" % (
            tokenize_ms, queue_us / 1000, self._batch_fields, length)


_KINDS = [kind.encode() for kind in ENGINE_KINDS]


def last_finished(results: Sequence[Result | None]) -> int:
    """The place of the result that came last: all of a group were sent at the same time."""
    return max(range(len(results)), key=lambda at: -1 if results[at] is None else
               results[at].queue_us + results[at].infer_us)
