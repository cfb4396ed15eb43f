"""Listening sockets: taken ports, TIME_WAIT, sharing, both families, words for what goes wrong."""

import contextlib
import os
import socket

import pytest

from server.errors import OperatorError
from server.listeners import begin_listening, open_listeners, shown_address

pytestmark = pytest.mark.sockets


@contextlib.contextmanager
def listening(host="127.0.0.1", port=0, count=1, share=False):
    listeners = open_listeners(host, port, count, share)
    if share:
        begin_listening(listeners)
    try:
        yield listeners
    finally:
        for listener in listeners:
            listener.close()


def port_of(listeners):
    ports = {listener.getsockname()[1] for listener in listeners}
    assert len(ports) == 1
    return ports.pop()


def refusal(host, port, share=False):
    with pytest.raises(OperatorError) as caught:
        open_listeners(host, port, 2, share)
    assert "\n" not in caught.value.message
    return caught.value


def connect(port, host="127.0.0.1"):
    return socket.create_connection((host, port), timeout=10)


def test_listeners_are_one_a_front_on_one_free_port():
    with listening(count=3) as listeners:
        port = port_of(listeners)
        assert port > 0 and len(listeners) == 3
        clients = [connect(port) for _ in range(30)]
        accepted = []
        for listener in listeners:
            assert not listener.getblocking()
            with contextlib.suppress(BlockingIOError):
                while True:
                    accepted.append(listener.accept()[0])
        assert len(accepted) == len(clients)
        for sock in clients + accepted:
            sock.close()


def test_listeners_taken_port_is_4_and_says_what_to_do():
    with listening(count=2) as listeners:
        refused = refusal("127.0.0.1", port_of(listeners))
    assert refused.exit_code == 4
    assert "--port" in refused.message and "127.0.0.1" in refused.message


def test_listeners_port_taken_by_a_stranger_with_reuse_is_4():
    with socket.socket() as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        assert refusal("127.0.0.1", stranger.getsockname()[1]).exit_code == 4


def test_listeners_connections_in_time_wait_are_no_taken_port():
    with listening() as listeners:
        port = port_of(listeners)
        client = connect(port)
        listeners[0].setblocking(True)
        server = listeners[0].accept()[0]
        server.close()          # the side that closes first keeps TIME_WAIT
        assert client.recv(1) == b""
        client.close()
    with listening(port=port, count=2) as listeners:
        assert port_of(listeners) == port


def test_listeners_share_port_joins_a_server_that_did_not_ask_for_it():
    with listening(count=2) as old:
        port = port_of(old)
        assert refusal("127.0.0.1", port).exit_code == 4
        with listening(port=port, count=2, share=True) as new:
            assert port_of(new) == port


def test_listeners_failure_leaves_no_descriptor():
    with listening() as listeners:
        port = port_of(listeners)
        before = len(os.listdir("/proc/self/fd"))
        refusal("127.0.0.1", port)
        assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("host", ["::1", "[::1]", "::", "[::]"])
def test_listeners_ipv6_is_ipv6_alone(host):
    try:
        opened = open_listeners(host, 0, 2, False)
    except OperatorError as error:
        pytest.skip(f"this machine has no IPv6: {error.message}")
    port = port_of(opened)
    with connect(port, "::1"):
        pass
    with listening("0.0.0.0", port) as both:
        assert port_of(both) == port
    for listener in opened:
        listener.close()


def test_listeners_name_of_both_families_takes_ipv4():
    with listening("localhost") as listeners:
        assert listeners[0].family == socket.AF_INET


@pytest.mark.parametrize("host", ["no.such.host.invalid", "203.0.113.7", "a..b", "x" * 70])
def test_listeners_host_that_is_not_ours_is_2(host):
    refused = refusal(host, 0)
    assert refused.exit_code == 2 and host in refused.message


@pytest.mark.parametrize("host, shown", [
    ("127.0.0.1", "127.0.0.1:8000"), ("localhost", "localhost:8000"), ("::1", "[::1]:8000"),
    ("[::1]", "[::1]:8000")])
def test_listeners_shown_address_is_that_of_a_url(host, shown):
    assert shown_address(host, 8000) == shown


def test_listeners_of_a_successor_get_nobody_before_they_begin():
    with listening(count=2, share=True) as old:
        port = port_of(old)
        successor = open_listeners("127.0.0.1", port, 2, True)
        clients = [connect(port) for _ in range(40)]
        begin_listening(successor)
        clients += [connect(port) for _ in range(40)]
        counts = []
        for listener in (*old, *successor):
            counts.append(0)
            with contextlib.suppress(BlockingIOError):
                while True:
                    listener.accept()[0].close()
                    counts[-1] += 1
        assert sum(counts[:2]) >= 40 and sum(counts[2:]) > 0 and sum(counts) == 80
        for sock in (*clients, *successor):
            sock.close()
