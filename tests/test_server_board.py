"""A text in shared memory: what forks read of it, and that none reads half of one."""

import os

import pytest

from server.board import SIZE_BYTES, Board


def test_board_is_empty_first_and_holds_the_last_text():
    board = Board()
    assert board.read() == ""
    board.write("a longer one, with ünïcode")
    board.write("short")
    assert board.read() == "short"


def test_board_text_that_is_too_long_is_refused_and_the_old_one_stays():
    board = Board()
    board.write("kept")
    with pytest.raises(ValueError, match="a board holds"):
        board.write("x" * SIZE_BYTES)
    assert board.read() == "kept"


def test_board_fork_never_reads_half_a_text():
    board = Board()
    board.write("a" * 1000)
    writer = os.fork()
    if not writer:
        for number in range(3000):
            board.write("ab"[number % 2] * (1000 + number))
        os._exit(0)
    try:
        while os.waitpid(writer, os.WNOHANG)[0] == 0:
            text = board.read()
            assert len(set(text)) <= 1, "letters of two texts"
        assert board.read() == "b" * 3999
    except AssertionError:
        os.kill(writer, 9)
        os.waitpid(writer, 0)
        raise
