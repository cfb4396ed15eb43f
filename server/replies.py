"""Answers into exchanges: what every answer carries, errors, and outcomes of requests in flight."""

import os
import time
from email.utils import formatdate

from server.actions import Outcome
from server.answer import error_body, error_start, render_error
from server.connection import Exchange
from server.errors import ClientError
from server.http1_answer import answer_bytes, answer_start, stream_head
from server.messages import Reason

JSON = b"application/json"
TEXT = b"text/plain; charset=utf-8"
IDS_AT_ONCE = 256           # one system call for so many trace ids
KNOWN_OUTCOMES = 256


class Replies:
    """Renders answers; `is_draining` makes the last one of each connection close it."""

    def __init__(self) -> None:
        self.is_draining = False
        self.date = b""
        self._second = -1
        self._starts: dict[tuple[int, bytes], bytes] = {}   # of answers with this Date
        self._ids: list[bytes] = []
        # By kind, reason and seconds of Retry-After: status, fields, the body's begin, the reason.
        self._known: dict[tuple[str, str, int], tuple[int, bytes, bytes, str]] = {}

    def tick(self) -> None:
        """Brings the Date field up to date; once a turn is enough."""
        second = int(time.time())
        if second != self._second:
            self._second = second
            self.date = formatdate(second, usegmt=True).encode()
            self._starts.clear()

    def send(self, exchange: Exchange, status: int, content: bytes, content_type: bytes,
             now: float, fields: bytes = b"", latency_ms: float | None = None) -> None:
        """Answers an exchange; the front flushes its connection afterwards."""
        connection, head, plan = exchange.connection, exchange.head, exchange.plan
        if latency_ms is None:
            latency_ms = max(0.0, now - exchange.received_at) * 1000
        if plan is not None and plan.fields:
            fields += plan.fields
        if self.is_draining and not exchange.closes:
            # Those behind it are still answered; the last of them closes.
            exchange.closes = exchange is connection.exchanges[-1] \
                and not connection.parser.started
        if exchange is connection.reading:
            exchange.closes = True
        connection.answer(exchange, status, answer_bytes(
            self.start(status, content_type), b"%.3f" % latency_ms,
            self.trace_id(exchange).encode(), fields, content, exchange.closes,
            1 if head is None else head.minor, head is not None and head.method == "HEAD"))

    def start(self, status: int, content_type: bytes) -> bytes:
        """How such an answer begins at present."""
        start = self._starts.get((status, content_type))
        if start is None:
            start = self._starts[status, content_type] = answer_start(status, self.date,
                                                                      content_type)
        return start

    def start_stream(self, exchange: Exchange, content_type: bytes, now: float,
                     fields: bytes) -> bool:
        """Writes the head of a 200 whose length is not known; whether it is chunked.

        A client of HTTP/1.0 knows no chunks: for it the end of the connection is that of the
        answer.
        """
        connection, plan = exchange.connection, exchange.plan
        is_chunked = exchange.head.minor > 0
        if not is_chunked or (self.is_draining and exchange is connection.exchanges[-1]
                              and not connection.parser.started):
            exchange.closes = connection.is_closing = True
        connection.start_stream(exchange, 200, stream_head(
            200, self.date, max(0.0, now - exchange.received_at) * 1000,
            self.trace_id(exchange).encode(), content_type, fields + plan.fields,
            exchange.closes, is_chunked))
        return is_chunked

    def trace_id(self, exchange: Exchange) -> str:
        """The exchange's trace id, made up at its first use where the client sent none."""
        if not exchange.trace_id:
            plan = exchange.plan
            exchange.trace_id = (plan is not None and plan.trace_id) \
                or self.fresh_ids(1)[0].decode()
        return exchange.trace_id

    def fresh_ids(self, count: int) -> list[bytes]:
        """New trace ids: 32 hexadecimal digits each."""
        while len(self._ids) < count:
            digits = os.urandom(16 * IDS_AT_ONCE).hex().encode()
            self._ids += [digits[at:at + 32] for at in range(0, len(digits), 32)]
        fresh = self._ids[-count:]
        del self._ids[-count:]
        return fresh

    def refuse(self, exchange: Exchange, error: ClientError, now: float) -> None:
        """Answers with an error."""
        if error.close:
            exchange.closes = True
        self.send(exchange, error.status,
                  render_error(error.code, error.message, self.trace_id(exchange)), JSON, now,
                  _fields(error))

    def refuse_outcome(self, exchange: Exchange, outcome: Outcome, now: float) -> str:
        """Answers with what a request in flight came to other than "ok"; the refusal's reason."""
        status, fields, start, reason = self._ready(outcome)
        self.send(exchange, status,
                  error_body(start, self.trace_id(exchange)), JSON, now,
                  fields)
        return reason

    def refusal(self, outcome: Outcome) -> tuple[int, bytes, str]:
        """As `refuse_outcome` of a request that was just read, with a trace id of its own: status,
        the whole answer, and the refusal's reason."""
        status, fields, start, reason = self._ready(outcome)
        trace_id = self.fresh_ids(1)[0]
        return status, answer_bytes(self.start(status, JSON), b"0.000", trace_id, fields,
                                    b'%b"%b"}' % (start, trace_id)), reason

    def _ready(self, outcome: Outcome) -> tuple[int, bytes, bytes, str]:
        """There are few such answers, and under overload more than others: each is made once."""
        key = outcome.kind, outcome.reason, _retry_s(outcome)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= KNOWN_OUTCOMES:
                self._known.clear()
            error, reason = outcome_error(outcome)
            known = self._known[key] = (error.status, _fields(error),
                                        error_start(error.code, error.message), reason)
        return known


def _fields(error: ClientError) -> bytes:
    return "".join(f"{name}: {value}\r\n" for name, value in error.headers.items()).encode()


def _retry_s(outcome: Outcome) -> int:
    """Whole seconds, at least one, never earlier than said."""
    return max(1, -(-outcome.retry_ms // 1000))


def outcome_error(outcome: Outcome) -> tuple[ClientError, str]:
    """The error of an outcome that is not "ok", and how it counts among refusals ("" if not)."""
    retry = {"Retry-After": str(_retry_s(outcome))}
    kind = outcome.kind
    if kind == "refused":
        if outcome.reason == Reason.DEADLINE.name.lower():
            return ClientError(429, "overloaded", "the estimated wait is longer than "
                               "X-Deadline-ms allows; come back later", retry), "deadline"
        return ClientError(429, "overloaded", "more is waiting than can be computed in time; "
                           "come back after Retry-After seconds", retry), outcome.reason
    if kind == "failed":
        return ClientError(500, "failed", "this input broke an engine every time it was tried; "
                           "do not send it again"), ""
    if kind == "deadline":
        return ClientError(504, "deadline_exceeded", "X-Deadline-ms passed before the answer was "
                           "computed; allow more time"), ""
    if kind == "not_ready":
        return ClientError(503, "not_ready", "the model is still being loaded; come back after "
                           "Retry-After seconds", retry), "not_ready"
    if kind == "draining":
        return ClientError(503, "draining", "the server is ending; send it to another one or "
                           "come back later", retry), "draining"
    if kind == "aged":
        return ClientError(503, "outage", "the request waited for longer than the server lets "
                           "one wait; come back later", retry), "outage"
    return ClientError(503, "outage", "no engine is running at the moment; come back after "
                       "Retry-After seconds", retry), "outage"
