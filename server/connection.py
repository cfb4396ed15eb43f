"""One client's connection: what is read, what waits to be written, and the order of its answers.

A request is an Exchange from its head on. Answers leave in the order of the requests, whatever the
order in which they become known. Nothing here waits: the front calls `receive` and `flush` when the
socket is ready, `interest` says for what it should be watched, `deadline` when `expire` is due.

    open ──(an answer that closes is written)──► lingering ──(client's end, time or bytes)──► gone
      └──(reset, or the client's end with nothing owed)───────────────────────────────────────┘

Lingering is what makes the last answer readable: our side is shut, and what the client still sends
is read and dropped for a while, because a close with unread bytes is a reset that can overtake the
answer on its way (RFC 9112 9.6).
"""

import math
import select
import socket
from collections import deque
from collections.abc import Callable

from server.http1 import Parser
from server.http1_answer import CONTINUE
from server.http1_head import Head

READ_BYTES = 64 << 10
# Answers waiting for a client that does not read; beyond, it is not read either.
WAITING_BYTES = 256 << 10
PIPELINED = 32              # requests of one connection that are worked on at a time
IDLE_S = 75.0               # keep-alive without a request; also a client that takes no answer
LINGER_S = 5.0
LINGER_BYTES = 64 << 20
# A client that shut its sending side may have closed; an interim answer finds out (a closed one
# replies with a reset). It waits this long, so that a quick answer is all that a client sees.
PROBE_AFTER_S = 0.25
NEVER = math.inf
# What the short way (server/express.py) may take for granted of a connection: nothing; that nothing
# is owed to the client, all its bytes are read and its timer is set; that since then there was one
# whole request and nothing else.
BUSY, RESTING, ASKED = range(3)


class Exchange:
    """One request, from its head to its answer. `head` is None where no head could be read.

    `received_at` is when its last byte was read (its first, as long as it is not complete);
    `closes` says that the connection ends with it, so no other exchange ever stands behind it.
    `plan` is what its head asks for (server/routes.py), `details` what was read of its body;
    `group` is its number among the requests in flight, 0 for none; `stream` is what works on its
    records in windows. `status` is 0 until there is an answer. `Connection.begin_whole` makes it,
    for every request does, and a call of __init__ takes longer than all it would do.
    """

    __slots__ = ("connection", "head", "plan", "trace_id", "received_at", "status", "answer",
                 "closes", "group", "stream", "details", "is_gone")


class Connection:
    """The state of one client; owns its (non-blocking) socket.

    `on_answer(exchange)` is called when an answer is about to be written, before any of its bytes.
    """

    __slots__ = ("number", "socket", "parser", "exchanges", "reading", "waiting_bytes", "has_ended",
                 "is_stalled", "is_closing", "is_lingering", "is_gone", "mask", "timer", "since",
                 "held_bytes", "calm", "spare",
                 "_out", "_on_answer", "_request_at", "_linger_bytes", "_ended_at", "_is_probed",
                 "_owes_continue")

    def __init__(self, number: int, sock: socket.socket, parser: Parser, now: float,
                 on_answer: Callable[[Exchange], None]) -> None:
        self.number = number
        self.socket = sock
        self.parser = parser
        self.exchanges: deque[Exchange] = deque()    # unanswered ones, and those behind them
        self.reading: Exchange | None = None         # the one whose body is being read
        self.waiting_bytes = 0
        self.has_ended = False       # the client sends no more
        self.is_stalled = False      # the parser may hold more than was pulled
        self.is_closing = False      # no further request is read
        self.is_lingering = False
        self.is_gone = False         # nothing can be written any more
        self.mask = 0                # what the front watches it for
        self.calm = BUSY
        self.spare: Exchange | None = None           # one that the short way has done with
        self.held_bytes = 0          # of an unfinished request, as the front counts them
        self.timer = NEVER           # the front's next look at its deadline
        self._out: list[bytes | memoryview] = []
        self._on_answer = on_answer
        self.since = now            # of idleness, of the last written byte, of lingering
        self._request_at = now       # when the first byte of the unfinished request came
        self._linger_bytes = 0
        self._ended_at = NEVER
        self._is_probed = False
        self._owes_continue = False

    @property
    def is_idle(self) -> bool:
        """Nothing is owed to the client and nothing of a request has come."""
        return not (self.exchanges or self._out or self.parser.started or self.is_lingering)

    @property
    def may_pull(self) -> bool:
        """Whether the next event of the parser may be taken."""
        if self.reading is not None:
            return True
        return not (self.is_closing or len(self.exchanges) >= PIPELINED
                    or self.waiting_bytes > WAITING_BYTES)

    def read(self) -> bytes | None:
        """What the client sent, empty at its end; None where nothing is there. Notes a reset."""
        try:
            return self.socket.recv(READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            self.is_gone = True
            return None

    def take(self, data: bytes, now: float) -> None:
        """Feeds the parser with what was read; notes the client's end."""
        if not data:
            self.has_ended = True
            self._ended_at = now
            if self.is_lingering:
                self.is_gone = True
        elif self.is_lingering:
            self._linger_bytes += len(data)
            if self._linger_bytes > LINGER_BYTES:
                self.is_gone = True
        elif self.reading is not None or not self.is_closing:
            if not self.parser.started:
                self._request_at = now
            self.parser.feed(data)

    def rests(self) -> bool:
        """Whether nothing is owed to the client, which may send a further request."""
        return not (self.exchanges or self._out or self.is_gone or self.is_closing
                    or self.has_ended or self.is_stalled or self.parser.started
                    or self.mask != select.EPOLLIN)

    def begin_whole(self, head: Head | None, began_at: float) -> Exchange:
        """Opens the exchange of a request of which nothing is to be read any more; its first byte
        came at `began_at`."""
        exchange = Exchange()
        exchange.connection, exchange.head, exchange.plan = self, head, None
        exchange.trace_id, exchange.received_at = "", began_at
        exchange.status = exchange.group = 0
        exchange.answer = exchange.stream = exchange.details = None
        exchange.is_gone = False
        exchange.closes = self.is_closing = head is None or not head.keep_alive
        self.exchanges.append(exchange)
        return exchange

    def begin_calm(self, head: Head, plan: object, began_at: float) -> Exchange:
        """As `begin_whole` on a connection that is RESTING, which is ASKED then. There an exchange
        ends as it began, so that one serves request after request."""
        exchange = self.spare
        if exchange is None:
            exchange = self.begin_whole(head, began_at)
        else:
            self.spare = None
            exchange.head, exchange.received_at = head, began_at
            self.exchanges.append(exchange)
        exchange.plan = plan
        self.calm = ASKED
        return exchange

    def begin(self, head: Head | None) -> Exchange:
        """Opens the exchange of a head, or of bytes that are none."""
        exchange = self.begin_whole(head, self._request_at)
        if head is not None:
            self.reading = exchange
            self._owes_continue = head.expect == "100-continue"
        return exchange

    def body_read(self, now: float) -> Exchange:
        """The exchange whose body is complete now."""
        exchange, self.reading = self.reading, None
        exchange.received_at = now
        self._owes_continue = False
        self._request_at = now       # of what is already there of the next one
        return exchange

    def answer(self, exchange: Exchange, status: int, answer: bytes) -> None:
        """Takes the answer of an exchange; it leaves when those before it have left."""
        exchange.status = status
        exchange.answer = answer
        if exchange is self.reading:
            # The rest of this request is not wanted, so there can be no other after it.
            self.reading = None
            exchange.closes = True
        if exchange.closes:
            self.is_closing = True
        if self.exchanges and self.exchanges[0] is exchange:
            self._pump()

    def start_stream(self, exchange: Exchange, status: int, head: bytes) -> None:
        """Writes the head of a streamed answer; only the first exchange may stream."""
        exchange.status = status
        self._on_answer(exchange)
        self.stream(head)

    def stream(self, data: bytes | memoryview) -> None:
        """Writes a piece of a streamed answer."""
        self._out.append(data)
        self.waiting_bytes += len(data)

    def end_stream(self, exchange: Exchange, data: bytes) -> None:
        """Writes the last piece and goes on with the next exchange."""
        exchange.stream = None
        self.stream(data)
        self.exchanges.popleft()
        self._pump()

    def answer_calm(self, answer: bytes, now: float) -> bool:
        """Writes the answer, counted before, of the one exchange of a connection that is ASKED, or
        of a request that has none on one that is RESTING.
        Whether all is written and the connection rests again; else it is to be settled."""
        self.calm = BUSY
        if self.exchanges:
            self.spare = self.exchanges.pop()
        try:
            sent = self.socket.send(answer)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self.is_gone = True
            return False
        if sent == len(answer):
            self.since = now
            self.calm = RESTING
            return True
        if sent:
            self.since = now
        self.stream(memoryview(answer)[sent:])
        return False

    def _pump(self) -> None:
        while self.exchanges and self.exchanges[0].answer is not None:
            exchange = self.exchanges.popleft()
            self._on_answer(exchange)
            self._out.append(exchange.answer)
            self.waiting_bytes += len(exchange.answer)
            exchange.answer = None

    def flush(self, now: float) -> None:
        """Writes what waits, as far as the socket takes it; begins to linger after the last."""
        if (self._owes_continue and self.exchanges and self.exchanges[0] is self.reading):
            self._owes_continue = False
            if not self.parser.buffered:  # a client that sends already does not wait for it
                self.stream(CONTINUE)
        out = self._out
        if out:
            data = out[0] if len(out) == 1 else b"".join(out)
            try:
                sent = self.socket.send(data)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError:
                self.is_gone = True
                return
            self.waiting_bytes -= sent
            if sent == len(data):
                out.clear()
                self.since = now
            else:
                out[:] = [memoryview(data)[sent:]]
                if sent:
                    self.since = now
                return
        if self.exchanges or self.is_lingering:
            return
        if self.is_closing:
            self._linger(now)
        elif self.has_ended and not self.parser.started:
            self.is_gone = True

    def _linger(self, now: float) -> None:
        if self.has_ended:
            self.is_gone = True
            return
        self.is_lingering = True
        self.since = now
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            self.is_gone = True

    def interest(self) -> int:
        """The epoll events to watch for; a reset is reported whatever they are."""
        mask = select.EPOLLOUT if self._out else 0
        if not self.has_ended and (self.is_lingering
                                   or (self.may_pull and not self.parser.has_more)):
            mask |= select.EPOLLIN
        return mask

    def deadline(self, read_timeout_s: float) -> float:
        """When `expire` is due, monotonic seconds."""
        if self.is_lingering:
            return self.since + LINGER_S
        if self._out:
            return self.since + IDLE_S
        if self.reading is not None or (self.parser.started and self.may_pull):
            return self._request_at + read_timeout_s
        if self.exchanges:
            may_probe = self.has_ended and not self._is_probed
            return self._ended_at + PROBE_AFTER_S if may_probe else NEVER
        return self.since + IDLE_S

    def expire(self, now: float) -> bool:
        """Acts on a deadline that passed; True where the request being read is to be answered 408.

        Lingering, idleness and a client that takes nothing end the connection; one that shut its
        side while its answer is computed is probed.
        """
        if self.is_lingering or self._out:
            self.is_gone = True
        elif self.reading is not None or (self.parser.started and self.may_pull):
            return True
        elif self.exchanges:
            self._is_probed = True
            first = self.exchanges[0]
            if first.head is not None and first.head.minor and first.status == 0:
                self.stream(CONTINUE)
        else:
            self.is_gone = True
        return False

    def close(self) -> list[Exchange]:
        """Closes the socket; gives the exchanges that got no answer."""
        self.is_gone = True
        unanswered = list(self.exchanges)
        for exchange in unanswered:
            exchange.is_gone = True
        self.exchanges.clear()
        self.reading = self.spare = None
        self._out.clear()
        self.socket.close()
        return unanswered
