"""Log lines: one event, one line, one write, never in anyone's way."""

import os
import re
import sys

import pytest

from server import log


class Reader:
    """stderr as a pipe, from here to the end of the test."""

    def __init__(self, monkeypatch):
        self.descriptor, writer = os.pipe()
        os.set_blocking(self.descriptor, False)
        self.stderr = open(writer, "w", encoding="utf-8")
        monkeypatch.setattr(sys, "stderr", self.stderr)
        monkeypatch.setattr(log, "_dropped", 0)

    def read(self):
        try:
            return os.read(self.descriptor, 1 << 20)
        except BlockingIOError:
            return b""

    def close_reading_end(self):
        os.close(self.descriptor)
        self.descriptor = None


@pytest.fixture
def listen(monkeypatch):
    """Called in the test itself, because pytest takes stderr back after each fixture."""
    readers = []

    def start():
        readers.append(Reader(monkeypatch))
        return readers[-1]

    yield start
    for reader in readers:
        reader.stderr.close()
        if reader.descriptor is not None:
            os.close(reader.descriptor)


def test_log_event_is_one_line_of_keys_and_values(listen):
    stderr = listen()
    log.event("engine_died", index=0, cause="sigkill", after_s=1.23456, detail=None)
    line = stderr.read().decode()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z event=engine_died index=0 "
                        r"cause=sigkill after_s=1\.235\n", line)


@pytest.mark.parametrize("value, shown", [
    ("two words", '"two words"'), ('say "no"', r'"say \"no\""'), ("a=b", '"a=b"'), ("", '""'),
    ("one\ntwo\r\tthree", r'"one\ntwo\r\tthree"'), ("back\\slash", r'"back\\slash"'),
    ("größer", "größer")])
def test_log_value_is_quoted_where_it_must_be(listen, value, shown):
    stderr = listen()
    log.event("said", text=value)
    line = stderr.read().decode()
    assert line.endswith(f" text={shown}\n") and line.count("\n") == 1


def test_log_long_line_is_cut_to_what_a_pipe_takes_in_one_piece(listen):
    stderr = listen()
    log.event("said", text="ä" * 5000)
    line = stderr.read()
    assert len(line) <= 4096 and line.endswith(b"\n") and line.count(b"\n") == 1


def test_log_blocked_reader_drops_lines_and_the_next_one_counts_them(listen):
    stderr = listen()
    for number in range(5000):
        log.event("said", number=number, text="x" * 100)
    held = b"".join(iter(stderr.read, b""))
    lines = held.decode().splitlines()
    assert 0 < len(lines) < 5000 and all(" event=said " in line for line in lines)
    log.event("said", number=5000)
    assert stderr.read().decode().endswith(
        f" number=5000 dropped_lines={5000 - len(lines)}\n")
    log.event("said", number=5001)
    assert b"dropped_lines" not in stderr.read()


def test_log_without_a_reader_goes_on(listen):
    stderr = listen()
    stderr.close_reading_end()
    log.event("said")


def test_log_without_stderr_goes_on(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    log.event("said")
