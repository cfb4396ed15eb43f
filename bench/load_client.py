"""Sends planned requests at their times over keep-alive connections, and notes what came of them.

One thread and one epoll. A request whose time has come goes out on an idle connection, or on a new
one while there are fewer than allowed, whatever the earlier ones still wait for. What a closed loop
would leave out, requests not sent because the server was busy, is all there.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import heapq
import os
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.load_report import Outcome

TRIES_MOST = 10      # of one request that is sent again after each Retry-After
READ_BYTES = 1 << 13
NAP_MOST_S = 0.1
PROGRESS_EVERY_S = 1.0
REFUSALS = (429, 503)
UNDER_WAY_S = 0.25
# Connections that are opened ahead: so many at a time, no faster than servers let them in.
OPENED_AT_ONCE = 100
OPENED_PER_S = 10_000
# From so many requests a second on, the client looks at the clock and its sockets only so often: it
# takes a third less of the cores that it shares, and is late by less than it then is anyway. Then,
# and only then, it goes before others: a server on the same machine would make it late by its own
# turns, but one that is interrupted at every request answers half as late again.
RATE_OF_TICKS = 15_000
TICK_S = 0.002
NICENESS = -5


@dataclass(frozen=True)
class Planned:
    """A request to send: seconds from the begin of the run, its bytes, whether it is a high one."""

    at_s: float
    request: bytes
    high: bool = False


@dataclass(slots=True)
class _Task:
    """A planned request under way; times on perf_counter's clock."""

    planned: float
    request: bytes
    high: bool
    sent: float = float("nan")
    refused: int = 0
    waited: bool = False    # for a connection


@dataclass(slots=True, eq=False)
class _Connection:
    """One connection; `used` once it gave an answer, `received` what is there of the next one."""

    socket: socket.socket
    task: _Task | None = None
    unsent: bytes = b""
    received: bytes = b""
    used: bool = False
    is_watched_for_room: bool = False


class Client:
    """Runs one plan against host:port with at most `connections` connections. To let one in is as
    much work for a server as an answer, so before time counts it opens as many as the requests of
    UNDER_WAY_S need, and at least `opened_ahead`.

    `starved` counts the requests that found all connections busy, `opened` the most connections
    open at a time, `cpu_share` the processor time of this process by the time that passed until the
    last planned request was sent, `took_s` the time until the last answer. Outcomes hold heads of
    answers only where it `keeps_heads`: long runs have millions.
    """

    def __init__(self, host: str, port: int, connections: int, obey_retry_after: bool = False,
                 grace_s: float = 30.0, progress: Callable[[str], None] | None = None,
                 keeps_heads: bool = False, opened_ahead: int = 0) -> None:
        self._address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        self._most, self._obey, self._grace_s = connections, obey_retry_after, grace_s
        self._progress, self._keeps_heads = progress, keeps_heads
        self._opened_ahead = opened_ahead
        self.starved = self.opened = 0
        self.cpu_share = self.took_s = 0.0
        self._epoll = select.epoll()
        self._all: dict[int, _Connection] = {}
        self._idle: list[_Connection] = []
        self._waiting: deque[_Task] = deque()
        self._plan: Sequence[Planned] = ()
        self._at = 0            # the next one's place in the plan
        self._begin = 0.0
        self._again: list[tuple[float, int, _Task]] = []
        self._number = 0
        self._last = 0.0
        self._outcomes: list[Outcome] = []

    def run(self, plan: Sequence[Planned], duration_s: float) -> list[Outcome]:
        """Sends all of `plan`, waits up to the grace time after `duration_s` for what is open, and
        gives an Outcome for each request, in the order in which they ended."""
        # A collection would look through all that was planned, and be in everybody's latency.
        was_collecting = gc.isenabled()
        gc.disable()
        niceness = os.getpriority(os.PRIO_PROCESS, 0)
        if len(plan) > RATE_OF_TICKS * duration_s:
            with contextlib.suppress(PermissionError):
                os.setpriority(os.PRIO_PROCESS, 0, min(niceness, NICENESS))
        try:
            return self._run(plan, duration_s)
        finally:
            os.setpriority(os.PRIO_PROCESS, 0, niceness)
            if was_collecting:
                gc.enable()

    def _run(self, plan: Sequence[Planned], duration_s: float) -> list[Outcome]:
        self._plan = plan = sorted(plan, key=lambda one: one.at_s)
        rate = len(plan) / duration_s
        self._open_ahead(min(self._most, max(self._opened_ahead, int(rate * UNDER_WAY_S))))
        begin, spent = time.perf_counter(), time.process_time()
        self._begin = begin
        self._last = begin + duration_s + self._grace_s
        report_at, is_sending = begin + PROGRESS_EVERY_S, True
        last_planned = begin + plan[-1].at_s if plan else begin
        tick_s = TICK_S if rate > RATE_OF_TICKS else 0.0
        while len(self._outcomes) < len(plan):
            now = time.perf_counter()
            if now >= self._last:
                break
            self._send_due(now)
            if is_sending and now >= last_planned:
                is_sending = False
                self.cpu_share = (time.process_time() - spent) / max(now - begin, 1e-3)
            if now >= report_at:
                report_at += PROGRESS_EVERY_S
                if self._progress:
                    self._progress(self._state(now - begin, len(plan)))
            if tick_s:
                time.sleep(tick_s)
            self._wait(report_at)
        self.took_s = time.perf_counter() - begin
        self._close(time.perf_counter())
        return self._outcomes

    def _open_ahead(self, connections: int) -> None:
        while len(self._all) < connections:
            for _ in range(min(OPENED_AT_ONCE, connections - len(self._all))):
                opened = self._open()
                if isinstance(opened, str):
                    return      # whoever finds no connection reports why
                self._idle.append(opened)
            time.sleep(OPENED_AT_ONCE / OPENED_PER_S)

    def _state(self, passed_s: float, planned: int) -> str:
        good = sum(one.is_good for one in self._outcomes)
        open_now = sum(one.task is not None for one in self._all.values())
        return (f"{passed_s:.0f} s: {len(self._outcomes)} of {planned} ended, {good} with 2xx, "
                f"{open_now} under way, {len(self._waiting)} waiting for a connection")

    def _schedule(self, at: float, task: _Task) -> None:
        self._number += 1
        heapq.heappush(self._again, (at, self._number, task))

    def _send_due(self, now: float) -> None:
        """Sends what was planned for now, and what is due again."""
        plan, begin, at = self._plan, self._begin, self._at
        while at < len(plan) and begin + plan[at].at_s <= now:
            one = plan[at]
            at += 1
            self._send_or_wait(_Task(begin + one.at_s, one.request, one.high))
        self._at = at
        while self._again and self._again[0][0] <= now:
            self._send_or_wait(heapq.heappop(self._again)[2])

    def _send_or_wait(self, task: _Task) -> None:
        if self._waiting or not self._send(task):
            self.starved += not task.waited
            task.waited = True
            self._waiting.append(task)

    def _send(self, task: _Task) -> bool:
        """False where all connections are busy."""
        if self._idle:
            connection = self._idle.pop()
        elif len(self._all) < self._most:
            opened = self._open()
            if isinstance(opened, str):
                self._end(task, 0, opened)
                return True
            connection = opened
        else:
            return False
        if task.sent != task.sent:
            task.sent = time.perf_counter()
        connection.task, connection.unsent = task, task.request
        self._write(connection)
        return True

    def _open(self) -> _Connection | str:
        """A connection, perhaps not established yet, or why there is none."""
        family, kind, protocol, _, address = self._address
        try:
            made = socket.socket(family, kind | socket.SOCK_NONBLOCK, protocol)
        except OSError as error:
            return _name(error.errno)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        code = made.connect_ex(address)
        if code not in (0, errno.EINPROGRESS):
            made.close()
            return _name(code)
        connection = _Connection(made)
        self._all[made.fileno()] = connection
        self.opened = max(self.opened, len(self._all))
        self._epoll.register(made.fileno(), select.EPOLLIN)
        return connection

    def _write(self, connection: _Connection) -> None:
        data = connection.unsent
        try:
            sent = connection.socket.send(data)
        except BlockingIOError:
            sent = 0  # still connecting, or its buffer is full: epoll tells when to go on
        except OSError as error:
            self._lose(connection, _name(error.errno))
            return
        connection.unsent = data = data[sent:]
        if connection.is_watched_for_room != bool(data):
            connection.is_watched_for_room = bool(data)
            self._epoll.modify(connection.socket.fileno(),
                               select.EPOLLIN | (select.EPOLLOUT if data else 0))

    def _wait(self, until: float) -> None:
        """Serves what is ready; else sleeps to the next send, answer or `until`. By select() on the
        epoll, because epoll's own timeout is in whole milliseconds, which would be in every
        latency. All that is ready, since all that is due was sent: else answers would be read later
        than requests are sent."""
        ready = self._epoll.poll(0, len(self._all) + 1)
        if not ready:
            if self._at < len(self._plan):
                until = min(until, self._begin + self._plan[self._at].at_s)
            if self._again:
                until = min(until, self._again[0][0])
            nap = min(until, self._last) - time.perf_counter()
            select.select([self._epoll.fileno()], [], [], min(max(nap, 0.0), NAP_MOST_S))
            return
        for number, events in ready:
            connection = self._all.get(number)
            if connection and events & ~select.EPOLLOUT:
                self._read(connection)
            if events & select.EPOLLOUT and number in self._all:
                self._write(connection)

    def _read(self, connection: _Connection) -> None:
        try:
            received = connection.received + connection.socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(connection, _name(error.errno))
            return
        if len(received) == len(connection.received) or connection.task is None:
            self._lose(connection, "closed before the answer")
            return
        connection.received = received
        end = received.find(b"\r\n\r\n")
        if end < 0:
            return
        head = received[:end + 2]
        fields = head.lower()
        if len(received) >= end + 4 + int(_field(fields, b"\r\ncontent-length:") or 0):
            self._answered(connection, head, fields)

    def _answered(self, connection: _Connection, head: bytes, fields: bytes) -> None:
        """Notes an answer; `fields` is its head in lower case, each line with its CR LF."""
        now, task = time.perf_counter(), connection.task
        connection.task, connection.used, connection.received = None, True, b""
        if connection.unsent or _field(fields, b"\r\nconnection:") == b"close":
            self._drop(connection)
        else:
            self._idle.append(connection)
        status = int(head[9:12])
        retry = _field(fields, b"\r\nretry-after:") if self._obey and status in REFUSALS else b""
        again = now + int(retry) if retry.isdigit() else None
        if again and task.refused + 1 < TRIES_MOST and again < self._last:
            task.refused += 1
            self._schedule(again, task)
        else:
            self._end(task, status, "", _field(fields, b"\r\nx-bucket:").decode("latin-1"),
                      float(_field(fields, b"\r\nx-latency-ms:") or "nan"), now,
                      head[:-2] if self._keeps_heads else b"")
        if self._waiting:
            self._send_waiting()

    def _send_waiting(self) -> None:
        while self._waiting and self._send(self._waiting[0]):
            self._waiting.popleft()

    def _lose(self, connection: _Connection, fault: str) -> None:
        """The connection is gone. A request that met a kept one as the server closed it goes out
        once more, as RFC 9112 lets a client do: it changes nothing at the server."""
        self._drop(connection)
        task = connection.task
        if task and connection.used and not connection.received:
            self._schedule(time.perf_counter(), task)
        elif task:
            self._end(task, 0, fault)
        self._send_waiting()

    def _drop(self, connection: _Connection) -> None:
        del self._all[connection.socket.fileno()]
        if connection in self._idle:
            self._idle.remove(connection)
        connection.socket.close()

    def _end(self, task: _Task, status: int, fault: str, bucket: str = "",
             server_ms: float = float("nan"), now: float | None = None, head: bytes = b"") -> None:
        ended = time.perf_counter() if now is None else now
        self._outcomes.append(Outcome(task.planned, task.sent, ended, status, task.high,
                                      task.refused, bucket, server_ms, fault, head))

    def _close(self, now: float) -> None:
        tasks = [one.task for one in self._all.values() if one.task]
        tasks += [_Task(self._begin + one.at_s, one.request, one.high)
                  for one in self._plan[self._at:]]
        for task in (*tasks, *self._waiting, *(entry[2] for entry in self._again)):
            self._end(task, 0, "no answer in time", now=now)
        for connection in self._all.values():
            connection.socket.close()
        self._epoll.close()


def _field(fields: bytes, name: bytes) -> bytes:
    """The value of a field in a head in lower case, by CR LF, name and colon; empty for none."""
    at = fields.find(name)
    if at < 0:
        return b""
    return fields[at + len(name):fields.find(b"\r\n", at + 2)].strip()


def _name(code: int | None) -> str:
    return errno.errorcode.get(code or 0, "connection lost")
