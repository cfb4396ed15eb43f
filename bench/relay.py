"""The yardstick for one connection: bytes carried over our hops by processes that do nothing.

    python -m bench.relay [PORT]

client -> front -> dispatcher -> engine and back: HTTP as bench/bare.py reads it at one end,
SOCK_SEQPACKET between the processes, an epoll loop in each as in the server, one request at a time
and no parsing, no queue, no model. What the server takes on one connection is quoted as a ratio to
this in the same run.
"""

import os
import select
import socket
import sys
from collections.abc import Callable

from bench.bare import ANSWER, RECEIVE_BYTES, listen, split_requests

# Of the size that the server's messages have for a short text.
JOBS = b"j" * 96
RESULTS = b"r" * 64


class Loop:
    """Calls the handler of each readable descriptor."""

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._handlers: dict[int, Callable[[], None]] = {}

    def add(self, source: socket.socket, handler: Callable[[], None]) -> None:
        """From now on `handler` is called when `source` is readable."""
        self._poll.register(source, select.EPOLLIN)
        self._handlers[source.fileno()] = handler

    def remove(self, source: socket.socket) -> None:
        """Forgets `source`, which is still open."""
        self._poll.unregister(source)
        del self._handlers[source.fileno()]

    def run(self) -> None:
        """For ever."""
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor in self._handlers:
                    self._handlers[descriptor]()


def run_engine(link: socket.socket) -> None:
    """Answers each message with one message."""
    def answer() -> None:
        if not link.recv(RECEIVE_BYTES):
            os._exit(0)
        link.send(RESULTS)

    turns = Loop()
    turns.add(link, answer)
    turns.run()


def run_dispatcher(front: socket.socket, engine: socket.socket) -> None:
    """Carries messages from each side to the other."""
    def carry(source: socket.socket, target: socket.socket) -> Callable[[], None]:
        def forward() -> None:
            message = source.recv(RECEIVE_BYTES)
            if not message:
                os._exit(0)
            target.send(message)
        return forward

    turns = Loop()
    turns.add(front, carry(front, engine))
    turns.add(engine, carry(engine, front))
    turns.run()


def run_front(listener: socket.socket, link: socket.socket) -> None:
    """Sends a message for each request and answers in the order of arrival."""
    turns = Loop()
    waiting: list[socket.socket] = []

    def accept() -> None:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pending = b""

        def read() -> None:
            nonlocal pending
            try:
                data = connection.recv(RECEIVE_BYTES)
            except ConnectionResetError:
                data = b""
            if not data:
                turns.remove(connection)
                connection.close()
                return
            count, pending = split_requests(pending + data)
            for _ in range(count):
                waiting.append(connection)
                link.send(JOBS)
        turns.add(connection, read)

    def answer() -> None:
        link.recv(RECEIVE_BYTES)
        connection = waiting.pop(0)
        if connection.fileno() >= 0:
            connection.send(ANSWER)

    turns.add(listener, accept)
    turns.add(link, answer)
    turns.run()


def serve(listener: socket.socket) -> None:
    """Forks dispatcher and engine and is the front itself; they end when it does."""
    front_end, dispatcher_front = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    dispatcher_engine, engine_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ends = (front_end, dispatcher_front, dispatcher_engine, engine_end)

    def fork(work: Callable[..., None], *own: socket.socket) -> None:
        if os.fork() == 0:
            for end in (*ends, listener):
                if end not in own:
                    end.close()
            work(*own)

    fork(run_engine, engine_end)
    fork(run_dispatcher, dispatcher_front, dispatcher_engine)
    for end in (dispatcher_front, dispatcher_engine, engine_end):
        end.close()
    run_front(listener, front_end)


def main() -> None:
    listener = listen(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    print(f"bare relay on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    serve(listener)


if __name__ == "__main__":
    main()
