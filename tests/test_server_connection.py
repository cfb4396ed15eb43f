"""One connection over a socket that can be short, full, broken or ended, and over a real one."""

import select

import pytest

from server import connection as module
from server.connection import (IDLE_S, LINGER_S, NEVER, PIPELINED, PROBE_AFTER_S, WAITING_BYTES,
                               Connection)
from server.http1 import Head, Parser
from tests.fake_socket import FakePair, RealPair

REQUEST = b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n"
POSTED = b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"
READ_S = 10.0


@pytest.fixture(params=[FakePair, RealPair], ids=["fake", "real"])
def pair(request):
    made = request.param()
    yield made
    made.release()


@pytest.fixture
def fake():
    return FakePair()


def open_on(pair):
    connection = Connection(1, pair.socket, Parser(1000), 0.0, lambda exchange: None)
    connection.mask = select.EPOLLIN
    return connection


def receive(connection, now=0.0):
    data = connection.read()
    if data is not None:
        connection.take(data, now)


def pull(connection, now=0.0):
    """Reads once and opens an exchange for each whole request."""
    receive(connection, now)
    opened = []
    while connection.may_pull and (event := connection.parser.next_event()) is not None:
        if isinstance(event, Head):
            connection.begin(event)
        else:
            opened.append(connection.body_read(now))
    return opened


# -- the contract that fake and real share ------------------------------------------------------


def test_connection_request_is_read_and_answered(pair):
    connection = open_on(pair)
    pair.say(REQUEST[:10])
    assert pull(connection) == []
    pair.say(REQUEST[10:])
    exchange, = pull(connection)
    connection.answer(exchange, 200, b"answer")
    connection.flush(1.0)
    assert pair.heard() == b"answer" and connection.is_idle and connection.rests()


def test_connection_end_of_an_idle_client_is_its_end(pair):
    connection = open_on(pair)
    pair.end()
    pull(connection)
    connection.flush(0.0)
    assert connection.has_ended and connection.is_gone


def test_connection_half_closed_client_is_answered_then_closed(pair):
    connection = open_on(pair)
    pair.say(REQUEST)
    exchange, = pull(connection)
    pair.end()
    pull(connection)
    connection.flush(0.0)
    assert not connection.is_gone and not connection.interest() & select.EPOLLIN
    connection.answer(exchange, 200, b"answer")
    connection.flush(0.0)
    assert connection.is_gone and pair.heard() == b"answer"


def test_connection_reset_is_noticed_by_reading(pair):
    connection = open_on(pair)
    pair.reset()
    pull(connection)
    assert connection.is_gone


def test_connection_answer_that_closes_lingers_until_the_client_ends(pair):
    connection = open_on(pair)
    pair.say(REQUEST)
    exchange, = pull(connection)
    exchange.closes = True
    connection.answer(exchange, 200, b"last")
    connection.flush(0.0)
    assert connection.is_lingering and not connection.is_gone
    pair.say(b"x" * 1000)
    receive(connection)
    assert not connection.is_gone and not connection.parser.started
    pair.end()
    receive(connection)
    assert connection.is_gone and pair.heard() == b"last"


# -- what only a fake can do at will -------------------------------------------------------------


def test_connection_interrupted_calls_are_tried_again(fake):
    connection = open_on(fake)
    fake.say(REQUEST)
    fake.socket.interrupts = 1
    assert pull(connection) == []
    exchange, = pull(connection)
    connection.answer(exchange, 200, b"answer")
    fake.socket.interrupts = 1
    connection.flush(0.0)
    connection.flush(0.0)
    assert fake.heard() == b"answer"


def test_connection_answers_leave_in_the_order_of_requests(fake):
    told = []
    connection = Connection(1, fake.socket, Parser(1000), 0.0, lambda exchange: told.append(
        (exchange.status, bytes(fake.socket.sent))))
    fake.say(REQUEST * 3)
    first, second, third = pull(connection)
    connection.answer(third, 203, b"3")
    connection.answer(second, 202, b"2")
    connection.flush(0.0)
    assert fake.heard() == b"" and told == []
    connection.answer(first, 201, b"1")
    # Counted before a byte is written.
    assert told == [(201, b""), (202, b""), (203, b"")]
    connection.flush(0.0)
    assert fake.heard() == b"123"


def test_connection_short_writes_lose_and_repeat_nothing(fake):
    connection = open_on(fake)
    fake.say(REQUEST * 2)
    first, second = pull(connection)
    fake.socket.room = 3
    connection.answer(first, 200, b"abcdef")
    connection.flush(0.0)
    assert connection.interest() & select.EPOLLOUT and connection.waiting_bytes == 3
    connection.answer(second, 200, b"ghi")
    for _ in range(4):
        fake.socket.room = 2
        connection.flush(0.0)
    assert fake.heard() == b"abcdefghi" and connection.waiting_bytes == 0
    assert connection.interest() == select.EPOLLIN


def test_connection_client_that_reads_nothing_is_read_no_further(fake):
    connection = open_on(fake)
    fake.socket.room = 0
    fake.say(REQUEST)
    exchange, = pull(connection)
    connection.answer(exchange, 200, b"x" * (WAITING_BYTES + 1))
    connection.flush(0.0)
    assert connection.interest() == select.EPOLLOUT and not connection.may_pull
    assert connection.deadline(READ_S) == IDLE_S
    fake.socket.room = WAITING_BYTES
    connection.flush(5.0)
    assert connection.interest() & select.EPOLLIN and connection.deadline(READ_S) == 5 + IDLE_S


def test_connection_requests_worked_on_at_a_time_are_bounded(fake):
    connection = open_on(fake)
    fake.say(REQUEST * (PIPELINED + 5))
    exchanges = pull(connection)
    assert len(exchanges) == PIPELINED and not connection.interest()
    connection.answer(exchanges[0], 200, b"1")
    assert connection.interest() & select.EPOLLIN
    while connection.may_pull and connection.parser.next_event() is not None:
        break
    assert connection.parser.buffered


def test_connection_reset_while_writing_is_noticed(fake):
    connection = open_on(fake)
    fake.say(REQUEST)
    exchange, = pull(connection)
    fake.reset()
    connection.answer(exchange, 200, b"1")
    connection.flush(0.0)
    assert connection.is_gone


def test_connection_refused_before_its_body_reads_no_other_request(fake):
    connection = open_on(fake)
    fake.say(POSTED[:-2])
    receive(connection)
    exchange = connection.begin(connection.parser.next_event())
    connection.answer(exchange, 415, b"no")
    assert connection.is_closing and not connection.may_pull
    connection.flush(0.0)
    assert connection.is_lingering and fake.socket.is_shut
    fake.say(b"bc" + REQUEST)
    receive(connection)
    assert not connection.exchanges


def test_connection_lingering_is_bounded_in_bytes_and_time(fake, monkeypatch):
    monkeypatch.setattr(module, "LINGER_BYTES", 1000)
    connection = open_on(fake)
    fake.say(POSTED[:-2])
    receive(connection)
    exchange = connection.begin(connection.parser.next_event())
    connection.answer(exchange, 413, b"no")
    connection.flush(2.0)
    assert connection.deadline(READ_S) == 2 + LINGER_S
    fake.say(b"x" * 999)
    receive(connection, 3.0)
    assert not connection.is_gone and connection.deadline(READ_S) == 2 + LINGER_S
    fake.say(b"xx")
    receive(connection, 3.0)
    assert connection.is_gone


def test_connection_no_request_is_read_behind_one_that_closes(fake):
    connection = open_on(fake)
    fake.say(REQUEST.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + REQUEST)
    assert len(pull(connection)) == 1 and not connection.may_pull


def test_connection_continue_is_sent_when_the_client_waits_for_it(fake):
    connection = open_on(fake)
    fake.say(POSTED.replace(b"\r\n\r\nabc", b"\r\nExpect: 100-continue\r\n\r\n"))
    assert pull(connection) == []
    connection.flush(0.0)
    connection.flush(0.0)
    assert fake.heard() == b"HTTP/1.1 100 Continue\r\n\r\n"
    fake.say(b"abc")
    assert len(pull(connection)) == 1


def test_connection_continue_waits_for_the_answers_before_it(fake):
    connection = open_on(fake)
    fake.say(REQUEST + POSTED.replace(b"\r\n\r\nabc", b"\r\nExpect: 100-continue\r\n\r\n"))
    first, = pull(connection)
    connection.flush(0.0)
    assert fake.heard() == b""
    connection.answer(first, 200, b"first;")
    connection.flush(0.0)
    assert fake.heard() == b"first;HTTP/1.1 100 Continue\r\n\r\n"


def test_connection_continue_is_left_out_where_the_body_comes_anyway(fake):
    connection = open_on(fake)
    fake.say(POSTED.replace(b"\r\n\r\nabc", b"\r\nExpect: 100-continue\r\n\r\na"))
    pull(connection)
    connection.flush(0.0)
    assert fake.heard() == b""


def test_connection_deadlines_follow_its_state(fake):
    connection = open_on(fake)
    assert connection.deadline(READ_S) == IDLE_S
    fake.say(POSTED[:20])
    pull(connection, 3.0)
    assert connection.deadline(READ_S) == 3 + READ_S
    fake.say(POSTED[20:-1])
    pull(connection, 9.0)
    assert connection.deadline(READ_S) == 3 + READ_S
    fake.say(POSTED[-1:])
    exchange, = pull(connection, 12.0)
    assert connection.deadline(READ_S) == NEVER and exchange.received_at == 12.0
    fake.end()
    pull(connection, 13.0)
    assert connection.deadline(READ_S) == 13 + PROBE_AFTER_S
    assert connection.expire(14.0) is False
    connection.flush(14.0)
    assert fake.heard() == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert connection.deadline(READ_S) == NEVER


def test_connection_old_client_is_never_probed(fake):
    connection = open_on(fake)
    fake.say(b"GET / HTTP/1.0\r\n\r\n")
    pull(connection)
    fake.end()
    pull(connection, 1.0)
    connection.expire(2.0)
    connection.flush(2.0)
    assert fake.heard() == b"" and connection.deadline(READ_S) == NEVER


def test_connection_expired_request_asks_for_its_408(fake):
    connection = open_on(fake)
    fake.say(POSTED[:20])
    pull(connection)
    assert connection.expire(11.0) is True and not connection.is_gone
    idle = open_on(FakePair())
    assert idle.expire(100.0) is False and idle.is_gone


def test_connection_stream_goes_between_other_answers(fake):
    connection = open_on(fake)
    fake.say(REQUEST * 2)
    first, second = pull(connection)
    connection.answer(second, 200, b"second")
    connection.start_stream(first, 200, b"head;")
    connection.stream(b"piece;")
    connection.flush(0.0)
    connection.end_stream(first, b"end;")
    connection.flush(0.0)
    assert fake.heard() == b"head;piece;end;second" and connection.is_idle


def test_connection_close_gives_what_was_not_answered(fake):
    connection = open_on(fake)
    fake.say(REQUEST * 2)
    first, second = pull(connection)
    connection.answer(first, 200, b"1")
    assert connection.close() == [second] and second.is_gone and fake.socket.is_closed
