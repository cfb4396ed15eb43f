"""The master's signals: handlers only record; a byte in a socket ends its wait."""

import signal
import socket

TAKEN = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2, signal.SIGCHLD)


class Signals:
    """Signals that have come since they were last asked for; `fileno` is readable when any has."""

    def __init__(self) -> None:
        self._came: list[int] = []
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def start(self) -> None:
        """Takes over the process's signals."""
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        for number in TAKEN:
            signal.signal(number, lambda number, _: self._came.append(number))

    def fileno(self) -> int:
        return self._reader.fileno()

    def take(self) -> list[int]:
        """Their numbers, in order."""
        try:
            while self._reader.recv(4096):
                pass
        except BlockingIOError:
            pass
        taken = self._came[:]
        del self._came[:len(taken)]         # a handler may have added one meanwhile
        return taken
