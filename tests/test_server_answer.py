"""Answers: JSON of one and many texts, records, errors."""

import json
import math
import struct

import pytest

from loader.wire import FAILED, NO_LABEL, NOT_UTF8
from server.answer import Renderer, Row, render_error

CARD = {"name": "sms \"spam\"", "version": "1f3a9c02", "function": "softmax",
        "labels": ["ham", "50% sp,am", "\u2603\n"]}
ROW = Row(None, 9, False, [0.0, 2.0, 1.0])


def one(row=ROW, logits=False, top_k=None, card=CARD):
    renderer = Renderer(card)
    return json.loads(renderer.one(row, renderer.winner(row), logits, top_k, "t\"1", 1.2844))


def test_answer_one_text_has_the_contracts_members_in_order():
    answer = one()
    assert list(answer) == ["label", "score", "scores", "trace_id", "model", "model_version",
                            "tokens", "truncated", "latency_ms"]
    assert answer["label"] == "50% sp,am" and answer["score"] == pytest.approx(0.665241, abs=1e-6)
    assert list(answer["scores"]) == CARD["labels"]
    assert sum(answer["scores"].values()) == pytest.approx(1.0, abs=2e-6)
    assert (answer["trace_id"], answer["model"], answer["latency_ms"]) == (
        "t\"1", CARD["name"], 1.284)
    assert answer["tokens"] == 9 and answer["truncated"] is False


def test_answer_user_id_comes_back_as_sent():
    for user_id in (0, 2**64 - 1, "", "é\"\\"):
        assert one(ROW._replace(user_id=user_id))["user_id"] == user_id
    assert "user_id" not in one()


def test_answer_logits_read_back_as_the_same_float32():
    values = [struct.unpack("<f", struct.pack("<I", bits))[0]
              for bits in (0x3F800001, 0x00000001, 0x7F7FFFFF, 0x80000000, 0xC2F6E979)]
    card = {**CARD, "labels": list("abcde"), "function": "none"}
    answer = one(ROW._replace(logits=values), logits=True, card=card)
    assert [struct.pack("<f", value) for value in answer["logits"]] == [
        struct.pack("<f", value) for value in values]


def test_answer_top_k_keeps_the_best_first():
    assert list(one(top_k=2)["scores"]) == ["50% sp,am", "\u2603\n"]
    assert list(one(top_k=9)["scores"]) == ["50% sp,am", "\u2603\n", "ham"]


def test_answer_first_of_equal_labels_wins():
    assert one(ROW._replace(logits=[1.0, 1.0, 1.0]))["label"] == "ham"


@pytest.mark.parametrize("function,logits,scores", [
    ("sigmoid", [0.0, 50.0, -50.0], [0.5, 1.0, 0.0]),
    ("none", [-3.25, 4.0, 0.5], [-3.25, 4.0, 0.5]),
    ("softmax", [-100.0, 5.0, -1000.0], [0.0, 1.0, 0.0])])
def test_answer_scores_follow_the_function(function, logits, scores):
    answer = one(ROW._replace(logits=logits), card={**CARD, "function": function})
    assert list(answer["scores"].values()) == pytest.approx(scores, abs=1e-6)


def test_answer_many_texts_stand_in_order_and_failed_ones_say_so():
    renderer = Renderer(CARD)
    rows = [ROW._replace(user_id=1), Row(2, 0, False, None, FAILED), ROW]
    winners = [renderer.winner(row) if row.logits else None for row in rows]
    answer = json.loads(renderer.many(rows, winners, False, None, "t", 0.5))
    assert list(answer) == ["results", "trace_id", "model", "model_version", "latency_ms"]
    first, failed, last = answer["results"]
    assert first["user_id"] == 1 and first["label"] == last["label"] == "50% sp,am"
    assert failed == {"user_id": 2, "error": "failed"}


def test_answer_records_are_sixteen_bytes():
    renderer = Renderer(CARD)
    user_id, score, label, status = struct.unpack(
        "<QfHH", renderer.record(7, ROW, renderer.winner(ROW)))
    assert (user_id, label, status) == (7, 1, 0) and score == pytest.approx(0.665241, abs=1e-6)
    broken = struct.unpack("<QfHH", renderer.record(8, Row(8, 0, False, None, NOT_UTF8),
                                                    None))
    assert broken[0] == 8 and math.isnan(broken[1]) and broken[2:] == (NO_LABEL, NOT_UTF8)


def test_answer_labels_header_is_percent_encoded():
    assert Renderer(CARD).labels_header == "ham,50%25%20sp%2Cam,%E2%98%83%0A"


def test_answer_error_is_strict_json():
    assert json.loads(render_error("invalid_json", 'a "b"\n', "t")) == {
        "error": {"code": "invalid_json", "message": 'a "b"\n'}, "trace_id": "t"}
