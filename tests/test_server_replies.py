"""Answers to requests that came to nothing, those made ready before as well as the first."""

import itertools
import json

import pytest

from server.connection import Exchange
from server.actions import Outcome
from server.replies import KNOWN_OUTCOMES, Replies, outcome_error


class Line:
    """A connection that keeps the answer of its exchange."""

    reading = None

    def answer(self, exchange, status, answer):
        self.status, self.bytes = status, answer


def reply(replies, how, what, trace_id):
    exchange = Exchange()
    exchange.connection, exchange.head, exchange.plan = Line(), None, None
    exchange.trace_id, exchange.received_at, exchange.closes = trace_id, 1.0, False
    said = how(replies)(exchange, what, 1.25)
    return exchange.connection.status, exchange.connection.bytes, said


@pytest.mark.parametrize("kind,reason", [
    ("refused", "wait"), ("refused", "full"), ("refused", "deadline"), ("failed", ""),
    ("deadline", ""), ("not_ready", ""), ("draining", ""), ("aged", ""), ("outage", "")])
def test_replies_outcome_made_ready_before_is_answered_as_an_error_is(kind, reason):
    replies = Replies()
    for retry_ms, trace in itertools.product((0, 1, 1000, 1001, 29_999), ("a" * 32, 'x"\\y')):
        outcome = Outcome(kind, (), reason, retry_ms)
        error, counted = outcome_error(outcome)
        status, slow, _ = reply(replies, lambda one: one.refuse, error, trace)
        for _ in range(2):
            assert reply(replies, lambda one: one.refuse_outcome, outcome, trace) == (
                status, slow, counted)
        assert json.loads(slow.partition(b"\r\n\r\n")[2])["trace_id"] == trace


def test_replies_outcomes_that_are_kept_have_a_bound_and_stay_right():
    replies = Replies()
    for second in range(1, 3 * KNOWN_OUTCOMES):
        outcome = Outcome("refused", (), "wait", 1000 * second)
        _, answer, _ = reply(replies, lambda one: one.refuse_outcome, outcome, "t")
        assert b"\r\nRetry-After: %d\r\n" % second in answer
        assert len(replies._known) <= KNOWN_OUTCOMES
