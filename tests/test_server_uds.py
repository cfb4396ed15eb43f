"""A Unix socket instead of TCP or beside it: asked, left behind, taken, taken over, and freed."""

import os
import signal
import socket
import subprocess
import sys

import pytest

from server.errors import OperatorError
from server.listeners import close_unix_path, open_unix_listener, take_over
from tests.front_desk import get, post
from tests.house import ROOT, House, send_signal
from tests.test_server_front import ask, read_answer

pytestmark = pytest.mark.sockets
ECHO = str(ROOT / "tests" / "fixtures" / "echo")


def ask_at(path, request):
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(20)
        client.connect(str(path))
        client.sendall(request)
        return read_answer(client)


def test_uds_answers_beside_tcp_and_is_gone_with_the_server(tmp_path):
    path = tmp_path / "front.sock"
    with House(["--model", ECHO, "--engines", "1", "--lame-duck-s", "0",
                "--uds", str(path)]) as up:
        for _ in range(20):
            assert ask_at(path, post({"text": "ok"}))[0] == 200
        assert ask(up.port)[0] == 200
        os.kill(up.pid, signal.SIGHUP)
        while up.info()["generation"] == 1:
            assert ask_at(path, get(b"/healthz"))[0] == 200
        assert ask_at(path, post({"text": "ok"}))[0] == 200
        os.kill(up.pid, signal.SIGTERM)
        assert up.process.wait(20) == 0
    assert not path.exists()


def test_uds_alone_opens_no_port(tmp_path):
    path = tmp_path / "front.sock"
    process = subprocess.Popen(
        [sys.executable, "-m", "server", "--model", ECHO, "--engines", "1", "--lame-duck-s", "0",
         "--uds", str(path)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert process.stdout.readline().startswith(f"ready unix:{path} ".encode())
        assert ask_at(path, post({"text": "ok"}))[0] == 200
        held = [os.readlink(f"/proc/{process.pid}/fd/{number}")
                for number in os.listdir(f"/proc/{process.pid}/fd")]
        with open("/proc/net/tcp") as table:
            inodes = {f"socket:[{line.split()[9]}]" for line in table.readlines()[1:]}
        assert not inodes & set(held)
    finally:
        send_signal(process.pid, signal.SIGTERM)
        process.wait(20)
        process.stdout.close()


def test_uds_path_that_is_served_is_4_and_a_stale_one_is_replaced(tmp_path):
    path = str(tmp_path / "a.sock")
    first = open_unix_listener(path, False)
    with pytest.raises(OperatorError) as caught:
        open_unix_listener(path, False)
    assert caught.value.exit_code == 4 and "--share-port" in caught.value.message
    first.close()                           # as kill -9 does: the path stays
    second = open_unix_listener(path, False)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
    second.close()
    close_unix_path(path)
    assert os.listdir(tmp_path) == []


def test_uds_path_is_taken_over_by_a_successor_and_not_removed_by_its_predecessor(tmp_path):
    path = str(tmp_path / "a.sock")
    first = open_unix_listener(path, False)
    second = open_unix_listener(path, True)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        first.accept()[0].close()
    take_over(path)
    first.close()
    close_unix_path(path)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        second.accept()[0].close()
    second.close()


@pytest.mark.parametrize("name", ["plain", "missing/a.sock", "x" * 120])
def test_uds_path_that_cannot_be_is_refused_in_one_sentence(tmp_path, name):
    (tmp_path / "plain").write_text("data")
    with pytest.raises(OperatorError) as caught:
        open_unix_listener(str(tmp_path / name), False)
    assert "--uds" in caught.value.message and "\n" not in caught.value.message
    assert (tmp_path / "plain").read_text() == "data"
