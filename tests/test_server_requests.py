"""Requests from bytes to answer, with a dispatcher by hand: contents, headers, refusals, order."""

import json
import math
import time

import pytest

from loader.wire import write_record
from server import clients
from server.connection import PROBE_AFTER_S
from server.inflight import Outcome
from server.messages import LOW, Reason
from tests.front_desk import desk, get, make_desk, post  # noqa: F401 (fixtures)

RECORDS = b"Content-Type: application/x-firebrick-records"


def test_requests_one_text_gets_label_scores_and_headers(desk):
    answer = desk.connect().ask({"text": "win a phone", "user_id": 7, "logits": True})
    body = answer.json
    assert answer.status == 200 and answer.headers["content-type"] == "application/json"
    assert list(body) == ["label", "score", "scores", "trace_id", "model", "model_version",
                          "tokens", "truncated", "user_id", "logits", "latency_ms"]
    assert body["score"] == max(body["scores"].values()) == body["scores"][body["label"]]
    assert math.isclose(sum(body["scores"].values()), 1, abs_tol=4e-6)
    assert body["user_id"] == 7 and body["truncated"] is False and len(body["logits"]) == 4
    headers = answer.headers
    assert headers["x-trace-id"] == body["trace_id"] and len(body["trace_id"]) == 32
    assert float(headers["x-latency-ms"]) == body["latency_ms"] > 0
    assert headers["x-engine"] == "cpu-0" and headers["x-batch"] == "1"
    assert headers["x-bucket"] == str(16 if body["tokens"] <= 16 else 32)
    parts = dict(part.strip().split(";dur=") for part in headers["server-timing"].split(","))
    assert list(parts) == ["tokenize", "queue", "infer"] and parts["queue"] == "0.100"
    assert desk.counted("/infer", 200) == 1


def test_requests_answer_from_the_cache_says_so_and_is_the_same_else(desk):
    client = desk.connect()
    computed = client.ask({"text": "win a phone", "logits": True})
    client.send(post({"text": "win a phone", "logits": True}))
    desk.answer_from_cache()
    known = client.read("POST")
    assert (known.headers["x-engine"], known.headers["x-batch"]) == ("cache", "0")
    assert known.headers["x-bucket"] == computed.headers["x-bucket"]
    own = ("trace_id", "latency_ms")
    assert {name: value for name, value in known.json.items() if name not in own} \
        == {name: value for name, value in computed.json.items() if name not in own}


def test_requests_many_texts_are_answered_in_order_with_the_last_engine(desk):
    texts = ["a", ["b c", "pair"], {"text": "d e f", "user_id": "x"}]
    answer = desk.connect().ask({"texts": texts, "top_k": 2})
    results = answer.json["results"]
    assert [len(result["scores"]) for result in results] == [2, 2, 2]
    assert results[2]["user_id"] == "x" and results[0]["tokens"] < results[2]["tokens"]
    alone = [desk.connect().ask({"text": "a"}).json,
             desk.connect().ask({"text": "b c", "text_pair": "pair"}).json]
    assert [r["label"] for r in results[:2]] == [one["label"] for one in alone]


@pytest.mark.parametrize("fields,sent", [
    ((b"traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",),
     "4bf92f3577b34da6a3ce929d0e0e4736"),
    ((b"X-Request-ID: abc\"\\1",), 'abc"\\1'),
    ((b"traceparent: 00-0-1-01", b"X-Request-ID: mine"), "mine"),
], ids=["traceparent", "request-id", "invalid-traceparent"])
def test_requests_trace_id_comes_back(desk, fields, sent):
    client = desk.connect()
    answer = client.ask({"text": "a"}, *fields)
    assert answer.headers["x-trace-id"] == answer.json["trace_id"] == sent
    client.send(post(b"x", *fields))
    assert client.read().json["trace_id"] == sent


def test_requests_pipelined_answers_keep_their_order_whatever_comes_first(desk):
    client = desk.connect()
    client.send(post({"text": "first"}), get(b"/healthz"), post({"text": "second"}), post(b"x"))
    assert client.heard() == b""
    first, second = desk.jobs
    desk.jobs = [second]
    desk.answer()
    assert client.heard() == b""
    desk.jobs = [first]
    desk.answer()
    assert [client.read().status for _ in range(4)] == [200, 200, 200, 400]


def test_requests_content_error_keeps_the_connection_framing_error_closes_it(desk):
    client = desk.connect()
    client.send(post(b'{"text": 1}'))
    answer = client.read()
    assert (answer.status, answer.code) == (400, "invalid_field")
    assert "connection" not in answer.headers
    client.send(b"GET / HTTP/1.1\r\nHost : h\r\n\r\n", get(b"/healthz"))
    answer = client.read()
    assert answer.status == 400 and answer.headers["connection"] == "close"
    client.end()
    assert client.heard() == b"" and client.socket.recv(1) == b""
    assert not desk.clients.connections
    assert desk.counted("none", 400) == 1 and desk.counted("/infer", 400) == 1


def test_requests_refused_head_is_answered_before_its_body_and_drained(desk):
    client = desk.connect()
    client.send(post(b"x" * 100, b"Content-Type: image/png")[:-50])
    answer = client.read()
    assert (answer.status, answer.code) == (415, "unsupported_media_type")
    client.send(b"x" * 1_000_000)
    client.end()
    assert client.socket.recv(10) == b"" and not desk.clients.connections


@pytest.mark.parametrize("outcome,status,code,retry", [
    (Outcome("failed"), 500, "failed", None),
    (Outcome("deadline"), 504, "deadline_exceeded", None),
    (Outcome("aged", retry_ms=1000), 503, "outage", "1"),
    (Outcome("refused", (), "wait", 2500), 429, "overloaded", "3"),
    (Outcome("refused", (), "deadline", 1), 429, "overloaded", "1"),
    (Outcome("outage", retry_ms=0), 503, "outage", "1"),
    (Outcome("draining", retry_ms=1000), 503, "draining", "1"),
], ids=lambda value: value.kind if isinstance(value, Outcome) else None)
def test_requests_outcome_has_its_status_and_keeps_the_connection(desk, outcome, status, code,
                                                                  retry):
    client = desk.connect()
    client.send(post({"text": "a"}))
    desk.requests.finish(desk.groups[0].group, outcome)
    answer = client.read()
    assert (answer.status, answer.code, answer.headers.get("retry-after")) == (status, code, retry)
    assert client.ask({"text": "b"}).status == 200


def test_requests_refusal_of_the_dispatcher_is_counted_by_reason(desk):
    client = desk.connect()
    client.send(post({"text": "a"}))
    desk.refuse(Reason.WAIT, 1500)
    assert client.read().headers["retry-after"] == "2"
    assert desk.page.counter("refused_total", reason="wait")._values[
        desk.page.counter("refused_total", reason="wait")._slot] == 1


def test_requests_long_backlog_refuses_before_anything_is_read(desk):
    desk.set_state(10_000.0)
    client = desk.connect()
    client.send(post(b"not even JSON"))
    assert client.read().status == 429 and not desk.jobs
    desk.set_state(0.0)
    assert client.ask({"text": "a"}).status == 200


def test_requests_front_that_is_behind_refuses_the_class_before_anything_is_read(desk):
    desk.set_state(1500.0)
    desk.requests.behind = (LOW,)
    client = desk.connect()
    client.send(post(b"not even JSON"))
    refused = client.read()
    assert refused.status == 429 and int(refused.headers["retry-after"]) >= 2 and not desk.jobs
    client.send(post(b'{"text": "a"}', b"X-Priority: high"))
    desk.settle()
    desk.answer(1)
    assert client.read().status == 200
    desk.requests.behind = ()
    assert client.ask({"text": "a"}).status == 200


def test_requests_logits_that_are_not_finite_are_500(desk):
    client = desk.connect()
    client.send(post({"texts": ["a", "b"]}))
    desk.answer(logits=(0.0, math.nan, 1.0, 2.0))
    assert client.read().code == "failed"


def test_requests_failed_row_fails_a_json_request(desk):
    client = desk.connect()
    client.send(post({"texts": ["a", "b", "c"]}))
    desk.answer(failed=(1,))
    assert client.read().status == 500


def test_requests_long_text_is_cut_or_refused_as_started(make_desk):
    text = {"text": "word " * 2000}
    cut = make_desk().connect().ask(text).json
    assert cut["truncated"] is True and cut["tokens"] == 512
    never = make_desk("--truncate", "never").connect().ask(text)
    assert (never.status, never.code) == (422, "text_too_long")


def test_requests_pair_for_a_model_without_pairs_is_refused(make_desk):
    desk = make_desk(card={"pair_types": 1})
    answer = desk.connect().ask({"text": "a", "text_pair": "b"})
    assert (answer.status, answer.code) == (400, "invalid_field")
    records = desk.connect().ask(write_record(b"a", b"b", 1), RECORDS)
    assert (records.status, records.code) == (400, "invalid_records")


def test_requests_deadline_passed_is_504_and_cancels(desk):
    client = desk.connect()
    client.send(post({"text": "a"}, b"X-Deadline-ms: 5000"))
    job = desk.jobs[0]
    assert desk.groups[0].deadline < math.inf
    desk.turn(now=desk.groups[0].deadline + 0.001)
    assert client.read().status == 504
    desk.act()
    assert desk.cancelled == [job.job]


# -- clients that leave ------------------------------------------------------------------------


def test_requests_client_reset_is_cancelled_and_counted_499(desk):
    client = desk.connect()
    client.send(post({"text": "a"}), post({"text": "b"}))
    jobs = [job.job for job in desk.jobs]
    desk.clients.connections[next(iter(desk.clients.connections))].is_gone = True
    for connection in list(desk.clients.connections.values()):
        desk.clients.settle(connection, 0.0)
    desk.act()
    assert desk.cancelled == jobs and desk.counted("/infer", 499) == 2
    assert desk.inflight.open_groups == 0


def test_requests_half_closed_client_gets_its_answer(desk):
    client = desk.connect()
    client.send(post({"text": "a"}))
    client.end()
    desk.answer()
    assert client.read().status == 200 and client.socket.recv(1) == b""
    assert not desk.clients.connections


def test_requests_closed_client_is_found_out_by_an_interim_answer(desk):
    client = desk.connect()
    client.send(post({"text": "a"}))
    client.close()
    desk.turn()
    assert desk.inflight.open_groups == 1
    connection = next(iter(desk.clients.connections.values()))
    desk.turn(now=connection.deadline(10) + PROBE_AFTER_S)
    desk.settle()
    assert desk.inflight.open_groups == 0 and desk.counted("/infer", 499) == 1


def test_requests_slow_half_closed_client_sees_the_interim_answer_and_its_own(desk):
    client = desk.connect()
    client.send(post({"text": "a"}))
    client.end()
    connection = next(iter(desk.clients.connections.values()))
    desk.turn(now=connection.deadline(10) + PROBE_AFTER_S)
    assert client.heard() == b"HTTP/1.1 100 Continue\r\n\r\n"
    desk.answer()
    assert client.read().status == 200


# -- timeouts ----------------------------------------------------------------------------------


@pytest.mark.parametrize("sent,route", [
    (b"G", "none"), (b"POST /infer HTTP/1.1\r\nHost: h\r\n", "none"),
    (post(b"x" * 50)[:-1], "/infer"),
    (b"POST /infer HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n", "/infer"),
], ids=["byte", "head", "body", "chunks"])
def test_requests_incomplete_request_is_408_after_the_read_timeout(desk, sent, route):
    client = desk.connect()
    client.send(sent)
    connection = next(iter(desk.clients.connections.values()))
    due = connection.deadline(10)
    desk.turn(now=due - 0.01)
    assert client.heard() == b""
    desk.turn(now=due + 0.01)
    answer = client.read()
    assert (answer.status, answer.code) == (408, "timeout")
    assert answer.headers["connection"] == "close" and desk.counted(route, 408) == 1


def test_requests_dribbled_bytes_do_not_extend_the_read_timeout(desk):
    client = desk.connect()
    client.send(b"POST /infer HTTP/1.1\r\n")
    due = next(iter(desk.clients.connections.values())).deadline(10)
    client.send(b"Host: h\r\n")
    assert next(iter(desk.clients.connections.values())).deadline(10) == due


def test_requests_idle_connection_is_closed_without_a_word(desk):
    client = desk.connect()
    client.send(get(b"/healthz"))
    client.read()
    due = next(iter(desk.clients.connections.values())).deadline(10)
    desk.turn(now=due + 0.01)
    assert client.socket.recv(1) == b"" and not desk.clients.connections


# -- other routes ------------------------------------------------------------------------------


def test_requests_status_routes_answer_and_head_has_no_content(desk):
    client = desk.connect()
    client.send(get(b"/readyz"), get(b"/info", method=b"HEAD"), get(b"/metrics"), get(b"/info"))
    assert client.read().body == b"ready\n"
    head = client.read(method="HEAD")
    assert int(head.headers["content-length"]) > 100
    assert b"firebrick_requests_total" in client.read().body
    info = client.read().json
    assert info["name"] == "firebrick" and info["model"]["labels"][0] == "echo-0"
    desk.status.is_leaving = True
    client.send(get(b"/readyz"))
    assert client.read().status == 503


def test_requests_draining_answers_the_last_of_a_connection_with_close(desk):
    client = desk.connect()
    client.send(post({"text": "a"}), post({"text": "b"}))
    desk.replies.is_draining = True
    desk.answer()
    first, second = client.read(), client.read()
    assert "connection" not in first.headers and second.headers["connection"] == "close"


def test_requests_end_of_the_drain_answers_what_is_open(desk):
    client = desk.connect()
    client.send(post({"text": "a"}), post(write_record(b"a", None, 1), RECORDS))
    desk.requests.give_up(time.monotonic())
    assert [client.read().code for _ in range(2)] == ["draining", "draining"]
    client.send(post({"text": "a"}))
    assert client.read().code == "draining"


def test_requests_fault_of_ours_costs_one_request(desk, capfd, monkeypatch):
    client = desk.connect()
    text = "private " + "words" * 8     # of which no table of known words has the second
    for _ in range(3):      # the third goes the short way
        assert client.ask({"text": text}).status == 200

    def fail(*_):
        raise KeyError("private")
    runs = desk.requests.classifier.runs
    with monkeypatch.context() as patched:
        patched.setattr(runs, "_join", fail)
        client.send(post({"text": text}))
    assert client.read().code == "failed"
    assert client.ask({"text": "a"}).status == 200
    logged = capfd.readouterr().err
    assert "event=front_fault" in logged and "private" not in logged


def test_requests_texts_are_logged_only_when_asked(make_desk, capfd):
    make_desk().connect().ask({"text": "private words"})
    assert "private" not in capfd.readouterr().err
    make_desk("--log-text").connect().ask({"text": "private words"})
    assert "private words" in capfd.readouterr().err


def test_requests_answer_is_json_to_a_strict_reader(desk):
    answer = desk.connect().ask({"text": "a", "user_id": "\u2028\"\\\x7f"})
    assert json.loads(answer.body)["user_id"] == "\u2028\"\\\x7f"


def test_requests_bodies_beyond_what_is_held_are_refused_while_they_arrive(desk, monkeypatch):
    monkeypatch.setattr(clients, "HELD_BYTES", 400_000)
    senders = [desk.connect() for _ in range(3)]
    for sender in senders:
        sender.send(post(b"x" * 200_000)[:180_000])
    statuses = [sender.heard()[9:12] for sender in senders]
    assert statuses == [b"", b"", b"429"]
    answer = senders[2].read()
    assert answer.headers["retry-after"] == "1" and answer.headers["connection"] == "close"
    senders[0].send(b"x" * 20_200)
    assert senders[0].read().code == "invalid_json"
    for sender in senders[1:]:
        sender.close()
    assert desk.clients._held_bytes == 0 and desk.requests.held_bytes == 0


def test_requests_long_bodies_count_as_held_until_they_were_worked_on(desk):
    client = desk.connect()
    client.send(post({"texts": ["word " * 1000] * 200}))
    assert desk.requests.held_bytes == 0 and len(desk.jobs) == 200
    desk.answer()
    assert len(client.read().json["results"]) == 200
