"""The safetensors reader and writer against a slow reference, and against damaged files."""

import json
import math
import os
import random
import struct
from pathlib import Path

import numpy as np
import pytest

from loader.errors import CheckpointError
from loader.safetensors import (BITS, PAD, file_bytes, float32_array, layout, open_image,
                                read_header, stored_array)


def image(entries: dict, data: bytes, metadata: dict | None = None, **change: object) -> bytes:
    """A file with the given header entries; `raw` replaces the header, `length` its length."""
    header = {"__metadata__": metadata} if metadata is not None else {}
    raw = change.get("raw", json.dumps({**header, **entries}).encode())
    return struct.pack("<Q", change.get("length", len(raw))) + raw + data


def entry(dtype: str, shape: list, begin: int, end: int) -> dict:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def refusal(data: bytes, tmp_path: Path) -> str:
    """The sentence with which a file is refused, by the file reader and the image reader alike."""
    path = tmp_path / "x.safetensors"
    path.write_bytes(data)
    with pytest.raises(CheckpointError):
        open_image(data)
    fd = os.open(path, os.O_RDONLY)
    try:
        with pytest.raises(CheckpointError) as caught:
            read_header(fd, "x.safetensors")
    finally:
        os.close(fd)
    message = str(caught.value)
    assert message.startswith("x.safetensors") and "\n" not in message and len(message) < 400
    return message


def slow_reader(data: bytes) -> dict:
    """The format read by its description, trusting everything: name → (dtype, shape, bytes)."""
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    body = data[8 + length:]
    return {name: (e["dtype"], tuple(e["shape"]), body[slice(*e["data_offsets"])])
            for name, e in header.items()}


def random_file(rng: random.Random) -> bytes:
    entries, data = {}, b""
    for index in range(rng.randrange(6)):
        dtype = rng.choice([name for name, bits in BITS.items() if bits % 8 == 0])
        shape = [rng.randrange(4) for _ in range(rng.randrange(4))]
        size = math.prod(shape) * BITS[dtype] // 8
        entries[rng.choice(["ä", "t", "a.b"]) + str(index)] = entry(
            dtype, shape, len(data), len(data) + size)
        data += rng.randbytes(size)
    names = list(entries)
    rng.shuffle(names)
    return image({name: entries[name] for name in names}, data,
                 rng.choice([None, {}, {"format": "pt"}]))


def test_open_image_random_files_equal_slow_reader():
    rng = random.Random(1)
    for _ in range(300):
        data = random_file(rng)
        found = {name: (t.dtype, t.shape, data[t.begin:t.end])
                 for name, t in open_image(data).items()}
        assert found == slow_reader(data)


def test_read_header_mutated_bytes_give_tensors_or_checkpoint_error(tmp_path):
    rng = random.Random(2)
    path = tmp_path / "x.safetensors"
    outcomes = {True: 0, False: 0}
    for _ in range(1500):
        data = bytearray(random_file(rng))
        for _ in range(rng.randrange(1, 3)):
            kind = rng.randrange(3)
            at = rng.randrange(len(data) + 1) if rng.random() < 0.8 else len(data) - 1
            if kind == 0 and at < len(data):
                data[at] = rng.randrange(256)
            elif kind == 1:
                del data[at:at + rng.randrange(1, 9)]
            else:
                data[at:at] = rng.choice([b"9", b"-", b"[", b"}", b"null", rng.randbytes(3)])
        path.write_bytes(data)
        fd = os.open(path, os.O_RDONLY)
        try:
            found = {name: (t.dtype, t.shape, bytes(data[t.begin:t.end]))
                     for name, t in read_header(fd, "x.safetensors").items()}
            assert found == slow_reader(bytes(data))
            outcomes[True] += 1
        except CheckpointError as error:
            assert "\n" not in str(error)
            outcomes[False] += 1
        finally:
            os.close(fd)
    assert min(outcomes.values()) > 20, outcomes


GOOD = entry("F32", [2], 0, 8)
BAD_FILES = {
    "empty": (b"", "too few"),
    "seven bytes": (b"\x10" + b"\0" * 6, "too few"),
    "length only": (struct.pack("<Q", 64), "ends inside its header"),
    "length 2**64-1": (image({}, b"", length=2**64 - 1), "100000000"),
    "length over the limit": (image({}, b"", length=100_000_001), "100000000"),
    "length zero": (image({}, b"", length=0), "does not begin with '{'"),
    "not JSON": (image({}, b"", raw=b"{'a': 1}"), "not JSON"),
    "not UTF-8": (image({}, b"", raw=b'{"\xff": {}}'), "not UTF-8"),
    "array": (image({}, b"", raw=b"[1]"), "does not begin"),
    "deep": (image({}, b"", raw=b'{"a":' + b"[" * 99999 + b"]" * 99999 + b"}"), "nested"),
    "name twice": (image({}, b"12345678", raw=b'{"a":%s,"a":%s}' % (
        (json.dumps(GOOD).encode(),) * 2)), "'a' twice"),
    "metadata number": (image({}, b"", {"n": 1}), "__metadata__"),
    "entry null": (image({"a": None}, b""), "'a' is not described"),
    "entry with more": (image({"a": {**GOOD, "x": 1}}, b"12345678"), "not described"),
    "no dtype": (image({"a": {"shape": [2], "data_offsets": [0, 8]}}, b"12345678"), "'a'"),
    "dtype list": (image({"a": entry(["F32"], [2], 0, 8)}, b"12345678"), "unknown dtype"),
    "dtype unknown": (image({"a": entry("F128", [2], 0, 8)}, b"12345678"), "'F128'"),
    "shape text": (image({"a": entry("F32", "2", 0, 8)}, b"12345678"), "shape"),
    "shape negative": (image({"a": entry("F32", [-2], 0, 8)}, b"12345678"), "shape"),
    "shape true": (image({"a": entry("F32", [True], 0, 4)}, b"1234"), "shape"),
    "shape float": (image({"a": entry("F32", [2.0], 0, 8)}, b"12345678"), "shape"),
    "shape overflow": (image({"a": entry("F32", [2**62, 2**62, 0], 0, 0)}, b""), "shape"),
    "shape of many dimensions": (image({"a": entry("F32", [2] + [1] * 70000, 0, 8)},
                                       b"12345678"), "at most 32"),
    "bytes differ": (image({"a": entry("F32", [3], 0, 8)}, b"12345678"), "12 bytes"),
    "half a byte": (image({"a": entry("F4", [3], 0, 2)}, b"12"), "bytes"),
    "offsets reversed": (image({"a": entry("F32", [2], 8, 0)}, b"12345678"), "data_offsets"),
    "offset negative": (image({"a": entry("F32", [2], -8, 0)}, b"12345678"), "data_offsets"),
    "offset float": (image({"a": entry("F32", [2], 0.5, 8.5)}, b"12345678"), "data_offsets"),
    "offset huge": (image({"a": entry("F32", [2], 10**12, 10**12 + 8)}, b""), "past the end"),
    "offsets three": (image({"a": {**GOOD, "data_offsets": [0, 4, 8]}}, b"12345678"), "'a'"),
    "gap first": (image({"a": entry("F32", [2], 4, 12)}, b"1" * 12), "4 bytes after"),
    "gap between": (image({"a": GOOD, "b": entry("F32", [1], 12, 16)}, b"1" * 16), "'b'"),
    "overlap": (image({"a": GOOD, "b": entry("F32", [2], 4, 12)}, b"1" * 12), "overlaps"),
    "same place": (image({"a": GOOD, "b": GOOD}, b"1" * 8), "overlaps"),
    "trailing": (image({"a": GOOD}, b"1" * 9), "1 bytes after"),
    "cut": (image({"a": GOOD}, b"1" * 7), "past the end"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_read_header_bad_file_is_refused_by_its_fault(case, tmp_path):
    data, words = BAD_FILES[case]
    assert words in refusal(data, tmp_path)


def test_read_header_legal_oddities_are_read():
    spaced = json.dumps({"a": GOOD}).encode() + b"  \n "
    assert open_image(image({}, b"12345678", raw=spaced))["a"].shape == (2,)
    assert open_image(image({}, b"")) == {}
    empty = image({"e": entry("F32", [0], 4, 4), "s": entry("F32", [], 0, 4)}, b"1234")
    assert {name: t.shape for name, t in open_image(empty).items()} == {"e": (0,), "s": ()}


def test_read_header_file_cut_while_read_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "m.safetensors"
    path.write_bytes(image({"a": GOOD}, b"12345678"))
    fd = os.open(path, os.O_RDONLY)
    honest = os.pread

    def cutting(descriptor, count, offset):
        part = honest(descriptor, count, offset)
        os.truncate(path, 8)
        return part

    monkeypatch.setattr(os, "pread", cutting)
    try:
        with pytest.raises(CheckpointError, match="became shorter"):
            read_header(fd, "m.safetensors")
    finally:
        os.close(fd)


def test_layout_aligned_image_is_sound_and_hides_its_fillers():
    rng = random.Random(3)
    for _ in range(100):
        specs = {f"t{i}": (rng.choice(["F32", "F16", "BF16"]), (rng.randrange(9), 3))
                 for i in range(rng.randrange(8))}
        head, places, size = layout(specs, 64)
        data = head + bytes(size - len(head))
        assert open_image(data) == places
        assert all(tensor.begin % 64 == 0 for tensor in places.values())
        assert all(name in specs or name.startswith(PAD) for name in slow_reader(data))


def test_float32_array_each_stored_type_is_widened_exactly():
    values = np.array([0.0, -1.5, 3.140625, 2.0**-14], np.float32)
    bf16 = (values.view(np.uint32) >> 16).astype("<u2")
    for dtype, stored in (("F32", values), ("F16", values.astype("<f2")), ("BF16", bf16),
                          ("F64", values.astype("<f8"))):
        head, places, _ = layout({"x": (dtype, (2, 2))})
        data = head + stored.tobytes()
        wide = float32_array(data, places["x"])
        assert wide.dtype == np.float32 and wide.tolist() == values.reshape(2, 2).tolist()
        assert stored_array(data, places["x"]).dtype == stored.dtype


def test_file_bytes_arrays_come_back_largest_elements_first():
    arrays = {"b": np.ones((2, 3), np.float16), "a": np.arange(3, dtype=np.float32),
              "c": np.arange(6, dtype=">f4").reshape(2, 3).T}
    data = file_bytes(arrays)
    tensors = open_image(data)
    assert sorted(tensors, key=lambda name: tensors[name].begin) == ["a", "c", "b"]
    for name, array in arrays.items():
        assert np.array_equal(stored_array(data, tensors[name]), array)
    assert b'"__metadata__":{"format":"pt"}' in data
