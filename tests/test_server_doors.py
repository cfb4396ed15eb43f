"""A front's listeners: its own, a stale neighbour's, limits, and the last ones to be let in."""

import errno
import select
import socket

import pytest

from server import doors as module
from server.doors import BREATH_S, FAREWELL_S, LET_GO_S, STALE_S, Doors
from server.knocks import is_anybody_coming
from server.metrics import Registry
from tests.half_open import half_open, hear_again
from tests.house import wait_until


@pytest.fixture
def world():
    """(doors of front 0 of two, both listeners, pages, poll, a function that connects to one)."""
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    for listener in listeners:
        listener.setblocking(False)
    registry, poll, clients = Registry(2, 1), select.epoll(), []
    pages = [registry.page("front", index, 1) for index in range(2)]

    def come(index):
        clients.append(socket.create_connection(listeners[index].getsockname(), timeout=5))

    yield Doors(listeners, 0, pages, poll, 3), listeners, pages, poll, come
    for sock in [*listeners, *clients]:
        sock.close()
    poll.close()


def ready(poll):
    return [number for number, _ in poll.poll(0)]


def let_in(doors, listener, connections=0, now=10.0):
    accepted = doors.accept(listener.fileno(), connections, now)
    for client in accepted:
        client.close()
    return len(accepted)


def test_doors_own_listener_is_polled_a_fresh_neighbours_is_not(world):
    doors, (own, other), pages, poll, come = world
    pages[1].turn(10.0)
    doors.watch(10.0)
    come(0)
    come(1)
    assert ready(poll) == [own.fileno()]
    assert let_in(doors, own) == 1 and ready(poll) == []


def test_doors_stale_neighbours_listener_is_adopted_and_given_back(world):
    doors, (own, other), pages, poll, come = world
    pages[1].turn(10.0)
    come(1)
    doors.watch(10.0 + STALE_S - 0.01)
    assert ready(poll) == []
    doors.watch(10.0 + STALE_S + 0.2)
    assert ready(poll) == [other.fileno()] and let_in(doors, other) == 1
    pages[1].turn(11.0)
    doors.watch(11.1)
    come(1)
    assert ready(poll) == []


def test_doors_full_front_lets_nobody_in_until_one_leaves(world):
    doors, (own, _), pages, poll, come = world
    pages[1].turn(10.0)
    doors.watch(10.0)
    for _ in range(4):
        come(0)
    assert let_in(doors, own, connections=1) == 2
    assert let_in(doors, own, connections=3) == 0 and ready(poll) == []
    doors.watch(10.01)
    assert ready(poll) == []
    doors.released()
    doors.watch(10.02)
    assert ready(poll) == [own.fileno()]


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
def test_doors_without_descriptors_wait_a_breath(world, number, monkeypatch):
    doors, (own, _), pages, poll, come = world

    class Failing:
        def accept(self):
            raise OSError(number, "limit")

    pages[1].turn(10.0)
    doors.watch(10.0)
    come(0)
    listener = doors._listeners[own.fileno()]
    doors._listeners[own.fileno()] = Failing()
    assert let_in(doors, own) == 0 and ready(poll) == []
    doors._listeners[own.fileno()] = listener
    doors.watch(10.0 + BREATH_S / 2)
    assert ready(poll) == []
    pages[1].turn(10.0 + BREATH_S)
    doors.watch(10.0 + BREATH_S)
    assert ready(poll) == [own.fileno()] and let_in(doors, own) == 1


def test_doors_client_that_is_gone_already_stops_nobody(world):
    doors, (own, _), pages, poll, come = world
    real, answers = own, [OSError(errno.ECONNABORTED, "gone"), OSError(errno.EPROTO, "gone")]

    class Aborting:
        def accept(self):
            if answers:
                raise answers.pop()
            return real.accept()

    come(0)
    doors._listeners[own.fileno()] = Aborting()
    assert let_in(doors, own) == 1


def test_doors_accept_in_a_turn_is_bounded(world, monkeypatch):
    monkeypatch.setattr(module, "ACCEPTS_A_TURN", 2)
    doors, (own, _), _, _, come = world
    for _ in range(3):
        come(0)
    assert let_in(doors, own) == 2


def test_doors_that_close_let_in_who_waits_and_then_nobody(world):
    doors, (own, other), pages, poll, come = world
    doors.watch(10.0)
    address = own.getsockname()
    come(0)
    doors.close_soon(20.0)
    assert other.fileno() < 0 and not doors.is_closed
    assert doors.last_clients(0, 20.0) == [] and doors.next_timer(20.0) == 20.0 + LET_GO_S
    last = doors.last_clients(0, 20.0 + LET_GO_S)
    assert len(last) == 1 and doors.is_closed
    last[0].close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=5)
    doors.watch(30.0)
    assert ready(poll) == [] and doors.last_clients(0, 30.0) == []


class Stand:
    """Stands for a listener whose `accept` is another."""

    def __init__(self, listener):
        self.listener = listener

    def __getattr__(self, name):
        return getattr(self.listener, name)


def knock(listener):
    """A client that has asked to be let in, and does not wait for it."""
    client = socket.socket(listener.family)
    client.settimeout(5)
    client.setblocking(False)
    asked = client.connect_ex(listener.getsockname())
    return client, asked


def is_refused(client):
    """How a connection that was under way ends: refused, or made."""
    select.select([], [client], [], 10)
    return client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED


def test_doors_client_that_knocks_as_they_close_is_refused_and_never_reset(world):
    doors, (own, _), _, _, _ = world
    late = []

    class Watched(Stand):
        """Somebody knocks when nobody else waits, just before the listener closes."""

        def accept(self):
            try:
                return own.accept()
            except BlockingIOError:
                late.append(knock(own)[0])
                raise

    doors._listeners[own.fileno()] = Watched(own)
    doors.close_soon(20.0)
    assert doors.last_clients(0, 20.0 + LET_GO_S) == [] and doors.is_closed
    with late[0]:
        assert is_refused(late[0])


def test_doors_client_in_the_middle_of_its_handshake_is_waited_for(world):
    doors, (own, _), _, _, _ = world
    with half_open(own.getsockname()) as client:
        wait_until("the kernel to answer it", lambda: is_anybody_coming(own))
        doors.close_soon(20.0)
        now = 20.0 + LET_GO_S
        assert doors.last_clients(0, now) == [] and not doors.is_closed
        assert doors.next_timer(now) == now + FAREWELL_S
        hear_again(client)
        wait_until("it to come in", lambda: select.select([own], [], [], 0)[0])
        last = doors.last_clients(0, now + FAREWELL_S)
        assert len(last) == 1 and doors.is_closed
        client.settimeout(10)
        last[0].sendall(b"welcome")
        last[0].close()
        assert client.recv(10) == b"welcome"


def test_doors_client_that_knocks_while_a_neighbour_holds_the_listener_is_refused(world):
    doors, (own, _), _, _, come = world
    neighbours = own.dup()
    doors.close_soon(20.0)
    assert doors.last_clients(0, 20.0 + LET_GO_S) == [] and doors.is_closed
    client, asked = knock(neighbours)
    with client:
        assert asked == errno.EINPROGRESS
        neighbours.close()
        assert is_refused(client)


def test_doors_of_a_full_front_close_when_all_who_wait_are_let_in(world):
    doors, (own, _), _, _, come = world
    come(0)
    come(0)
    doors.close_soon(20.0)
    now = 20.0 + LET_GO_S
    assert doors.last_clients(3, now) == [] and not doors.is_closed
    assert doors.last_clients(2, now) == [] and not doors.is_closed, "a breath"
    doors.released()
    last = doors.last_clients(2, now)
    assert len(last) == 1 and not doors.is_closed
    last += doors.last_clients(2, now)
    assert len(last) == 2
    doors.last_clients(1, now)
    assert doors.is_closed
    for client in last:
        client.close()


def test_doors_close_behind_clients_that_are_gone_but_not_before_others(world, monkeypatch):
    monkeypatch.setattr(module, "ACCEPTS_A_TURN", 2)
    doors, (own, _), _, _, come = world
    answers = [OSError(errno.ECONNABORTED, "gone"), OSError(errno.EPROTO, "gone")]

    class Aborting(Stand):
        def accept(self):
            if answers:
                raise answers.pop()
            return own.accept()

    come(0)
    doors._listeners[own.fileno()] = Aborting(own)
    doors.close_soon(20.0)
    assert doors.last_clients(0, 21.0) == [] and not doors.is_closed
    last = doors.last_clients(0, 21.0)
    assert len(last) == 1 and doors.is_closed
    last[0].close()


def test_doors_shared_listener_that_closes_refuses_at_once_whoever_knocks(tmp_path):
    shared = socket.socket(socket.AF_UNIX)
    shared.bind(str(tmp_path / "s"))
    shared.listen()
    shared.setblocking(False)
    neighbours = shared.dup()
    with select.epoll() as poll, neighbours, socket.socket(socket.AF_UNIX) as client:
        doors = Doors([], 0, [], poll, 3, [shared])
        client.connect(str(tmp_path / "s"))
        doors.close_soon(20.0)
        last = doors.last_clients(0, 20.0 + LET_GO_S)
        assert len(last) == 1 and doors.is_closed
        last[0].close()
        late, asked = knock(neighbours)
        late.close()
        assert asked == errno.ECONNREFUSED


def test_doors_held_lets_nobody_in_until_it_is_opened(world):
    doors, (own, other), pages, poll, come = world
    pages[1].turn(10.0)
    doors.hold()
    come(0)
    doors.watch(10.0)
    doors.watch(20.0)
    assert ready(poll) == [] and not doors.is_open
    doors.open()
    pages[1].turn(20.0)
    doors.watch(20.0)
    assert doors.is_open and let_in(doors, own) == 1


def test_doors_closed_at_once_leave_those_who_wait_to_others(world):
    doors, (own, other), pages, poll, come = world
    heir = own.dup()
    heir.setblocking(False)
    doors.watch(10.0)
    come(0)
    doors.close()
    assert doors.is_closed and not doors.is_open and ready(poll) == []
    assert doors.last_clients(0, 20.0) == []
    heir.accept()[0].close()
    heir.close()


def test_doors_shared_listener_is_polled_by_every_front(world, tmp_path):
    _, listeners, pages, poll, _ = world
    shared = socket.socket(socket.AF_UNIX)
    shared.bind(str(tmp_path / "s"))
    shared.listen()
    shared.setblocking(False)
    for index in (0, 1):
        with select.epoll() as mine:
            pages[1 - index].turn(10.0)
            doors = Doors([listener.dup() for listener in listeners], index, pages, mine, 3,
                          [shared])
            doors.watch(10.0)
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(tmp_path / "s"))
                assert ready(mine) == [shared.fileno()]
                assert let_in(doors, shared) == 1
            for listener in doors._listeners.values():
                if listener is not shared:
                    listener.close()
    shared.close()
