"""The listening sockets: one a front, all on one port, held by the master for the server's life.

SO_REUSEADDR on all, because else connections in TIME_WAIT make a restart look like a taken port.
The first is bound without SO_REUSEPORT, so that a port taken by anyone is seen; only then it is
set, and the others join. A dead front's listener lives on here, and a neighbour accepts from it.

Where the port is shared with a predecessor, nothing listens before `begin_listening`: the kernel
hands connections to all who listen, and a server without its model could only refuse them.
"""

import contextlib
import errno
import os
import socket
import stat
from collections.abc import Sequence

from server.errors import OperatorError

BACKLOG = 4096


def open_listeners(host: str, port: int, count: int, share_port: bool) -> list[socket.socket]:
    """`count` sockets on one port, which listen unless it is shared; port 0 takes a free one.

    Raises OperatorError: exit code 4 where the port is taken, 2 where the host is not ours.
    """
    family, address = _resolve(host, port)
    listeners: list[socket.socket] = []
    try:
        for number in range(count):
            listener = socket.socket(family, socket.SOCK_STREAM)
            listeners.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                # Explicit, because the default is a system setting: [::] means IPv6 alone.
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            if number or share_port:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            listener.bind(address)
            if not number:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                address = (address[0], listener.getsockname()[1], *address[2:])
            if not share_port:
                listener.listen(BACKLOG)
            listener.setblocking(False)
    except OSError as error:
        for listener in listeners:
            listener.close()
        raise _explain(error, host, port) from None
    return listeners


def begin_listening(listeners: Sequence[socket.socket]) -> None:
    """From now on clients of a shared port come here too."""
    for listener in listeners:
        listener.listen(BACKLOG)


def open_unix_listener(path: str, share: bool) -> socket.socket:
    """A listening socket for `path`, which all fronts share; an abandoned one is replaced.

    Where `share` says so it stands beside the path until `take_over`. Raises OperatorError, exit
    code 4 where the path is taken.
    """
    if _is_served(path) and not share:
        raise OperatorError(f"{path} is served by another process; stop it, choose another path "
                            "with --uds, or take over from it with --share-port", 4)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if os.path.lexists(path) and not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise OSError(errno.EEXIST, "there is a file that is no socket")
        listener.bind(_beside(path))
        listener.listen(BACKLOG)
        listener.setblocking(False)
        if not share:
            take_over(path)
    except OSError as error:
        listener.close()
        raise OperatorError(f"cannot listen on --uds {path}: {error.strerror or error}; choose a "
                            "path that this user may create", 4) from None
    return listener


def take_over(path: str) -> None:
    """Puts our listener at its path; whoever listened there keeps the clients that it has."""
    with contextlib.suppress(FileNotFoundError):        # it is there already
        os.rename(_beside(path), path)


def close_unix_path(path: str) -> None:
    """Removes the path of a listener that is closed, unless a successor has taken it over."""
    with contextlib.suppress(OSError):
        os.unlink(_beside(path))
    if not _is_served(path):
        with contextlib.suppress(OSError):
            os.unlink(path)


def _beside(path: str) -> str:
    return f"{path}.{os.getpid()}"


def _is_served(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except BlockingIOError:
            return True
        except OSError:
            return False
    return True


def shown_address(host: str, port: int) -> str:
    """host:port as a URL has it; the host may stand in brackets already."""
    return f"[{host}]:{port}" if ":" in host and host[0] != "[" else f"{host}:{port}"


def _resolve(host: str, port: int) -> tuple[int, tuple]:
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        found = socket.getaddrinfo(bare, port, type=socket.SOCK_STREAM,
                                   flags=socket.AI_PASSIVE | socket.AI_NUMERICSERV)
    except (socket.gaierror, UnicodeError):
        raise OperatorError(f"--host {host}: not an address of this machine; use 127.0.0.1, "
                            "0.0.0.0 or one that `ip address` lists") from None
    # A name such as localhost has addresses of both families: IPv4 is what clients try.
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return found[0][0], found[0][4]


def _explain(error: OSError, host: str, port: int) -> OperatorError:
    if error.errno == errno.EADDRINUSE:
        return OperatorError(f"port {port} of {host} is taken; stop what listens there, choose "
                             "another with --port, or --port 0 for a free one", 4)
    if error.errno == errno.EACCES:
        return OperatorError(f"port {port} needs a privileged user; choose one above 1023", 4)
    return OperatorError(f"cannot listen on {host} port {port}: {error.strerror}")
