"""bench/peers: frames keep what they carry, calls cover each text once, failures are sentences."""

import io
import random
import sys
from pathlib import Path

import numpy as np
import pytest

from bench.peers.calls import Call, cut_calls
from bench.peers.contender import PeerContender, PeerError
from bench.peers.padding import padded, stacked
from bench.peers.protocol import (BODY_BYTES_MOST, SIZES, read_frame, read_rows, write_frame,
                                  write_rows)
from bench.peers.venv import missing

MODES = ("whole", "alone", "buckets", "buckets-64", "1", "64", "300")


@pytest.mark.parametrize("body", [b"", b"\x00\xff" * 9])
def test_protocol_frame_written_and_read_is_the_same(body):
    pipe = io.BytesIO()
    for number in range(3):
        write_frame(pipe, {"run": [1, 2], "text": "é", "number": number}, body)
    pipe.seek(0)
    for number in range(3):
        assert read_frame(pipe) == ({"run": [1, 2], "text": "é", "number": number}, body)
    with pytest.raises(EOFError):
        read_frame(pipe)


def test_protocol_frame_cut_anywhere_raises_eof():
    pipe = io.BytesIO()
    write_frame(pipe, {"a": 1}, b"xyz")
    for size in range(len(pipe.getvalue())):
        with pytest.raises(EOFError):
            read_frame(io.BytesIO(pipe.getvalue()[:size]))


@pytest.mark.parametrize("data", [SIZES.pack(3, BODY_BYTES_MOST + 1) + b"abc",
                                  b"Downloading the model ... 100 %",
                                  SIZES.pack(2, 0) + b"[]", SIZES.pack(2, 0) + b"{]"])
def test_protocol_nonsense_raises_value_error(data):
    with pytest.raises(ValueError):
        read_frame(io.BytesIO(data))


def test_protocol_rows_written_and_read_are_the_same():
    chance = random.Random(3)
    rows = [np.array([chance.randrange(1 << 20) for _ in range(length)])
            for length in (1, 7, 3, 512)]
    back = read_rows(*write_rows(rows))
    assert [row.tolist() for row in back] == [row.tolist() for row in rows]
    with pytest.raises(ValueError, match="5 ids in all"):
        read_rows([2, 3], b"\0" * 4)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(20))
def test_calls_of_a_mode_cover_each_text_once_and_hold_it(mode, seed):
    chance = random.Random(seed)
    lengths = [chance.randint(1, 128) for _ in range(chance.randint(1, 40))]
    calls = cut_calls(lengths, mode, 128)
    assert sorted(row for call in calls for row in call.rows) == list(range(len(lengths)))
    for call in calls:
        assert max(lengths[row] for row in call.rows) <= call.width <= 128
        if mode.isdigit():
            assert call.width == max(lengths[row] for row in call.rows)
        limit = mode.rpartition("-")[2]
        if limit.isdigit():
            assert len(call.rows) == 1 or call.width * len(call.rows) <= int(limit)


def test_calls_in_buckets_are_as_worked_by_hand():
    assert cut_calls([3, 20, 5, 33], "buckets", 128) == [Call([0, 2], 16), Call([1], 32),
                                                         Call([3], 48)]
    assert cut_calls([3, 20, 5], "buckets-16", 128) == [Call([0], 16), Call([2], 16), Call([1], 32)]
    assert cut_calls([3, 20, 5], "10", 128) == [Call([0, 2], 5), Call([1], 20)]
    assert cut_calls([3, 20, 5], "alone", 128) == [Call([0], 3), Call([1], 20), Call([2], 5)]
    assert cut_calls([3, 20, 5], "whole", 128) == [Call([0, 1, 2], 20)]


def test_padding_puts_ids_first_and_masks_the_rest():
    rows = [np.array([7, 8]), np.array([9]), np.array([1, 2, 3])]
    ids, mask = padded(rows, Call([1, 2], 4), np.int64)
    assert ids.tolist() == [[9, 0, 0, 0], [1, 2, 3, 0]]
    assert mask.tolist() == [[1, 0, 0, 0], [1, 1, 1, 0]]


def test_padding_stacked_answers_stand_in_the_order_of_the_texts():
    calls = cut_calls([9, 2, 30, 4, 17], "buckets", 64)
    found = [np.array([[row, -row] for row in call.rows], np.float32) for call in calls]
    assert stacked(found, calls)[:, 0].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.sockets
def test_contender_that_does_not_load_says_so_in_a_sentence(tmp_path: Path):
    with pytest.raises(PeerError, match="^nobody-int8 failed: KeyError: 'nobody'$"):
        PeerContender(sys.executable, "nobody-int8", str(tmp_path), tmp_path / "cache", [])


@pytest.mark.sockets
def test_contender_whose_process_ends_says_where_its_words_are(tmp_path: Path):
    with pytest.raises(PeerError, match=r"ort-int8 ended \(.*ort-int8.log has its words\)"):
        PeerContender("/bin/false", "ort-int8", str(tmp_path), tmp_path / "cache", [])


@pytest.mark.sockets
def test_venv_missing_names_the_peer_and_what_python_said(tmp_path: Path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho \"No module named 'nncf'\" >&2\nexit 1\n")
    python.chmod(0o755)
    assert missing(str(python), "openvino") == ("openvino is left out, its packages do not load: "
                                                "No module named 'nncf'")
    assert missing("/bin/true", "openvino") == ""
