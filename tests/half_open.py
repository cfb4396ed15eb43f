"""A TCP client that stays in the middle of its handshake, because it is deaf for a while."""

import socket
import struct
from array import array

_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27       # asm-generic/socket.h
_RETURN_NOTHING = array("B", struct.pack("=HBBI", 0x06, 0, 0, 0))


def half_open(address: tuple[str, int]) -> socket.socket:
    """A client that has knocked and drops whatever it is answered."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER,
                      struct.pack("HP", 1, _RETURN_NOTHING.buffer_info()[0]))
    client.setblocking(False)
    client.connect_ex(address)
    return client


def hear_again(client: socket.socket) -> None:
    """From now on it hears; the server's system repeats its answer within a second or two."""
    client.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)
