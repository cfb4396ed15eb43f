"""A live server under hostile and unlucky clients: clear answers, and neighbours undisturbed."""

import http.client
import json
import resource
import socket
import time

import pytest

from tests.house import ROOT, House, wait_until

pytestmark = pytest.mark.sockets
ECHO = str(ROOT / "tests" / "fixtures" / "echo")
ASK = b"POST /infer HTTP/1.1\r\nHost: h\r\nContent-Length: 14\r\n\r\n" + b'{"text": "ok"}'


@pytest.fixture(scope="module")
def house():
    with House(["--model", ECHO, "--fronts", "2", "--engines", "1", "--read-timeout", "1"]) as up:
        yield up


def connect(house, timeout=20):
    client = socket.create_connection(("127.0.0.1", house.port), timeout=timeout)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client


def read_answer(client):
    """(status, headers, body) of one response; status 0 where the connection ends first."""
    response = http.client.HTTPResponse(client)
    try:
        response.begin()
        return response.status, dict(response.getheaders()), response.read()
    except (http.client.HTTPException, ConnectionError):
        return 0, {}, b""


class OneStream:
    """A client whose answers are all read through one buffer, which may hold several."""

    def __init__(self, client):
        self._file = client.makefile("rb")
        self._file.close = lambda: None

    def makefile(self, _mode):
        return self._file


def ask(house, request=ASK):
    with connect(house) as client:
        client.sendall(request)
        return read_answer(client)


def post(body, *headers):
    head = [b"POST /infer HTTP/1.1", b"Host: h", b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join(head) + b"\r\n\r\n" + body


@pytest.fixture(autouse=True)
def neighbour_is_answered(house):
    """Before and after each case a new client gets the same right answer."""
    wanted = json.loads(ask(house)[2])
    yield
    status, _, body = ask(house)
    answer = json.loads(body)
    assert status == 200
    assert {k: answer[k] for k in ("label", "scores", "tokens")} == {
        k: wanted[k] for k in ("label", "scores", "tokens")}


def test_house_body_over_the_limit_is_answered_413_though_unread(house):
    with connect(house) as client:
        client.sendall(b"POST /infer HTTP/1.1\r\nHost: h\r\nContent-Length: 20000000\r\n\r\n")
        sent = 0
        try:
            while sent < 20_000_000:
                sent += client.send(b"x" * 65536)
        except OSError:
            pass
        status, headers, body = read_answer(client)
    assert status == 413 and headers["Connection"] == "close"
    assert json.loads(body)["error"]["code"] == "too_large"


def test_house_expect_continue_is_answered_before_the_body(house):
    with connect(house) as client:
        client.sendall(b"POST /infer HTTP/1.1\r\nHost: h\r\nContent-Length: 14\r\n"
                       b"Expect: 100-continue\r\n\r\n")
        assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(b'{"text": "ok"}')
        assert read_answer(client)[0] == 200


def test_house_expect_continue_of_a_refused_request_is_the_refusal(house):
    with connect(house) as client:
        client.sendall(b"POST /infer HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999\r\n"
                       b"Expect: 100-continue\r\n\r\n")
        assert read_answer(client)[0] == 413


def test_house_slow_body_is_answered_408(house):
    with connect(house) as client:
        client.sendall(post(b"x" * 100)[:-90])
        status, _, body = read_answer(client)
    assert status == 408 and json.loads(body)["error"]["code"] == "timeout"


def test_house_dribbled_chunks_end_at_the_deadline(house):
    with connect(house) as client:
        client.sendall(b"POST /infer HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n")
        client.settimeout(0.05)
        data = b""
        started = time.monotonic()
        while b"\r\n\r\n" not in data and time.monotonic() - started < 15:
            try:
                client.sendall(b"1\r\nx\r\n")
                data += client.recv(65536)
            except TimeoutError:
                continue
            except OSError:
                break
    assert data.startswith(b"HTTP/1.1 408 ")


def test_house_half_closed_client_gets_its_answer(house):
    with connect(house) as client:
        client.sendall(ASK)
        client.shutdown(socket.SHUT_WR)
        assert read_answer(client)[0] == 200


def test_house_pipelined_requests_are_answered_in_order(house):
    texts = [f"text {number} " + "a " * (number * 7 % 30) for number in range(60)]
    with connect(house) as client:
        client.sendall(b"".join(post(json.dumps({"text": t, "user_id": i}).encode())
                                for i, t in enumerate(texts)))
        stream = OneStream(client)
        for number in range(len(texts)):
            status, _, body = read_answer(stream)
            assert status == 200 and json.loads(body)["user_id"] == number


def test_house_content_errors_keep_the_connection(house):
    cases = [(b"", "invalid_json"), (b'{"text": "\\ud800"}', "invalid_utf8"),
             (b'{"text": "\xff"}', "invalid_utf8"), (b'{"txt": "a"}', "invalid_field"),
             (b"[]" * (1 << 21), "invalid_json"), (b"\x00", "invalid_json")]
    with connect(house) as client:
        for body, code in cases:
            client.sendall(post(body))
            status, headers, answer = read_answer(client)
            assert (status, json.loads(answer)["error"]["code"]) == (400, code)
            assert "X-Latency-ms" in headers
            client.sendall(ASK)
            assert read_answer(client)[0] == 200


@pytest.mark.parametrize("text", [
    "a" * 4_000_000, "a " * 2_000_000, "é" * 1_000_000, "中" * 1_000_000, "e\u0301" * 900_000,
    "\u0301" * 1_000_000, "." * 4_000_000, " " * 4_000_000, "[SEP]" * 700_000,
    "\U0001f600" * 500_000,
    "".join(chr(0x4E00 + i % 20000) for i in range(900_000)), "x" * 100 + " " + "y" * 3_000_000,
], ids=["word", "words", "accents", "cjk", "decomposed", "marks", "dots", "spaces", "specials",
        "emoji", "many-cjk", "two-words"])
def test_house_worst_text_for_the_tokeniser_is_answered(house, text):
    body = json.dumps({"text": text}, ensure_ascii=False).encode()
    status, _, answer = ask(house, post(body))
    assert status == 200 and json.loads(answer)["tokens"] <= 512


def test_house_client_gone_before_its_answer_counts_as_499(house):
    name = ("firebrick_requests_total", 'route="/infer",code="499"')
    before = house.counters().get(name, 0)
    with connect(house) as client:
        client.sendall(post(b'{"text": "see traplate now"}'))
        wait_until("the request to be in flight", lambda: any(
            value for (metric, _), value in house.counters().items()
            if metric == "firebrick_inflight"))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    wait_until("the 499 to be counted", lambda: house.counters().get(name, 0) == before + 1)


def test_house_flood_of_connections_every_request_gets_one_answer(house):
    clients = [connect(house) for _ in range(300)]
    for client in clients:
        client.sendall(post(json.dumps({"texts": ["a b c"] * 50}).encode()))
    statuses = [read_answer(client)[0] for client in clients]
    for client in clients:
        client.close()
    assert set(statuses) <= {200, 429} and 200 in statuses


def test_house_http_10_closes_unless_asked_to_keep(house):
    plain = b"POST /infer HTTP/1.0\r\nContent-Length: 14\r\n\r\n" + b'{"text": "ok"}'
    with connect(house) as client:
        client.sendall(plain)
        assert read_answer(client)[0] == 200
        assert client.recv(1) == b""
    with connect(house) as client:
        for _ in range(3):
            client.sendall(plain.replace(b"\r\n\r\n", b"\r\nConnection: keep-alive\r\n\r\n"))
            status, headers, _ = read_answer(client)
            assert status == 200 and headers["Connection"].lower() == "keep-alive"


@pytest.mark.parametrize("request_line,status", [
    (b"HEAD /healthz", 200), (b"GET //healthz", 404), (b"GET /%zz", 400),
    (b"GET /metrics?x=1", 200),
    (b"DELETE /infer", 405), (b"OPTIONS /infer", 200), (b"GET /he%61lthz", 200),
    (b"GET http://h/healthz", 200), (b"GET /nothing", 404), (b"BREW /infer", 501),
], ids=lambda value: value.decode() if isinstance(value, bytes) else str(value))
def test_house_routes_answer_and_keep_the_connection(house, request_line, status):
    with connect(house) as client:
        client.sendall(request_line + b" HTTP/1.1\r\nHost: h\r\n\r\n")
        head = b""
        while b"\r\n\r\n" not in head:
            head += client.recv(1)
        assert head.split()[1] == b"%d" % status
        if request_line.startswith(b"HEAD") or status == 405 and b"allow:" in head.lower():
            assert request_line.startswith(b"HEAD") or b"POST" in head
    assert ask(house)[0] == 200


def test_house_idle_connections_are_held_while_others_are_served(house):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 10_000
    if hard < wanted + 500:
        pytest.skip(f"the descriptor limit of this machine is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted + 500), hard))
    idle = []
    try:
        for _ in range(wanted):
            idle.append(connect(house))
        assert ask(house)[0] == 200
        for client in idle[::500]:
            client.sendall(ASK)
            assert read_answer(client)[0] == 200
    finally:
        for client in idle:
            client.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    wait_until("the server to let them go", lambda: sum(
        value for (metric, _), value in house.counters().items()
        if metric == "firebrick_connections") < 10)


def test_house_at_its_descriptor_limit_goes_on_serving():
    with House(["--model", ECHO, "--fronts", "2", "--engines", "1"], descriptor_limit=64) as small:
        held = [connect(small) for _ in range(200)]
        for client in held:
            client.sendall(ASK)
        answered = [held[0]]
        assert read_answer(held[0])[0] == 200
        for client in held[1:]:
            # Each close makes room for one that waits in the kernel's queue.
            answered.pop().close()
            assert read_answer(client)[0] == 200
            answered.append(client)
        answered.pop().close()
        assert ask(small)[0] == 200
