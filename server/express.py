"""The short way of what most clients send: one text in JSON, whole in one read, nothing beside it.

Every turn of a front spends most of its time on such requests, so two functions take them from a
socket to the dispatcher and from a result to the socket, where the general way has some sixty calls
through as many objects. They take only what surely goes well: whatever is unusual, in a request, a
connection or the server, is left to the general way, which does all of it from the start. Both give
the same answers, and a test holds them to that.
"""

import struct
import time
from collections.abc import Sequence

from model.scores import scores
from server import log
from server.actions import Answer, Outcome
from server.classify import INLINE_BYTES, Classifier
from server.connection import ASKED, Connection, Exchange
from server.http1_answer import answer_bytes
from server.http1_head import Head
from server.inflight import NEVER
from server.replies import JSON as JSON_TYPE
from server.replies import Replies
from server.requests import Requests
from server.routes import JSON, Plan, Routes

KNOWN_WAYS = 1 << 10


# What a head says that may go the short way: the size of the content, the head, its plan, priority.
Way = tuple[int, Head, Plan, int]


class Express:
    """The short way of one front with one model. `known_heads` are the sound heads that the parsers
    of its connections remember, `body_limit` is theirs, in bytes."""

    def __init__(self, known_heads: dict[bytes, Head], body_limit: int, routes: Routes,
                 classifier: Classifier, requests: Requests, replies: Replies) -> None:
        self._known_heads = known_heads
        self._most_bytes = min(body_limit, INLINE_BYTES)
        self._routes = routes
        self._classifier = classifier
        self._inflight = classifier.inflight
        self._requests = requests
        self._replies = replies
        self._encode = classifier.plain_bodies.encode
        self._targets, self._groups = classifier.targets, classifier.groups
        self._counters, self._buckets = classifier.counters, classifier.buckets
        self._logits, self._function = classifier.logits, classifier.renderer.function
        self._timing, self._plain = classifier.timing, classifier.renderer.plain
        self._ways: dict[bytes, Way] = {}
        self._tokenize_seconds: list[float] = []    # of this turn

    def take(self, connection: Connection, data: bytes, now: float) -> float | None:
        """Puts the request that `data` is into flight, or refuses it: when that was done; None
        where it is none for this way, and nothing has been done. The connection is RESTING."""
        end = data.find(b"\r\n\r\n") + 4
        raw = data[:end]
        way = self._ways.get(raw) or self._find_way(raw)
        if way is None:
            return None
        size, head, plan, priority = way
        inflight = self._inflight
        if size != len(data) - end or self._requests.is_over:
            return None
        if not inflight.welcomes(priority) or priority in self._requests.behind:
            return self._refuse(connection, priority, now)
        begun = time.monotonic()
        try:
            encoded = self._encode(data, end)
        except Exception:
            return None         # a fault of ours, which the general way meets and reports
        if encoded is None:
            return None
        tokens, split, ids, was_cut = encoded
        if was_cut and not self._classifier.may_cut:
            return None
        ended = time.monotonic()
        took_s = ended - begun
        self._tokenize_seconds.append(took_s)
        exchange = connection.begin_calm(head, plan, now)
        exchange.details = tokens, was_cut, took_s
        exchange.group = group = next(self._groups)
        self._targets[group] = exchange
        deadline_s = plan.deadline_s
        inflight.open_lone(group, connection.number, priority,
                           NEVER if deadline_s is None else now + deadline_s,
                           tokens, split, ids, ended)
        return ended

    def _refuse(self, connection: Connection, priority: int, now: float) -> float | None:
        """Refuses a request for what is known of the queue, as most are under overload; None where
        it may be taken after all."""
        refusal = self._requests.early_refusal(priority, now)
        if refusal is None or not self._inflight.is_ready or self._replies.is_draining:
            return None
        self._requests.refuse_resting(connection, refusal, now)
        return time.monotonic()

    def _find_way(self, raw: bytes) -> Way | None:
        """The way of a head that was sent before."""
        head = self._known_heads.get(raw)
        if head is None or head.chunked or not head.keep_alive or not head.minor or head.expect:
            return None
        plan, size = self._routes.plan(head), head.content_length or 0
        if plan.refusal is not None or plan.action != "infer" or plan.kind != JSON \
                or plan.trace_id or plan.fields or size > self._most_bytes \
                or self._classifier.logs_text:
            return None
        if len(self._ways) >= KNOWN_WAYS:
            self._ways.clear()
        way = self._ways[raw] = size, head, plan, plan.priority
        return way

    def count(self) -> None:
        """Counts what was tokenised since the last call, if anything was."""
        if self._tokenize_seconds:
            self._classifier.counters.tokenize_seconds.observe_all(self._tokenize_seconds)
            self._tokenize_seconds.clear()

    def finish(self, answered: Sequence[tuple[int, Answer]]) -> None:
        """Answers what `take` put into flight. First all answers are made and counted, then sent,
        so that a front that is killed meanwhile has counted each that a client has seen."""
        self.count()        # what a cache answers is sent to nobody
        now = time.monotonic()
        replies, settle = self._replies, self._requests.settle
        start, may_be_calm = replies.start(200, JSON_TYPE), not replies.is_draining
        calm: list[tuple[Connection, bytes]] = []
        winners: list[int] = []
        for (group, answer), trace_id in zip(answered, replies.fresh_ids(len(answered))):
            exchange = self._targets.pop(group, None)
            if exchange is None:
                continue
            exchange.group = 0
            connection = exchange.connection
            try:
                best, latency_ms, fields, content = self._render(exchange, answer, trace_id, now)
                winners.append(best)
                if connection.calm == ASKED and may_be_calm:
                    calm.append((connection, answer_bytes(start, latency_ms, trace_id, fields,
                                                          content)))
                    continue
                exchange.trace_id = trace_id.decode()
                replies.send(exchange, 200, content, JSON_TYPE, now, fields, float(latency_ms))
            except (ValueError, struct.error):
                if len(answer[-1]) == self._logits.size:
                    log.event("logits_not_finite", engine=answer[3])
                self._requests.refuse(exchange, Outcome("failed"), now)
            except Exception as error:
                self._requests.fault(exchange, error)
            settle(connection, now)
        for best in set(winners):
            self._counters.predictions[best].add(winners.count(best))
        self._requests.answered(len(winners), len(calm), now)
        for connection, data in calm:
            if not connection.answer_calm(data, now):
                settle(connection, now)

    def _render(self, exchange: Exchange, answer: Answer, trace_id: bytes,
                now: float) -> tuple[int, bytes, bytes, bytes]:
        """(the best label, milliseconds taken, header lines, content) of an answer. Raises
        ValueError for logits that are not finite, struct.error for those of another model."""
        _, _, kind, engine, batch_size, queue_us, infer_us, _, logits = answer
        tokens, was_cut, tokenize_s = exchange.details
        values = scores(self._logits.unpack(logits), self._function)
        best = values.index(max(values))
        latency_s = now - exchange.received_at
        latency_ms = b"%.3f" % (latency_s * 1000)
        length = self._buckets[tokens]
        fields = self._timing(length, tokenize_s * 1000, queue_us,
                              (kind, engine, batch_size, infer_us))
        content = self._plain(best, values, trace_id, tokens, was_cut, latency_ms)
        self._counters.request_seconds[length].observe(latency_s)
        return best, latency_ms, fields, content
