"""A front knows how late it reads, and for which class that is too late."""

import os
import select
import socket
from collections.abc import Iterator

import pytest

from server.messages import HIGH, LOW
from server.unread import LATE_S, PATIENCE_S, Unread

pytestmark = pytest.mark.sockets


@pytest.fixture
def poll() -> Iterator[select.epoll]:
    with select.epoll() as made:
        yield made


@pytest.fixture
def unread(poll: select.epoll) -> Iterator[Unread]:
    made = Unread(poll)
    yield made
    os.close(made.number)


def rounds(unread: Unread, late_s: float, count: int, begin: float = 100.0) -> float:
    """Crowded turns whose notes come back after `late_s` each; when the last one did."""
    now = begin
    for _ in range(count):
        unread.turn(True, now)
        now += late_s
        unread.came(now)
    return now


def test_unread_note_comes_back_in_its_turn_among_sockets(unread, poll):
    """A turn's share is three here, and six sockets are ready when the note is sent."""
    pairs = [socket.socketpair() for _ in range(9)]
    for ours, theirs in pairs:
        poll.register(ours, select.EPOLLIN)
    for _, theirs in pairs[:6]:
        theirs.send(b"x")
    order = []
    for turn in range(6):
        for number, _ in poll.poll(0, 3):
            order.append(number)
            for ours, theirs in pairs:
                if ours.fileno() == number:
                    ours.recv(1)
        if turn == 0:
            unread.turn(True, 1.0)
            for _, theirs in pairs[6:]:
                theirs.send(b"x")
    expected = [ours.fileno() for ours, _ in pairs]
    expected.insert(6, unread.number)
    assert order[:10] == expected
    for pair in pairs:
        for one in pair:
            one.close()


def test_unread_late_notes_close_low_before_high(unread):
    assert LATE_S[LOW] < LATE_S[HIGH]
    rounds(unread, LATE_S[LOW] * 1.2, 1)
    assert unread.behind == ()
    rounds(unread, LATE_S[LOW] * 1.2, 10, 101.0)
    assert unread.behind == (LOW,)
    rounds(unread, LATE_S[HIGH] * 1.2, 3, 110.0)
    assert set(unread.behind) == {HIGH, LOW}


def test_unread_one_note_in_time_opens_again(unread):
    now = rounds(unread, LATE_S[LOW] * 1.2, 10)
    rounds(unread, LATE_S[LOW] / 2, 1, now)
    assert unread.behind == ()


def test_unread_turn_that_has_all_opens_again_and_takes_the_note_back(unread, poll):
    now = rounds(unread, LATE_S[LOW] * 1.2, 10)
    unread.turn(True, now)
    assert poll.poll(0) and unread.is_watching
    unread.turn(False, now)
    unread.came(now)                # it was among this turn's events
    assert unread.behind == () and not unread.is_watching and not poll.poll(0)


def test_unread_front_that_stood_still_refuses_nobody_if_it_catches_up(unread):
    unread.turn(True, 100.0)
    unread.came(105.0)              # stopped meanwhile
    assert unread.behind == ()
    unread.turn(True, 105.0)
    unread.came(105.01)
    now = rounds(unread, 0.01, 50, 105.01)
    assert unread.behind == () and now > 105.0 + PATIENCE_S


def test_unread_note_that_does_not_come_back_at_all_is_late(unread):
    now, closed_at = 100.0, {}
    while len(closed_at) < 2:
        unread.turn(True, now)
        for priority in unread.behind:
            closed_at.setdefault(priority, now - 100.0)
        now += 0.001
    for priority, late_s in LATE_S.items():
        assert closed_at[priority] == pytest.approx(late_s + PATIENCE_S, abs=0.003)
