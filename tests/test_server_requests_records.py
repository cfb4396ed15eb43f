"""Bodies of records: their answers in bytes and as JSON, windows, faults of one and of all."""

import math
import struct

from loader.wire import ANSWER, NO_LABEL, write_record
from server.messages import Reason
from tests.front_desk import desk, make_desk, post  # noqa: F401 (fixtures)

RECORDS = b"Content-Type: application/x-firebrick-records"


def test_requests_records_are_answered_in_16_bytes_each_in_order(desk):
    texts = [b"win", b"", b"\xff", b"see you"]
    body = b"".join(write_record(text, None, 10 + at) for at, text in enumerate(texts))
    client = desk.connect()
    client.send(post(body, RECORDS))
    desk.answer(failed=(1,))
    answer = client.read()
    assert answer.headers["content-type"] == "application/x-firebrick-records"
    assert answer.headers["x-labels"] == "echo-0,echo-1,echo-2,echo-3"
    rows = list(ANSWER.iter_unpack(answer.body))
    assert [row[0] for row in rows] == [10, 11, 12, 13] and [row[3] for row in rows] == [0, 3, 1, 0]
    assert [math.isnan(row[1]) for row in rows] == [False, True, True, False]
    assert rows[1][2] == rows[2][2] == NO_LABEL
    alone = desk.connect().ask({"text": "see you"}).json
    assert alone["label"] == f"echo-{rows[3][2]}" and alone["score"] == round(rows[3][1], 6)


def test_requests_records_as_json_say_what_failed(desk):
    body = write_record(b"a", None, 1) + write_record(b"\xff", None, 2)
    answer = desk.connect().ask(body, RECORDS, b"Accept: application/json")
    results = answer.json["results"]
    assert results[0]["user_id"] == 1 and results[1] == {"user_id": 2, "error": "not UTF-8"}
    alone = desk.connect().ask(write_record(b"a", None, 2**64 - 1), RECORDS,
                               b"Accept: application/json").json
    assert alone["user_id"] == 2**64 - 1 and alone["label"] == results[0]["label"]


def test_requests_records_of_which_none_can_be_read_need_no_engine(desk):
    client = desk.connect()
    client.send(post(write_record(b"\xff", None, 5) * 3, RECORDS))
    assert not desk.jobs and len(client.read().body) == 48


def test_requests_too_long_record_under_never_has_its_status(make_desk):
    desk = make_desk("--truncate", "never")
    body = write_record(b"w " * 1000, None, 1) + write_record(b"a", None, 2)
    rows = list(ANSWER.iter_unpack(desk.connect().ask(body, RECORDS).body))
    assert [row[3] for row in rows] == [2, 0]


def test_requests_large_body_of_records_goes_in_windows_and_keeps_turns_short(desk):
    count = 20_000
    body = b"".join(write_record(b"a b", None, at) for at in range(count))
    client = desk.connect()
    client.send(post(body, RECORDS))
    most = 0
    while desk.jobs:
        most = max(most, len(desk.jobs))
        desk.answer(1000)
    rows = list(struct.iter_unpack("<QfHH", client.read().body))
    assert [row[0] for row in rows] == list(range(count)) and {row[3] for row in rows} == {0}
    assert most <= 16 * 256


def test_requests_refused_window_is_tried_again_the_first_refuses_the_request(desk):
    body = b"".join(write_record(b"a", None, at) for at in range(600))
    client = desk.connect()
    client.send(post(body, RECORDS))
    desk.refuse(Reason.FULL, 50)
    assert client.read().status == 429 and desk.inflight.open_groups == 0
    client.send(post(body, RECORDS))
    desk.answer(256)
    desk.groups = desk.groups[1:]
    desk.refuse(Reason.FULL, 50)
    assert client.heard() == b"" and not desk.jobs
    desk.turn(now=desk.requests.next_timer() + 0.001)
    desk.turn()
    assert len(desk.jobs) == 344
    desk.answer()
    assert len(client.read().body) == 600 * 16


def test_requests_faulty_records_refuse_the_whole_body(desk):
    answer = desk.connect().ask(write_record(b"a", None, 1) * 5000 + b"\1", RECORDS)
    assert (answer.status, answer.code) == (400, "invalid_records")
    assert desk.inflight.open_groups == 0 and not desk.requests.work
