"""A front's clients: who is connected, what they are watched for, and when their time is up.

Turns what sockets bring into exchanges for server/requests.py, in bounded shares, and writes what
comes back. A connection is looked at again when its socket is ready, when its deadline passes, when
it holds more requests than one share (`go_on`), or when somebody answered one (`settle`).
"""

import heapq
import select
import socket
import time
from collections.abc import Callable

from server.actions import Outcome
from server.classify import Classifier
from server.connection import BUSY, IDLE_S, NEVER, RESTING, Connection
from server.errors import ClientError
from server.express import Express
from server.http1 import Head, Parser
from server.replies import Replies
from server.requests import Requests
from server.routes import Routes

REQUESTS_A_TURN = 32        # of one connection
CONNECTIONS_A_TURN = 64     # of those with more to pull
TIMERS_A_TURN = 500
# Bodies that are being received or wait to be read, together; a connection counts from the second
# number of bytes on. Beyond, requests that still send are refused.
HELD_BYTES = 256 << 20
COUNTED_FROM_BYTES = 64 << 10
IDLE_ENOUGH_S = 0.5         # to be closed for a new client, where there is no room for both
CLOSED_FOR_ROOM = 16
_BROKEN = select.EPOLLERR | select.EPOLLHUP


class Clients:
    """The connections of one front, by descriptor."""

    def __init__(self, poll: select.epoll, body_limit: int, read_timeout_s: float, routes: Routes,
                 replies: Replies, requests: Requests) -> None:
        self.connections: dict[int, Connection] = {}
        self.again: dict[int, Connection] = {}     # those with more to pull, by number
        self.drain_idle_at = NEVER                 # when idle ones are closed, while draining
        self._poll = poll
        self._body_limit = body_limit
        self._read_timeout_s = read_timeout_s
        self._routes = routes
        self._replies = replies
        self._requests = requests
        self._known_heads: dict[bytes, Head] = {}
        self._held_bytes = 0
        self._next_number = 1
        self._timers: list[tuple[float, int, Connection]] = []
        self.on_close: Callable[[], None] = lambda: None
        self.express: Express | None = None

    def set_classifier(self, classifier: Classifier) -> None:
        """The model is there."""
        self._requests.classifier = classifier
        self.express = Express(self._known_heads, self._body_limit, self._routes, classifier,
                               self._requests, self._replies)

    def let_in(self, clients: list[socket.socket], now: float) -> None:
        """Takes new connections."""
        for client in clients:
            connection = Connection(
                self._next_number, client,
                Parser(self._body_limit, self._known_heads), now, self._requests.count)
            self._next_number += 1
            self.connections[client.fileno()] = connection
            connection.mask = select.EPOLLIN
            self._poll.register(client, select.EPOLLIN)
            # Most clients send their request at once, so it is probably here already.
            self.serve(connection, select.EPOLLIN, now)

    def serve(self, connection: Connection, mask: int, now: float) -> float:
        """Does what the events of a connection's socket call for; when that was done."""
        if mask & _BROKEN:
            connection.is_gone = True
        elif mask & select.EPOLLIN:
            data = connection.read()
            if data is not None:
                if connection.calm == RESTING and self.express is not None:
                    taken_at = self.express.take(connection, data, now)
                    if taken_at is not None:
                        return taken_at
                connection.take(data, now)
                if not connection.is_lingering:
                    self._advance(connection, now)
        self.settle(connection, now)
        return time.monotonic()

    def _advance(self, connection: Connection, now: float) -> None:
        """Takes what the parser has, a bounded share of it."""
        parser = connection.parser
        for _ in range(REQUESTS_A_TURN * 2):
            if not connection.may_pull:
                break
            try:
                event = parser.next_event()
            except ClientError as error:
                self._replies.refuse(connection.reading or connection.begin(None), error, now)
                break
            if event is None:
                connection.is_stalled = parser.has_more
                self._hold(connection, parser.buffered, now)
                if connection.has_ended and not parser.has_more and parser.started:
                    self._replies.refuse(
                        connection.reading or connection.begin(None),
                        ClientError(400, "bad_request", "the request is cut short; send all of "
                                    "it", close=True), now)
                return
            if type(event) is Head:
                exchange = connection.begin(event)
                exchange.plan = plan = self._routes.plan(event)
                if plan.refusal is not None and (event.content_length or event.chunked):
                    self._replies.refuse(exchange, plan.refusal, now)
            else:
                if connection.held_bytes:
                    self._hold(connection, 0, now)
                self._requests.take(connection.body_read(now), event.content, now)
        connection.is_stalled = True

    def _hold(self, connection: Connection, size: int, now: float) -> None:
        """Notes what a connection holds of a request that is being received."""
        size = size if size > COUNTED_FROM_BYTES else 0
        self._held_bytes += size - connection.held_bytes
        connection.held_bytes = size
        if size and self._held_bytes + self._requests.held_bytes > HELD_BYTES \
                and connection.reading is not None:
            self._requests.refuse(connection.reading, Outcome("refused", (), "full", 1000), now)
            self._held_bytes -= size
            connection.held_bytes = 0
            connection.parser.discard()

    def settle(self, connection: Connection, now: float) -> None:
        """Writes, and watches the connection for what it needs next; forgets it if it is gone."""
        connection.calm = BUSY
        connection.flush(now)
        if connection.rests() and connection.timer <= min(now + IDLE_S, self.drain_idle_at):
            connection.calm = RESTING
            return      # all is written, and somebody looks at it before it can be due
        if connection.is_gone:
            self._drop(connection)
            return
        mask = connection.interest()
        if mask != connection.mask:
            connection.mask = mask
            self._poll.modify(connection.socket.fileno(), mask)
        if connection.is_stalled and connection.may_pull:
            self.again[connection.number] = connection
        deadline = connection.deadline(self._read_timeout_s)
        if self.drain_idle_at < deadline and connection.is_idle:
            deadline = self.drain_idle_at
        if deadline < connection.timer:
            connection.timer = deadline
            heapq.heappush(self._timers, (deadline, connection.number, connection))
        if connection.exchanges:
            stream = connection.exchanges[0].stream
            if stream is not None:
                stream.resume()

    def _drop(self, connection: Connection) -> None:
        if connection.socket.fileno() < 0:
            return
        del self.connections[connection.socket.fileno()]
        self.again.pop(connection.number, None)
        self._held_bytes -= connection.held_bytes
        for exchange in connection.close():
            self._requests.abandon(exchange)
        self.on_close()

    def go_on(self, now: float) -> None:
        """A further share for connections that have more to pull."""
        waiting, self.again = self.again, {}
        for connection in list(waiting.values())[:CONNECTIONS_A_TURN]:
            del waiting[connection.number]
            self._advance(connection, now)
            self.settle(connection, now)
        self.again = {**waiting, **self.again}

    def next_timer(self) -> float:
        """When `expire` has work next, monotonic seconds."""
        return self._timers[0][0] if self._timers else NEVER

    def expire(self, now: float) -> None:
        """Acts on the deadlines that have passed."""
        for _ in range(TIMERS_A_TURN):
            if not self._timers or self._timers[0][0] > now:
                return
            connection = heapq.heappop(self._timers)[2]
            if connection.is_gone:
                continue
            connection.timer = NEVER
            due = connection.deadline(self._read_timeout_s)
            if due <= now:
                if connection.expire(now):
                    self._replies.refuse(
                        connection.reading or connection.begin(None),
                        ClientError(408, "timeout", "the request did not arrive within "
                                    f"{self._read_timeout_s:g} s; send it faster", close=True),
                        now)
            elif connection.is_idle and self.drain_idle_at <= now:
                connection.is_gone = True
            self.settle(connection, now)

    def close_idlest(self, now: float) -> None:
        """Makes room for new clients: closes those that have been idle for longest, if any."""
        idle = [connection for connection in self.connections.values()
                if connection.is_idle and connection.since <= now - IDLE_ENOUGH_S]
        for connection in heapq.nsmallest(CLOSED_FOR_ROOM, idle, key=lambda one: one.since):
            connection.is_gone = True
            self.settle(connection, now)

    def close_idle_at(self, when: float, now: float) -> None:
        """Closes connections that are idle then, or become idle later."""
        self.drain_idle_at = when
        for connection in list(self.connections.values()):
            self.settle(connection, now)
