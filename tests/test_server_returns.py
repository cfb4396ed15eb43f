"""Refused requests come back one after the other, as fast as requests are answered."""

import pytest

from server.returns import LONGEST_S, Returns


def at_rate(rate, seconds=20):
    """Returns of a front that has answered so many requests a second for so long, and the time."""
    returns = Returns(0.0)
    for number in range(rate * seconds):
        returns.answered(number / rate)
    return returns, float(seconds)


def test_returns_refusals_at_once_are_spread_at_the_rate_of_answers():
    returns, now = at_rate(50)
    given = [returns.give_ms(1, now) for _ in range(101)]
    assert given == sorted(given) and given[0] == 1
    assert given[100] == pytest.approx(2000, rel=0.05)


def test_returns_never_before_the_backlog_allows():
    returns, now = at_rate(50)
    assert returns.give_ms(700, now) == 700
    assert returns.give_ms(1, now) == pytest.approx(720, abs=4)     # after who was refused before


def test_returns_times_that_have_passed_are_free_again():
    returns, now = at_rate(50)
    for _ in range(100):
        returns.give_ms(1, now)
    assert returns.give_ms(1, now + 5.0) == 1


def test_returns_nobody_is_sent_away_for_ever():
    returns, now = at_rate(10)
    given = [returns.give_ms(1, now) for _ in range(2000)]
    assert max(given) <= LONGEST_S * 1e3
    assert returns.give_ms(90_000, now) == 90_000       # the backlog itself is as long


def test_returns_rate_of_long_ago_is_forgotten():
    returns, now = at_rate(1000)
    later = now + 60.0
    assert [returns.give_ms(1, later), returns.give_ms(1, later)] == [1, pytest.approx(1000, abs=2)]
