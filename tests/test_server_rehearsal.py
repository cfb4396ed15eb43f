"""A new front's test: what it sends, what it takes for an answer, when it tries again."""

import struct

import pytest

from server.actions import Outcome, SendGroups, SendHello
from server.inflight import InFlight, Limits
from server.messages import Result, Row
from server.rehearsal import GROUP, TRY_AGAIN_S, Rehearsal

CARD = {"precision": "fp32", "self_test": [
    {"text": "ok", "pair": None, "ids": [2, 5, 3], "split": 3, "logits": [1.0, -1.0]},
    {"ids": [2, 7, 3], "split": 3, "logits": [0.5, 2.0]}]}


class Classifier:
    """Knows one text; `encode` and `row` as the real one has them."""

    def __init__(self, ids=(2, 5, 3)):
        self.card, self.ids = CARD, list(ids)

    def row(self, ids, split):
        return Row(len(ids), split, bytes(ids))

    def encode(self, text, pair):
        assert (text, pair) == ("ok", None)
        return self.row(self.ids, len(self.ids)), False


def results(*rows):
    return Outcome("ok", [Result(1, 0, 0, 0, 1, 0, 0, struct.pack(f"<{len(row)}f", *row))
                          for row in rows])


@pytest.fixture
def inflight():
    held = InFlight(0, 1, 2, Limits(), 0.0)
    held.link_up(0.0)
    return held


def test_rehearsal_sends_the_texts_once_as_one_group(inflight):
    rehearsal = Rehearsal(Classifier(), inflight, 10.0)
    assert [rehearsal.tick(at) for at in (10.0, 11.0)] == [None, None]
    hello, sent = inflight.take_actions()
    assert isinstance(hello, SendHello) and isinstance(sent, SendGroups)
    (group,) = sent.groups
    assert group.group == GROUP and [job.ids for job in group.jobs] == [b"\2\5\3", b"\2\7\3"]


def test_rehearsal_text_that_is_tokenised_differently_is_a_fault(inflight):
    fault = Rehearsal(Classifier([2, 9, 3]), inflight, 10.0).tick(10.0)
    assert "text 0" in fault and inflight.open_groups == 0


@pytest.mark.parametrize("answer, words", [
    (results([1.0005, -1.0], [0.5, 2.0]), ""), (results([1.0, -1.0], [0.5, 2.5]), "text 1"),
    (results([1.0], [0.5, 2.0]), "text 0"), (results([1.0, float("nan")], [0.5, 2.0]), "text 0"),
    (Outcome("failed"), "breaks the engines")])
def test_rehearsal_judges_by_the_reference(inflight, answer, words):
    fault = Rehearsal(Classifier(), inflight, 10.0).judge(answer, CARD, 11.0)
    assert (fault == "") if not words else (words in fault)


def test_rehearsal_measures_with_what_a_bundle_allows(inflight):
    rehearsal, far = Rehearsal(Classifier(), inflight, 10.0), results([1.2, -1.0], [0.5, 2.0])
    assert rehearsal.judge(far, CARD, 11.0)
    assert rehearsal.judge(far, {**CARD, "precision": "int8", "tolerances": {"int8": 0.3}},
                           11.0) == ""


@pytest.mark.parametrize("kind", ["refused", "aged", "outage", "deadline"])
def test_rehearsal_without_an_answer_is_tried_again(inflight, kind):
    rehearsal = Rehearsal(Classifier(), inflight, 10.0)
    rehearsal.tick(10.0)
    inflight.cancel(GROUP)
    assert rehearsal.judge(Outcome(kind), CARD, 20.0) is None
    rehearsal.tick(20.0 + TRY_AGAIN_S / 2)
    assert inflight.open_groups == 0
    rehearsal.tick(20.0 + TRY_AGAIN_S)
    assert inflight.open_groups == 1
