"""A stream socket that can be short, full, broken or interrupted at will, and a real one that tests
hold to the same contract."""

import select
import socket


class FakeSocket:
    """Both ends of a stream: `incoming` is what the client sent, `sent` what it was told.

    `room` bounds what is taken at once and in all until it is raised; `ends`, `resets` say what
    comes behind the incoming bytes.
    """

    def __init__(self):
        self.incoming, self.sent = bytearray(), bytearray()
        self.room, self.ends, self.resets = 1 << 30, False, False
        self.is_shut, self.is_closed, self.interrupts = False, False, 0

    def _interrupted(self):
        if self.interrupts:
            self.interrupts -= 1
            raise InterruptedError

    def recv(self, size):
        self._interrupted()
        if self.incoming:
            data = bytes(self.incoming[:size])
            del self.incoming[:size]
            return data
        if self.resets:
            raise ConnectionResetError
        if self.ends:
            return b""
        raise BlockingIOError

    def send(self, data):
        self._interrupted()
        if self.resets or self.is_shut:
            raise BrokenPipeError
        size = min(len(data), self.room)
        if not size and len(data):
            raise BlockingIOError
        self.room -= size
        self.sent += data[:size]
        return size

    def shutdown(self, how):
        if self.resets:
            raise OSError(107, "not connected")
        self.is_shut = how == socket.SHUT_WR

    def close(self):
        self.is_closed = True


class RealSocket:
    """The same over TCP; only what the kernel can be made to do."""

    def __init__(self):
        listener = socket.create_server(("127.0.0.1", 0))
        self.client = socket.create_connection(listener.getsockname(), timeout=5)
        self.server, _ = listener.accept()
        listener.close()
        self.server.setblocking(False)
        self.recv, self.send = self.server.recv, self.server.send
        self.shutdown, self.close = self.server.shutdown, self.server.close

    def release(self):
        self.client.close()
        self.server.close()


class FakePair:
    def __init__(self):
        self.socket = FakeSocket()

    def say(self, data):
        self.socket.incoming += data

    def end(self):
        self.socket.ends = True

    def reset(self):
        self.socket.resets = True

    def heard(self):
        data = bytes(self.socket.sent)
        self.socket.sent.clear()
        return data

    def release(self):
        pass


class RealPair(FakePair):
    def __init__(self):
        self.socket = RealSocket()

    def say(self, data):
        self.socket.client.sendall(data)
        select.select([self.socket.server], [], [], 5)

    def end(self):
        self.socket.client.shutdown(socket.SHUT_WR)
        select.select([self.socket.server], [], [], 5)

    def reset(self):
        self.socket.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.socket.client.close()
        select.select([self.socket.server], [], [], 5)

    def heard(self):
        self.socket.client.settimeout(0.2)
        data = b""
        try:
            while part := self.socket.client.recv(65536):
                data += part
        except TimeoutError:
            pass
        return data

    def release(self):
        self.socket.release()
