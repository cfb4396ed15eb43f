"""Links between processes: nothing is lost, nobody blocks, the end comes after what was sent."""

import os
import socket

from server import link
from server.messages import LIMIT_BYTES


def pair():
    name = f"firebrick-test-{os.getpid()}-{os.urandom(6).hex()}"
    listener = link.listen(name)
    client = link.connect(name)
    server = link.accept(listener)
    assert link.accept(listener) is None
    listener.close()
    return client, server


def drain(end):
    messages, ended = [], False
    while not ended:
        part, ended = end.receive()
        messages += part
        if not part:
            break
    return messages, ended


def test_link_full_socket_queues_and_flushes_in_order():
    client, server = pair()
    sent = [bytes([number]) * LIMIT_BYTES for number in range(50)]
    queued = [not client.send(message) for message in sent]
    assert client.waiting == sum(queued) > 0
    received = []
    while len(received) < len(sent):
        received += drain(server)[0]
        client.flush()
    assert received == sent and not client.waiting
    client.close()
    assert drain(server) == ([], True)
    server.close()


def test_link_dead_peer_what_it_sent_is_read_before_the_end():
    client, server = pair()
    client.send(b"unread")
    server.send(b"one")
    server.send(b"two")
    server.close()                      # with unread data: the client sees ECONNRESET
    client.send(b"lost")
    assert client.waiting == 0
    messages, ended = drain(client)
    assert messages == [b"one", b"two"] and ended
    client.close()


def test_link_oversized_message_ends_the_link():
    client, server = pair()
    server.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    client.socket.send(b"x" * (LIMIT_BYTES + 1))
    assert server.receive() == ([], True)
    client.close()
    server.close()


def test_link_connect_without_listener_gives_nothing():
    assert link.connect(f"firebrick-test-none-{os.urandom(6).hex()}") is None
