"""The service manager hears what systemd expects, and nobody else anything."""

import os
import signal
import socket

import pytest

from server.notify import Notifier
from tests.house import ROOT, House, wait_until

ECHO = str(ROOT / "tests" / "fixtures" / "echo")


@pytest.fixture
def manager(tmp_path):
    """(the environment that names it, a function that gives the datagrams that came)."""
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(path)
        listener.setblocking(False)
        came = []

        def heard():
            try:
                while True:
                    came.append(listener.recv(4096).decode())
            except BlockingIOError:
                return came

        yield {"NOTIFY_SOCKET": path}, heard


def test_notify_says_what_happens_in_the_protocols_words(manager):
    environ, heard = manager
    notifier = Notifier(environ)
    notifier.ready("serving x")
    notifier.reloading()
    notifier.stopping()
    ready, reloading, stopping = [datagram.splitlines() for datagram in heard()]
    assert ready == ["READY=1", "STATUS=serving x"]
    assert reloading[0] == "RELOADING=1"
    assert reloading[1].startswith("MONOTONIC_USEC=") and reloading[1][15:].isdigit()
    assert stopping[0] == "STOPPING=1"


def test_notify_watchdog_is_fed_twice_in_its_time(manager):
    environ, heard = manager
    notifier = Notifier({**environ, "WATCHDOG_USEC": "2000000", "WATCHDOG_PID": str(os.getpid())})
    for tick in range(100):
        notifier.pulse(50.0 + tick / 10)
    assert heard() == ["WATCHDOG=1"] * 10


def test_notify_watchdog_of_another_process_is_left_alone(manager):
    environ, heard = manager
    Notifier({**environ, "WATCHDOG_USEC": "2000000", "WATCHDOG_PID": "1"}).pulse(50.0)
    Notifier(environ).pulse(50.0)
    assert heard() == []


def test_notify_manager_that_is_gone_is_no_fault(tmp_path):
    for address in ("", str(tmp_path / "nobody"), "@nobody-listens-here"):
        Notifier({"NOTIFY_SOCKET": address}).ready("x")


def test_notify_abstract_address_is_reached():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0firebrick-test-{os.getpid()}")
        listener.settimeout(5)
        Notifier({"NOTIFY_SOCKET": f"@firebrick-test-{os.getpid()}"}).stopping()
        assert listener.recv(100).startswith(b"STOPPING=1")


@pytest.mark.sockets
def test_notify_of_a_whole_life(manager, monkeypatch):
    environ, heard = manager
    monkeypatch.setenv("NOTIFY_SOCKET", environ["NOTIFY_SOCKET"])
    with House(["--model", ECHO, "--engines", "1", "--lame-duck-s", "0"]) as up:
        wait_until("READY", lambda: "READY=1" in "".join(heard()), 10)
        os.kill(up.pid, signal.SIGHUP)
        wait_until("READY again", lambda: "".join(heard()).count("READY=1") == 2, 20)
        os.kill(up.pid, signal.SIGTERM)
        assert up.process.wait(20) == 0
    assert [datagram.splitlines()[0] for datagram in heard()] == [
        "READY=1", "RELOADING=1", "READY=1", "STOPPING=1"]
