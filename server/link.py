"""A message socket between two processes of the house: never blocks, never loses what was sent.

The dispatcher's listening socket has an abstract name and belongs to the master, so connections
wait in its backlog while no dispatcher lives. Peers of another user are turned away.
"""

import os
import select
import socket
import struct
from collections import deque

from server.messages import LIMIT_BYTES

BACKLOG = 1024
# One read's share of a turn; what is left makes the socket readable again.
MESSAGES_A_READ = 64


def listen(name: str) -> socket.socket:
    """A listening socket under an abstract name (unix(7)), non-blocking."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind("\0" + name)
    listener.listen(BACKLOG)
    listener.setblocking(False)
    return listener


def connect(name: str) -> "Link | None":
    """A link to that name; None while its backlog is full."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    client.setblocking(False)
    try:
        client.connect("\0" + name)
    except (BlockingIOError, ConnectionRefusedError):
        client.close()
        return None
    return Link(client)


def accept(listener: socket.socket) -> "Link | None":
    """The next link that waits, None if there is none. Peers of another user are closed."""
    while True:
        try:
            peer, _ = listener.accept()
        except BlockingIOError:
            return None
        credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        if struct.unpack("iII", credentials)[1] == os.geteuid():
            peer.setblocking(False)
            return Link(peer)
        peer.close()


class Link:
    """One end; owns its socket. What cannot be sent now stays queued until `flush`."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._waiting: deque[bytes] = deque()
        self._is_broken = False
        self._is_watched_for_room = False

    def fileno(self) -> int:
        return self.socket.fileno()

    @property
    def waiting(self) -> int:
        """How many messages wait for room; the socket should then be watched for writing."""
        return len(self._waiting)

    def send(self, message: bytes) -> bool:
        """Sends at once if nothing waits, else queues behind what does: then it is False."""
        if not self._waiting and self._is_sent(message):
            return True
        self._waiting.append(message)
        return False

    def watch(self, poll: select.epoll) -> None:
        """Has `poll`, where the link is watched for messages, watch it for room exactly while
        something waits for it."""
        wanted = bool(self._waiting)
        if wanted != self._is_watched_for_room:
            self._is_watched_for_room = wanted
            poll.modify(self.socket, select.EPOLLIN | (select.EPOLLOUT if wanted else 0))

    def flush(self) -> None:
        waiting = self._waiting
        while waiting and self._is_sent(waiting[0]):
            waiting.popleft()

    def _is_sent(self, message: bytes) -> bool:
        """False where there is no room now."""
        try:
            self.socket.send(message)
        except (BlockingIOError, InterruptedError):
            return False
        except (ConnectionResetError, BrokenPipeError, ConnectionRefusedError):
            # The peer is gone, but what it sent before is still there to be read.
            self._is_broken = True
        return True

    def receive(self, most: int = MESSAGES_A_READ) -> tuple[list[bytes], bool]:
        """(messages, whether the link has ended); at most `most` at once."""
        messages: list[bytes] = []
        while len(messages) < most:
            data = self.receive_one()
            if not data:
                return messages, data is None
            messages.append(data)
        return messages, False

    def receive_one(self) -> bytes | None:
        """The next message, empty where there is none now; None where the link has ended."""
        while True:
            try:
                # One byte more than any message has shows that one was cut.
                data = self.socket.recv(LIMIT_BYTES + 1)
            except (BlockingIOError, InterruptedError):
                return None if self._is_broken else b""
            except ConnectionResetError:
                # Reported once; reading on gives what the peer had sent, then its end.
                self._is_broken = True
                continue
            return data if 0 < len(data) <= LIMIT_BYTES else None

    def close(self) -> None:
        self._waiting.clear()
        self.socket.close()
