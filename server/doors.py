"""Where clients come in: a front's own listener, those it adopts, and the limit of its descriptors.

Every front holds all listeners and polls its own, and the Unix socket that all share. While a
neighbour's page is stale, its listener is polled too, so that connections waiting there are not
lost with a front. At the limit of connections or descriptors nothing is polled until one is free:
new clients wait in the kernel's queue.
"""

import errno
import os
import resource
import select
import socket
from collections.abc import Sequence

from server.knocks import is_anybody_coming, send_elsewhere, take_leave
from server.metrics import TURN_AT, Page

STALE_S = 0.3
LOOK_S = 0.1                # how often the neighbours' pages are read
ACCEPTS_A_TURN = 64
CONNECTIONS_IN_ALL = 16_384
SPARE_DESCRIPTORS = 12      # for links, files of records and what the interpreter opens
# How long nobody is let in at a limit, unless a connection closes: nobody tells when the system as
# a whole has descriptors or memory again.
BREATH_S = 0.1
# Others let go of our listener within this; then it closes. Who knocks between its last moment and
# theirs, and has no other server to go to, learns only after a second that it is closed.
LET_GO_S = 0.1
# A client in the middle of its handshake completes it within this, a round trip in one region.
FAREWELL_S = 0.01
NEVER = float("inf")
_AT_LIMIT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def capacity_of(fronts: int) -> int:
    """How many connections this front may hold: its share of all, within its descriptors."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    held = len(os.listdir("/proc/self/fd"))
    return max(1, min(CONNECTIONS_IN_ALL // fronts, hard - held - SPARE_DESCRIPTORS))


class Doors:
    """The listeners of one front; `capacity` is how many connections it may hold."""

    def __init__(self, listeners: Sequence[socket.socket], own: int, neighbours: Sequence[Page],
                 poll: select.epoll, capacity: int, shared: Sequence[socket.socket] = ()) -> None:
        """`neighbours` are the fronts' pages, one for each of `listeners`, our own among them;
        `shared` are polled by every front."""
        self.capacity = capacity
        self._listeners = {listener.fileno(): listener for listener in (*listeners, *shared)}
        self._own = {listener.fileno() for listener in (*listeners[own:own + 1], *shared)}
        self._pages = {listener.fileno(): page for listener, page in zip(listeners, neighbours)}
        self._poll = poll
        self._watched: set[int] = set()
        self._look_at = 0.0
        self._blocked_until = 0.0
        self._closes_at = NEVER
        self._is_last_call = False      # nobody else gets into our listeners' queues

    @property
    def is_open(self) -> bool:
        """Whether our own listeners are polled."""
        return bool(self._own & self._watched)

    def hold(self) -> None:
        """Nobody is let in until `open`."""
        self._look_at = NEVER

    def open(self) -> None:
        """Ends `hold`."""
        if self._look_at == NEVER:
            self._look_at = 0.0

    def close(self) -> None:
        """Nobody is let in any more; others poll the same listeners."""
        self._poll_only(set())
        for listener in self._listeners.values():
            listener.close()
        self._listeners.clear()

    def watch(self, now: float) -> None:
        """Polls the listeners that it should at this time."""
        if now < self._look_at:
            return
        self._look_at = now + LOOK_S
        wanted: set[int] = set()
        if now >= self._blocked_until:
            wanted = {number for number in self._listeners if number in self._own
                      or now - self._pages[number].get(TURN_AT) > STALE_S}
        self._poll_only(wanted)

    def _poll_only(self, wanted: set[int]) -> None:
        for number in self._watched - wanted:
            self._poll.unregister(number)
        for number in wanted - self._watched:
            self._poll.register(number, select.EPOLLIN)
        self._watched = wanted

    def accept(self, number: int, connections: int, now: float) -> list[socket.socket]:
        """Clients that wait at the listener with that descriptor.

        None at the limit; then the listeners are not polled until `released` or a breath later.
        """
        return self._take(number, connections, now)[0] if number in self._listeners else []

    def _take(self, number: int, connections: int, now: float) -> tuple[list[socket.socket], bool]:
        """(clients that wait at a listener, whether no other waits there)."""
        accepted: list[socket.socket] = []
        listener = self._listeners[number]
        if connections >= self.capacity:
            self._block(now)
        for _ in range(min(ACCEPTS_A_TURN, self.capacity - connections)):
            try:
                client, _ = listener.accept()
            except (BlockingIOError, InterruptedError):
                return accepted, True
            except OSError as error:
                if error.errno in _AT_LIMIT:
                    self._block(now)
                    break
                continue        # of a client that is gone already (accept(2))
            client.setblocking(False)
            if client.family != socket.AF_UNIX:
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            accepted.append(client)
        return accepted, False

    def _block(self, now: float) -> None:
        self._blocked_until = self._look_at = now + BREATH_S
        self._poll_only(set())

    def released(self) -> None:
        """A connection was closed, so there is room for one."""
        if self._blocked_until:
            self._blocked_until = self._look_at = 0.0

    def close_soon(self, now: float) -> None:
        """Nobody may come in any more, but who waits at our listener is still let in."""
        if not self._listeners:
            return
        self._poll_only(self._watched & self._own)
        for number, listener in list(self._listeners.items()):
            if number not in self._own:
                listener.close()
                del self._listeners[number]
        self._closes_at = now + LET_GO_S

    @property
    def is_closed(self) -> bool:
        return not self._listeners

    def next_timer(self, now: float) -> float:
        """When `last_clients` is due, monotonic seconds."""
        return self._closes_at if now < self._closes_at else NEVER

    def last_clients(self, connections: int, now: float) -> list[socket.socket]:
        """Those who waited when our own listeners closed, after `close_soon`. Each closes when
        nobody waits there; at the limit that is not known before there is room."""
        if now < max(self._closes_at, self._blocked_until):
            return []
        if not self._is_last_call:
            self._is_last_call = True
            for listener in self._listeners.values():
                send_elsewhere(listener, len(self._pages))
            if any(map(is_anybody_coming, self._listeners.values())):
                self._closes_at = now + FAREWELL_S
                return []
        accepted: list[socket.socket] = []
        for number, listener in list(self._listeners.items()):
            came, is_empty = self._take(number, connections + len(accepted), now)
            accepted += came
            if is_empty:
                self._poll_only(self._watched - {number})
                take_leave(listener)
                self._listeners.pop(number).close()
        return accepted
