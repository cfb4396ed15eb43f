"""A front knows how much it has not read, how late it is, and for which class that is too much."""

import os
import select
import socket
from collections.abc import Iterator

import pytest

from server.messages import HIGH, LOW
from server.unread import MOST_READY, PATIENCE_S, Unread

pytestmark = pytest.mark.sockets
MAX_WAIT_MS = 2000.0


@pytest.fixture
def poll() -> Iterator[select.epoll]:
    with select.epoll() as made:
        yield made


@pytest.fixture
def unread(poll: select.epoll) -> Iterator[Unread]:
    made = Unread(poll, MAX_WAIT_MS)
    yield made
    os.close(made.number)


def rounds(unread: Unread, ready: int, late_s: float, count: int = 10, begin: float = 100.0,
           waits_ms: tuple[float, float] = (0.0, 0.0)) -> float:
    """Crowded turns, each with a note that comes back after so many others and seconds; when the
    last one did."""
    now = begin
    for _ in range(count):
        unread.turn(ready, True, waits_ms, now)
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
            unread.turn(3, True, (0.0, 0.0), 1.0)
            for _, theirs in pairs[6:]:
                theirs.send(b"x")
    expected = [ours.fileno() for ours, _ in pairs]
    expected.insert(6, unread.number)
    assert order[:10] == expected
    for pair in pairs:
        for one in pair:
            one.close()


def test_unread_many_that_are_ready_close_low_before_high(unread):
    assert MOST_READY[LOW] < MOST_READY[HIGH]
    rounds(unread, MOST_READY[LOW] + 1, 0.05, 1)
    assert unread.behind == ()
    rounds(unread, MOST_READY[LOW] + 1, 0.05, begin=101.0)
    assert unread.behind == (LOW,)
    rounds(unread, MOST_READY[HIGH] + 1, 0.05, begin=110.0)
    assert set(unread.behind) == {HIGH, LOW}


def test_unread_age_counts_into_the_wait_that_is_allowed(unread):
    waits_ms = 0.0, MAX_WAIT_MS - 60.0
    now = rounds(unread, 32, 0.05, waits_ms=waits_ms)
    assert unread.behind == ()
    rounds(unread, 32, 0.07, begin=now, waits_ms=waits_ms)
    assert unread.behind == (LOW,)


def test_unread_one_note_that_found_few_opens_again(unread):
    now = rounds(unread, MOST_READY[LOW] + 1, 0.05)
    rounds(unread, MOST_READY[LOW], 0.05, 1, now)
    assert unread.behind == ()


def test_unread_turn_that_has_all_opens_again_and_takes_the_note_back(unread, poll):
    now = rounds(unread, MOST_READY[LOW] + 1, 0.05)
    assert unread.turn(32, True, (0.0, 0.0), now) == (LOW,)
    assert poll.poll(0) and unread.is_watching
    assert unread.turn(3, False, (0.0, 0.0), now) == ()
    unread.came(now)                # it was among this turn's events
    assert unread.behind == () and not unread.is_watching and not poll.poll(0)


def test_unread_front_that_stood_still_refuses_nobody_if_it_catches_up(unread):
    unread.turn(32, True, (0.0, 0.0), 100.0)
    unread.came(105.0)              # stopped meanwhile
    assert unread.behind == ()
    now = rounds(unread, 32, 0.01, 50, 105.0)
    assert unread.behind == () and now > 105.0 + PATIENCE_S


def test_unread_note_that_does_not_come_back_counts_as_it_stands(unread):
    now, closed_at = 100.0, {}
    while len(closed_at) < 2:
        for priority in unread.turn(32, True, (0.0, 0.0), now):
            closed_at.setdefault(priority, now - 100.0)
        now += 0.001
    for priority, most in MOST_READY.items():
        assert closed_at[priority] == pytest.approx(most / 32 / 1000 + PATIENCE_S, abs=0.003)
