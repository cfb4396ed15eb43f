"""Fronts as processes: stopping, adopting a neighbour's listener, descriptor limits, signals."""

import contextlib
import http.client
import json
import os
import signal
import socket
import threading
import time

import pytest

from tests.front_desk import get, post
from tests.house import ROOT, House, wait_until

pytestmark = pytest.mark.sockets
ECHO = str(ROOT / "tests" / "fixtures" / "echo")
ASK = post({"text": "ok"})


@contextlib.contextmanager
def house(*arguments, **options):
    with House(["--model", ECHO, "--engines", "1", *arguments], **options) as up:
        yield up
        assert not [line for line in up.log if b"front_fault" in line]


def connect(port):
    client = socket.create_connection(("127.0.0.1", port), timeout=20)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client


def read_answer(client):
    response = http.client.HTTPResponse(client)
    response.begin()
    return response.status, dict(response.getheaders()), response.read()


def ask(port, request=ASK):
    with connect(port) as client:
        client.sendall(request)
        return read_answer(client)


def test_front_term_leaves_in_phases_and_answers_all():
    with house("--fronts", "2", "--lame-duck-s", "1", "--drain-s", "6") as up:
        idle, busy = connect(up.port), connect(up.port)
        for client in (idle, busy):
            client.sendall(ASK)
            assert "Connection" not in read_answer(client)[1]
        os.kill(up.pid, signal.SIGTERM)
        told_at = time.monotonic()
        wait_until("readyz says no", lambda: ask(up.port, get(b"/readyz"))[0] == 503, 1)
        assert ask(up.port)[0] == 200, "the lame duck takes requests"

        def drains():
            busy.sendall(ASK)
            status, headers, _ = read_answer(busy)
            assert status == 200
            return headers.get("Connection") == "close"
        wait_until("an open connection to be answered with close", drains, 3)
        assert busy.recv(1) == b""
        busy.close()
        with pytest.raises(ConnectionRefusedError):
            wait_until("nobody to be let in", lambda: connect(up.port).close(), 2)
        assert idle.recv(1) == b""
        # The lame duck's second, then half of the drain's six.
        assert 3.5 < time.monotonic() - told_at < 7
        idle.close()
        assert up.process.wait(10) == 0


def test_front_int_answers_what_is_open_and_ends():
    with house("--fronts", "1", "--drain-s", "20") as up:
        with connect(up.port) as client:
            client.sendall(post({"text": "see traplate now"}))
            wait_until("the request to be in flight", lambda: any(
                value for (metric, _), value in up.counters().items()
                if metric == "firebrick_inflight"))
            os.kill(up.pid, signal.SIGINT)
            status, headers, _ = read_answer(client)
            assert status == 200 and headers["Connection"] == "close"
        assert up.process.wait(15) == 0


def test_front_end_of_the_drain_answers_503_and_exits_1():
    with house("--fronts", "1", "--drain-s", "1") as up:
        client = connect(up.port)
        client.sendall(post({"text": "see trapspin now"}))
        wait_until("the request to be in flight", lambda: any(
            value for (metric, _), value in up.counters().items()
            if metric == "firebrick_inflight"))
        os.kill(up.pid, signal.SIGINT)
        status, _, body = read_answer(client)
        assert (status, json.loads(body)["error"]["code"]) == (503, "draining")
        client.close()
        assert up.process.wait(15) == 1


def test_front_stop_under_load_resets_nobody_who_was_let_in():
    outcomes: list[str] = []
    with house("--fronts", "2", "--lame-duck-s", "0.2", "--drain-s", "10") as up:
        is_over = threading.Event()

        def come_and_go():
            while not is_over.is_set():
                try:
                    client = connect(up.port)
                except OSError:
                    outcomes.append("refused")
                    return
                with client:
                    try:
                        client.sendall(ASK)
                        outcomes.append(str(read_answer(client)[0]))
                    except (OSError, http.client.HTTPException) as error:
                        outcomes.append(repr(error))

        threads = [threading.Thread(target=come_and_go) for _ in range(4)]
        for thread in threads:
            thread.start()
        wait_until("some answers", lambda: len(outcomes) > 50)
        os.kill(up.pid, signal.SIGTERM)
        for thread in threads:
            thread.join(30)
        is_over.set()
        assert up.process.wait(20) == 0
    assert set(outcomes) <= {"200", "refused"}, set(outcomes)


def test_front_stopped_neighbour_loses_no_new_client():
    with house("--fronts", "2") as up:
        first = up.pids("front")[0]
        os.kill(first, signal.SIGSTOP)
        try:
            for _ in range(20):
                started = time.monotonic()
                assert ask(up.port)[0] == 200
                assert time.monotonic() - started < 3
        finally:
            os.kill(first, signal.SIGCONT)
        wait_until("it to serve again", lambda: ask(up.port)[0] == 200)
        assert not [line for line in up.log if b"process_died" in line]


def test_front_frozen_for_longer_than_its_timeouts_expires_nobody():
    with house("--fronts", "1", "--read-timeout", "1") as up:
        front, = up.pids("front")
        with connect(up.port) as client:
            client.sendall(ASK[:-5])
            os.kill(front, signal.SIGSTOP)
            time.sleep(1.6)
            client.sendall(ASK[-5:])
            os.kill(front, signal.SIGCONT)
            assert read_answer(client)[0] == 200


def test_front_at_its_descriptor_limit_makes_room_by_closing_the_idle():
    with house("--fronts", "1", descriptor_limit=64) as up:
        idle = [connect(up.port) for _ in range(80)]
        started = time.monotonic()
        assert ask(up.port)[0] == 200
        assert time.monotonic() - started < 5
        for client in idle:
            client.close()


def test_front_shows_its_stacks_and_goes_on():
    with house("--fronts", "1") as up:
        os.kill(up.pid, signal.SIGUSR2)
        wait_until("stacks", lambda: any(b"front.py" in line for line in list(up.log)))
        assert ask(up.port)[0] == 200


def test_front_without_key_is_refused_with_key_is_served(tmp_path):
    (tmp_path / "keys").write_text("# ours\nfirst-key\nsecond-key\n")
    with house("--fronts", "1", "--api-keys", str(tmp_path / "keys")) as up:
        status, headers, _ = ask(up.port)
        assert status == 401 and headers["WWW-Authenticate"] == "Bearer"
        assert ask(up.port, post({"text": "a"}, b"X-API-Key: second-key"))[0] == 200
        assert ask(up.port, get(b"/metrics"))[0] == 200
