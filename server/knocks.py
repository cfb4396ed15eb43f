"""What becomes of clients who knock while a listener closes: the kernel sends them elsewhere.

A listener that closes resets whoever is in its queue, and however quickly it is closed after the
queue was found empty, somebody may have come in between. So before the last look at the queue the
kernel is told to let nobody else in, through whichever copy of the listener; who is in the queue,
or in the middle of the handshake, stays.

New TCP clients are led to a listener of another server on the same port, where there is one (an
upgrade), by a program of the port's group: the kernel keeps listeners in the order they came, so
that ours are before those of a successor, and takes any of the group where the program names none
that is there. Those whom a closing listener still gets hear nothing; they knock again after a
second and find the port closed, or whoever listens there then. New clients of a Unix socket are
refused at once.
"""

import contextlib
import socket
import struct
from array import array

# asm-generic/socket.h; the socket module has no names for them.
_SO_ATTACH_FILTER, _SO_ATTACH_REUSEPORT_CBPF, _SO_DETACH_REUSEPORT_BPF = 26, 51, 68
# Steps of classic BPF (linux/filter.h): code, jumps if true and if false, operand.
_RETURN = 0x06
# linux/netlink.h, sock_diag.h, inet_diag.h, tcp_states.h
_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, _DONE = 4, 20, 0x301, 3
_SYN_RECEIVED = 1 << 3
_HEADER, _QUESTION = struct.Struct("=IHHII"), struct.Struct("=BBBBIH46x")
_REPLY_BYTES = 8192
_NOT_SYN_ALONE = (
    (0x30, 0, 0, 13),               # load the TCP header's flags
    (0x54, 0, 0, 0x12),             # keep SYN and ACK
    (0x15, 0, 1, 0x02),             # SYN without ACK?
    (_RETURN, 0, 0, 0),             # then nothing of the segment is kept
    (_RETURN, 0, 0, 0xffffffff))    # else all of it


def send_elsewhere(listener: socket.socket, ours: int) -> None:
    """From now on nobody else gets into a listener's queue; `ours` is how many listeners of this
    port this server has."""
    if listener.family == socket.AF_UNIX:
        listener.shutdown(socket.SHUT_RD)
        return
    _attach(listener, _SO_ATTACH_REUSEPORT_CBPF, ((_RETURN, 0, 0, ours),))
    _attach(listener, _SO_ATTACH_FILTER, _NOT_SYN_ALONE)


def is_anybody_coming(listener: socket.socket) -> bool:
    """Whether a client of a listener's port is in the middle of the handshake; True where the
    kernel does not say. It takes half a millisecond of the kernel's time."""
    if listener.family == socket.AF_UNIX:
        return False        # they connect in one step
    question = _QUESTION.pack(listener.family, socket.IPPROTO_TCP, 0, 0, _SYN_RECEIVED,
                              socket.htons(listener.getsockname()[1]))
    header = _HEADER.pack(_HEADER.size + len(question), _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, 0, 0)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
            kernel.sendto(header + question, (0, 0))
            # The answer is complete when it was asked for; the first of it tells.
            return _HEADER.unpack_from(kernel.recv(_REPLY_BYTES, socket.MSG_DONTWAIT))[1] != _DONE
    except OSError:
        return True


def take_leave(listener: socket.socket) -> None:
    """To be said before such a listener closes: the port is its successor's to share out."""
    with contextlib.suppress(OSError):      # none is attached, or another of ours has done it
        listener.setsockopt(socket.SOL_SOCKET, _SO_DETACH_REUSEPORT_BPF, 0)


def _attach(listener: socket.socket, option: int, steps: tuple[tuple[int, ...], ...]) -> None:
    program = array("B", b"".join(struct.pack("=HBBI", *step) for step in steps))
    with contextlib.suppress(OSError):      # a system without filters, a port that nobody shares
        listener.setsockopt(socket.SOL_SOCKET, option,
                            struct.pack("HP", len(steps), program.buffer_info()[0]))
