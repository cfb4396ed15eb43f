"""Mapped files of records: streamed in order with a bounded number in flight, whatever happens to
the file or the client meanwhile."""

import json
import math
import os
import socket

import pytest

from loader.wire import ANSWER, write_record
from server.connection import WAITING_BYTES
from server.errors import ClientError
from server.mapped import FILE_WINDOWS, WINDOW_BYTES, WINDOW_RECORDS, FileSource, read_file_request
from server.messages import LOW, Reason
from tests.front_desk import Desk, get, post

FILE = b"Content-Type: application/x-firebrick-file"
COUNT = 3000


@pytest.fixture
def folder(tmp_path):
    data = b"".join(write_record(b"win %d" % (at % 7), None, at) for at in range(COUNT))
    (tmp_path / "some.fbr").write_bytes(data)
    (tmp_path / "empty.fbr").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link.fbr").symlink_to("some.fbr")
    os.mkfifo(tmp_path / "pipe.fbr")
    return tmp_path


@pytest.fixture
def desk(folder):
    made = Desk("--records", str(folder))
    yield made
    made.close()


def named(name="some.fbr", **others):
    return post({"file": name, **others}, FILE)


def is_open(path):
    """Whether this process has the file open."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:
            continue        # the one that listed the folder
    return str(path) in found


def finish(desk):
    """Answers windows until nothing is in flight."""
    while desk.jobs:
        desk.answer(WINDOW_RECORDS)


def test_mapped_file_is_answered_in_order_and_bounded(desk):
    client = desk.connect()
    client.send(named(first=5, count=2000), get(b"/healthz"))
    most = 0
    while desk.jobs:
        most = max(most, len(desk.jobs))
        assert {group.priority for group in desk.groups} == {LOW}
        desk.answer(100)
    answer = client.read()
    assert answer.headers["transfer-encoding"] == "chunked" and answer.headers["x-labels"]
    rows = list(ANSWER.iter_unpack(answer.body))
    assert [row[0] for row in rows] == list(range(5, 2005)) and {row[3] for row in rows} == {0}
    assert most <= FILE_WINDOWS * WINDOW_RECORDS
    assert client.read().body == b"ok\n"
    assert desk.counted("/infer", 200) == 1


@pytest.mark.parametrize("asked,count", [
    ({}, COUNT), ({"count": 10 ** 9}, COUNT), ({"first": COUNT - 1}, 1), ({"first": COUNT}, 0),
    ({"first": 10 ** 9}, 0), ({"first": None, "count": None}, COUNT), ({"count": 1}, 1),
], ids=str)
def test_mapped_range_past_the_end_gives_what_there_is(desk, asked, count):
    client = desk.connect()
    client.send(named(**asked))
    finish(desk)
    answer = client.read()
    assert answer.status == 200 and len(answer.body) == 16 * count


def test_mapped_file_without_records_is_an_empty_answer(desk):
    client = desk.connect()
    client.send(named("empty.fbr"))
    answer = client.read()
    assert (answer.status, answer.body) == (200, b"")


@pytest.mark.parametrize("name,status", [
    ("nothing.fbr", 404), ("folder", 400), ("link.fbr", 400), ("pipe.fbr", 400),
    ("../some.fbr", 400), ("/etc/passwd", 400), ("", 400), (".", 400), ("..", 400),
    ("a\0b", 400), ("x" * 300, 400),
    ("\ud800", 400), ("folder/../some.fbr", 400),
], ids=ascii)
def test_mapped_name_that_is_no_plain_file_of_the_folder_is_refused(desk, folder, name, status):
    client = desk.connect()
    client.send(named(name))
    answer = client.read()
    assert answer.status == status and str(folder).encode() not in answer.body
    assert "connection" not in answer.headers and not desk.jobs


@pytest.mark.parametrize("body,status", [
    (b"", 400), (b"[]", 400), (b"{", 400), (b'{"file": 1}', 400), (b'{"file": "a", "x": 1}', 400),
    (b'{"file": "a", "file": "b"}', 400), (b'{"file": "a", "first": -1}', 400),
    (b'{"file": "a", "count": 0}', 400), (b'{"file": "a", "count": true}', 400),
    (b'{"file": "a", "first": 1.0}', 400), (b'{"file": "a", "first": NaN}', 400),
    (b"[" * 4000, 400), (b'{"file": "\xff"}', 400), (b" " * 5000, 413),
    (b'{"file": "a", "first": ' + b"9" * 4000 + b"}", 400),
], ids=lambda value: repr(value[:30]) if isinstance(value, bytes) else None)
def test_mapped_unsound_body_is_refused(body, status):
    with pytest.raises(ClientError) as caught:
        read_file_request(body)
    assert caught.value.status == status


def test_mapped_http_10_client_gets_the_answer_up_to_the_end_of_the_connection(desk):
    client = desk.connect()
    client.send(named(count=600).replace(b"HTTP/1.1", b"HTTP/1.0")
                .replace(b"Host: h", b"Connection: keep-alive"))
    finish(desk)
    head, _, content = client.heard().partition(b"\r\n\r\n")
    assert b"Connection: close" in head and b"chunked" not in head and len(content) == 600 * 16
    client.end()
    assert not desk.clients.connections


@pytest.mark.parametrize("change", ["cut", "grown", "overwritten"])
def test_mapped_file_that_changes_ends_the_answer_not_the_front(desk, folder, change):
    client = desk.connect()
    client.send(named())
    desk.answer(WINDOW_RECORDS)
    path = folder / "some.fbr"
    if change == "cut":
        os.truncate(path, 20_000)
    elif change == "grown":
        with open(path, "ab") as file:
            file.write(b"x")
    else:
        path.write_bytes(b"\xff" * path.stat().st_size)
    finish(desk)
    said = client.heard()
    assert said.startswith(b"HTTP/1.1 200 ") and not said.endswith(b"0\r\n\r\n")
    assert not desk.clients.connections and desk.inflight.open_groups == 0
    assert desk.connect().ask({"text": "a"}).status == 200


def test_mapped_unsound_file_is_400(desk, folder):
    (folder / "bad.fbr").write_bytes(b"\xff" * 100)
    client = desk.connect()
    client.send(named("bad.fbr"))
    answer = client.read()
    assert (answer.status, answer.code) == (400, "invalid_records")


def test_mapped_client_that_does_not_read_is_not_computed_for(tmp_path):
    count = 60_000
    (tmp_path / "big.fbr").write_bytes(b"".join(
        write_record(b"a", None, at) for at in range(count)))
    desk = Desk("--records", str(tmp_path))
    client = desk.connect()
    connection = next(iter(desk.clients.connections.values()))
    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16384)
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
    client.send(named("big.fbr"))
    computed = 0
    while desk.jobs:
        computed += len(desk.jobs[:WINDOW_RECORDS])
        desk.answer(WINDOW_RECORDS)
    # What the kernel holds is its own affair; beyond that the bound and the windows in flight.
    assert computed < count
    assert connection.waiting_bytes <= WAITING_BYTES + FILE_WINDOWS * WINDOW_RECORDS * 17
    for end, size in ((connection, socket.SO_SNDBUF), (client, socket.SO_RCVBUF)):
        end.socket.setsockopt(socket.SOL_SOCKET, size, 1 << 20)    # the rest is not to take seconds
    while connection.exchanges or connection.waiting_bytes:
        client.heard()
        desk.settle()
        finish(desk)
    while not client.heard().endswith(b"0\r\n\r\n"):
        pass        # the kernel hands it over in its own time
    assert len(client.read().body) == count * 16
    desk.close()


def test_mapped_refused_window_waits_and_the_answer_goes_on(desk):
    client = desk.connect()
    client.send(named(count=700))
    desk.refuse(Reason.WAIT, 100)
    assert client.heard() == b"" and not desk.jobs
    desk.turn(now=desk.requests.next_timer() + 0.001)
    desk.settle()
    finish(desk)
    assert len(client.read().body) == 700 * 16


def test_mapped_client_that_leaves_gives_back_file_and_queue(desk, folder):
    client = desk.connect()
    client.send(named())
    assert is_open(folder / "some.fbr")
    assert desk.inflight.open_groups == FILE_WINDOWS
    connection = next(iter(desk.clients.connections.values()))
    connection.is_gone = True
    desk.clients.settle(connection, 0.0)
    client.socket.close()
    desk.act()
    assert desk.inflight.open_groups == 0 and not desk.requests.work
    assert not is_open(folder / "some.fbr")
    assert desk.counted("/infer", 499) == 1


def test_mapped_window_of_long_records_is_bounded_by_bytes(tmp_path):
    (tmp_path / "long.fbr").write_bytes(write_record(b"a" * 300_000, None, 1) * 10)
    source = FileSource(str(tmp_path), json.dumps({"file": "long.fbr"}).encode())
    list(source.find())
    sizes = []
    while records := source.take(WINDOW_RECORDS):
        sizes.append(sum(len(record.text) for record in records))
    source.close()
    assert sum(sizes) == 3_000_000 and max(sizes) <= WINDOW_BYTES and len(sizes) == 4


def test_mapped_record_that_fails_has_its_status_alone(desk):
    client = desk.connect()
    client.send(named(count=5))
    desk.answer(failed=(2,))
    rows = list(ANSWER.iter_unpack(client.read().body))
    assert [row[3] for row in rows] == [0, 0, 3, 0, 0] and math.isnan(rows[2][1])
