"""How a process of the house begins: what it is given, how it is bound to the master, its control
socket. Children are forked from the master's own code and never return."""

import ctypes
import faulthandler
import gc
import json
import os
import resource
import signal
import socket
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from server import log
from server.metrics import Page, Registry

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
CONTROL_LIMIT_BYTES = 65536
CONTROL_LIMIT_FDS = 8
STDERR = 2
# What an uncaught exception ends with: EX_SOFTWARE of sysexits(3).
BROKEN = 70


@dataclass(frozen=True)
class ChildSpec:
    """What a child is given. `listeners` are the fronts' sockets (fronts only), each at its front's
    index, and `shared_listeners` those that every front polls; `dispatcher_listener` is the
    dispatcher's alone."""

    role: str
    index: int
    incarnation: int
    generation: int
    settings: Any
    control: "Control"
    page: Page
    registry: Registry
    dispatcher_name: str
    master_pid: int
    listeners: tuple[socket.socket, ...] = ()
    shared_listeners: tuple[socket.socket, ...] = ()
    dispatcher_listener: socket.socket | None = None
    keys: tuple[bytes, ...] = ()


class Control:
    """One end of the socket between the master and a child: JSON objects, with descriptors."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.socket = sock
        self._waiting: deque[tuple[bytes, list[int]]] = deque()

    @classmethod
    def pair(cls) -> tuple["Control", "Control"]:
        """(master's end, child's end)."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(ours), cls(theirs)

    def fileno(self) -> int:
        return self.socket.fileno()

    def send(self, message: dict, descriptors: Iterable[int] = ()) -> None:
        """Sends at once or, where the peer does not read now, at a later `flush`. The descriptors
        are copied, so the caller may close its own."""
        self._waiting.append((json.dumps(message).encode(), [os.dup(fd) for fd in descriptors]))
        self.flush()

    def flush(self) -> None:
        """Sends what waits; all of it is dropped where the peer is gone."""
        while self._waiting:
            data, descriptors = self._waiting[0]
            try:
                socket.send_fds(self.socket, [data], descriptors)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self._drop_waiting()
                return
            self._waiting.popleft()
            for descriptor in descriptors:
                os.close(descriptor)

    def _drop_waiting(self) -> None:
        for _, descriptors in self._waiting:
            for descriptor in descriptors:
                os.close(descriptor)
        self._waiting.clear()

    def receive(self) -> list[tuple[dict, list[int]]]:
        """What has come, with descriptors that are now the caller's."""
        return self.receive_all()[0]

    def receive_all(self) -> tuple[list[tuple[dict, list[int]]], bool]:
        """(messages, whether the peer has ended)."""
        messages = []
        while True:
            try:
                data, descriptors, _, _ = socket.recv_fds(self.socket, CONTROL_LIMIT_BYTES,
                                                          CONTROL_LIMIT_FDS)
            except (BlockingIOError, InterruptedError):
                return messages, False
            except OSError:
                return messages, True
            if not data:
                return messages, True
            messages.append((json.loads(data), descriptors))

    def close(self) -> None:
        self._drop_waiting()
        self.socket.close()


def fork(entry: Callable[[ChildSpec], None], spec: ChildSpec) -> int:
    """Forks a child that runs `entry(spec)`; returns its pid in the parent.

    Signals are held back meanwhile, so that none meets the parent's handlers in the child.
    """
    gc.freeze()                         # pages that nobody's collector touches stay shared
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP,
                                                     signal.SIGUSR2, signal.SIGCHLD})
    pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
        return pid
    live(entry, spec, held)


def live(entry: Callable[[ChildSpec], None], spec: ChildSpec, mask: Iterable[int] = ()) -> None:
    """The rest of a forked child's life; never returns."""
    status = BROKEN
    try:
        _take_signals(mask)
        entry(spec)
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else BROKEN
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _take_signals(mask: Iterable[int]) -> None:
    """The master alone interprets INT, TERM and HUP; USR2 shows where a process is."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    faulthandler.register(signal.SIGUSR2, file=STDERR, all_threads=True)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def arm(spec: ChildSpec, kept: Iterable[int] = ()) -> None:
    """Binds a child to its master's life and closes every descriptor that is not its own, or
    `kept`.

    The kernel kills it when the master dies, even while it is stopped; a master that died before
    the request took effect is noticed by asking again. Objects of the master whose descriptors
    are closed here stay referenced by its frames, which a child never leaves.
    """
    set_process_option(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != spec.master_pid:
        os._exit(0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    owned = [spec.control, *spec.listeners, *spec.shared_listeners]
    if spec.dispatcher_listener is not None:
        owned.append(spec.dispatcher_listener)
    close_all_but({0, 1, 2, *kept, *(item.fileno() for item in owned)})


def take_niceness(wanted: int) -> None:
    """Sets this process's niceness, if it may. Whoever started the server with more than is wanted
    gets what he asked for."""
    if 0 <= wanted <= os.getpriority(os.PRIO_PROCESS, 0):
        return
    try:
        os.setpriority(os.PRIO_PROCESS, 0, wanted)
    except PermissionError:
        log.event("engine_nice_refused", wanted=wanted,
                  why="only a privileged user may lower it")


def close_all_but(kept: set[int]) -> None:
    """Closes every descriptor of the process that is not in `kept`."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            try:
                os.close(int(name))
            except OSError:
                pass        # the one that listed the folder


def set_process_option(option: int, value: int) -> None:
    """prctl(2); raises OSError."""
    if _LIBC.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


_LIBC = ctypes.CDLL(None, use_errno=True)
