"""Clients who knock at listeners that close: led to a successor's, or refused, never reset."""

import errno
import select
import socket

import pytest

from server.knocks import is_anybody_coming, send_elsewhere, take_leave
from server.listeners import begin_listening, open_listeners
from tests.half_open import half_open, hear_again
from tests.house import wait_until

pytestmark = pytest.mark.sockets
ASKED = 40


@pytest.fixture
def port():
    """(a server's two listeners, three of a successor on the same port, the port)."""
    ours = open_listeners("127.0.0.1", 0, 2, False)
    number = ours[0].getsockname()[1]
    theirs = open_listeners("127.0.0.1", number, 3, True)
    yield ours, theirs, number
    for listener in (*ours, *theirs):
        listener.close()


def arrivals(listeners, number):
    """How many of ASKED new clients come to each listener."""
    clients = [socket.create_connection(("127.0.0.1", number), timeout=5) for _ in range(ASKED)]
    counts = [waiting(listener) for listener in listeners]
    for client in clients:
        client.close()
    return counts


def waiting(listener):
    count = 0
    while True:
        try:
            listener.accept()[0].close()
        except BlockingIOError:
            return count
        count += 1


def test_knocks_while_a_predecessor_closes_are_led_to_its_successor(port):
    ours, theirs, number = port
    begin_listening(theirs)
    for listener in ours:
        send_elsewhere(listener, len(ours))
    counts = arrivals([*ours, *theirs], number)
    assert counts[:2] == [0, 0] and sum(counts) == ASKED


def test_knocks_after_a_predecessor_has_left_are_shared_by_all_of_its_successor(port):
    ours, theirs, number = port
    begin_listening(theirs)
    for listener in ours:
        send_elsewhere(listener, len(ours))
    for listener in ours:
        take_leave(listener)
        listener.close()
    # That one of three gets none of forty by chance happens once in four million times.
    assert all(arrivals(theirs, number))


def test_knocks_where_nobody_succeeds_end_with_the_port_and_who_waits_is_kept(port):
    ours, theirs, number = port
    for listener in theirs:
        listener.close()
    early = socket.create_connection(("127.0.0.1", number), timeout=5)
    with early, socket.socket() as late:
        for listener in ours:
            send_elsewhere(listener, len(ours))
        late.setblocking(False)
        assert late.connect_ex(("127.0.0.1", number)) == errno.EINPROGRESS
        assert sum(map(waiting, ours)) == 1
        for listener in ours:
            take_leave(listener)
            listener.close()
        select.select([], [late], [], 10)
        assert late.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED


def test_knocks_at_an_ipv6_listener_are_kept_out_too():
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no IPv6")
    with listener, socket.socket(socket.AF_INET6) as late:
        listener.setblocking(False)
        send_elsewhere(listener, 1)
        late.setblocking(False)
        assert late.connect_ex(listener.getsockname()) == errno.EINPROGRESS
        assert waiting(listener) == 0


def test_knocks_that_are_answered_but_not_complete_are_known_of(port):
    ours, theirs, number = port
    begin_listening(theirs)
    with socket.create_connection(("127.0.0.1", number), timeout=5):
        assert not is_anybody_coming(ours[0]), "it has come"
    with half_open(("127.0.0.1", number)) as client:
        wait_until("the kernel to answer", lambda: is_anybody_coming(ours[0]))
        with socket.create_server(("127.0.0.1", 0)) as other:
            assert not is_anybody_coming(other)
        hear_again(client)
        wait_until("the handshake", lambda: not is_anybody_coming(ours[0]))


def test_knocks_at_a_unix_socket_come_in_one_step(tmp_path):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        assert not is_anybody_coming(listener)
