"""The master's Unix socket for its operator: a new model is asked for, and its outcome told.

SOCK_SEQPACKET, JSON objects. A client sends {"type": "reload", "model": folder or ""}; it gets
{"type": "taken"} at once and {"type": "done", "ok", "reason"} when the reload has ended. The kernel
says who is at the other end: only the server's own user and root are heard.
"""

import contextlib
import glob
import os
import selectors
import socket
import stat
import struct
import tempfile
from collections.abc import Callable

from server import log
from server.errors import OperatorError
from server.processes import Control

PEERS_LIMIT = 64
BACKLOG = 16
PATTERN = "firebrick-*.sock"    # what is left of servers that were killed is removed


def socket_folder() -> str:
    """Where servers of this user put their sockets."""
    return (os.environ.get("RUNTIME_DIRECTORY") or os.environ.get("XDG_RUNTIME_DIR")
            or tempfile.gettempdir())


def peer_user(peer: socket.socket) -> int:
    """The user id of the process at the other end (unix(7), SO_PEERCRED)."""
    return struct.unpack("iII", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]


class CommandSocket:
    """`path` is where it listens, empty where none could be made; `ask(model)` takes a wish and
    gives its ticket."""

    def __init__(self, path: str, selector: selectors.BaseSelector,
                 ask: Callable[[str], int]) -> None:
        """Raises OperatorError where `path` is given and cannot be; without one a missing socket
        is only logged, because HUP does the same."""
        self.path = path or os.path.join(
            socket_folder(), PATTERN.replace("*", str(os.getpid())))
        self._selector = selector
        self._ask = ask
        self._peers: dict[Control, set[int]] = {}       # with the tickets that each waits for
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._bind()
        except OSError as error:
            self._listener.close()
            if path:
                raise OperatorError(f"--socket {path}: {error.strerror or error}; choose a path "
                                    "that this user may create") from None
            log.event("no_command_socket", path=self.path, why=error.strerror or error)
            self.path = ""

    def _bind(self) -> None:
        for path in (self.path, *glob.glob(os.path.join(glob.escape(socket_folder()), PATTERN))):
            if _is_abandoned(path):
                with contextlib.suppress(PermissionError):      # another user's
                    os.unlink(path)
        # Renamed when it listens, so that nobody takes it for an abandoned one before.
        beside = f"{self.path}.new"
        self._listener.bind(beside)
        os.chmod(beside, 0o600)
        self._listener.listen(BACKLOG)
        os.link(beside, self.path)
        os.unlink(beside)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def _accept(self) -> None:
        try:
            peer, _ = self._listener.accept()
        except OSError:
            return
        user = peer_user(peer)
        if user not in (os.geteuid(), 0) or len(self._peers) >= PEERS_LIMIT:
            log.event("command_refused", user=user)
            peer.close()
            return
        control = Control(peer)
        self._peers[control] = set()
        self._selector.register(control, selectors.EVENT_READ, lambda: self._listen_to(control))

    def _listen_to(self, control: Control) -> None:
        try:
            messages, has_ended = control.receive_all()
        except ValueError:              # not JSON
            messages, has_ended = [], True
        for message, descriptors in messages:
            for descriptor in descriptors:
                os.close(descriptor)
            model = message.get("model") if isinstance(message, dict) else None
            if not isinstance(model, str) or message.get("type") != "reload":
                has_ended = True
                break
            control.send({"type": "taken"})
            self._peers[control].add(self._ask(model))
        if has_ended:
            self._drop(control)

    def _drop(self, control: Control) -> None:
        self._selector.unregister(control)
        del self._peers[control]
        control.close()

    def tell(self, tickets: tuple[int, ...], is_ok: bool, reason: str) -> None:
        """The outcome for those who asked."""
        for control, waits_for in list(self._peers.items()):
            for ticket in waits_for.intersection(tickets):
                waits_for.remove(ticket)
                control.send({"type": "done", "ok": is_ok, "reason": reason})

    def flush(self) -> None:
        """Sends what could not be sent at once."""
        for control in self._peers:
            control.flush()

    def close(self) -> None:
        """Nobody is heard any more, and the path is free."""
        if self.path:
            self._selector.unregister(self._listener)
            self._listener.close()
            os.unlink(self.path)
        for control in list(self._peers):
            self._drop(control)


def _is_abandoned(path: str) -> bool:
    """Whether a socket is there that nobody listens on."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return False
    except OSError:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False
