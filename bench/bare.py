"""The yardstick for fronts: a bare epoll loop that answers each request with fixed bytes.

    python -m bench.bare [PORT]

It finds the end of the header and Content-Length and parses nothing else; keep-alive and
pipelining work. What a front reaches is quoted as a ratio to this loop in the same run.
"""

import select
import socket
import sys

BODY = b"x" * 200
ANSWER = (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
          b"X-Latency-ms: 0.000\r\n\r\n" % len(BODY)) + BODY
RECEIVE_BYTES = 65536


def listen(port: int) -> socket.socket:
    """A non-blocking listener on 127.0.0.1; port 0 takes any free one."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(1024)
    listener.setblocking(False)
    return listener


def split_requests(data: bytes) -> tuple[int, bytes]:
    """How many whole requests `data` begins with, and what is left."""
    count = 0
    while True:
        end = data.find(b"\r\n\r\n")
        if end < 0:
            return count, data
        at = data.find(b"Content-Length: ", 0, end)
        need = end + 4 + (int(data[at + 16:data.find(b"\r\n", at)]) if at >= 0 else 0)
        if len(data) < need:
            return count, data
        data = data[need:]
        count += 1


def serve(listener: socket.socket) -> None:
    """Answers for ever."""
    poll = select.epoll()
    poll.register(listener, select.EPOLLIN)
    connections: dict[int, socket.socket] = {}
    pending: dict[int, bytes] = {}
    while True:
        for descriptor, _ in poll.poll():
            if descriptor == listener.fileno():
                try:
                    connection, _ = listener.accept()
                except BlockingIOError:
                    continue
                connection.setblocking(False)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connections[connection.fileno()] = connection
                pending[connection.fileno()] = b""
                poll.register(connection, select.EPOLLIN)
                continue
            connection = connections[descriptor]
            try:
                data = connection.recv(RECEIVE_BYTES)
            except BlockingIOError:
                continue
            except OSError:
                data = b""
            if not data:
                poll.unregister(descriptor)
                connection.close()
                del connections[descriptor], pending[descriptor]
                continue
            count, pending[descriptor] = split_requests(pending[descriptor] + data)
            if count:
                try:
                    connection.send(ANSWER * count)
                except OSError:  # the client left; its EOF follows
                    continue


def main() -> None:
    listener = listen(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    print(f"bare loop on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    serve(listener)


if __name__ == "__main__":
    main()
