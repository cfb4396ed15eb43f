"""Files as runs of raw items: shards meet without gaps, numbers are those of the whole file."""

import io
import os
import random
import sys
from pathlib import Path

import pytest

from loader.wire import write_record
from tools.offline.source import TAKE_BYTES, Lines, Records, Shard, SourceError


def items(source: Lines | Records, limit: int = 7) -> list[tuple[int, bytes | None]]:
    """(number, item) of all that is left."""
    found = []
    while True:
        first, taken = source.take(limit)
        if not taken:
            source.close()
            return found
        assert len(taken) <= limit and source.done is None or 0 <= source.done <= 1
        found += enumerate(taken, first)


def write_lines(path: Path, rng: random.Random, count: int) -> list[bytes]:
    lines = [bytes(rng.choices(b"abc ", k=rng.choice([0, 1, 5, 40]))) for _ in range(count)]
    path.write_bytes(b"\n".join(lines) + b"\n" * rng.randrange(2))
    return path.read_bytes().removesuffix(b"\n").split(b"\n") if path.stat().st_size else []


def write_records(path: Path, rng: random.Random, count: int) -> list[bytes]:
    records = [write_record(bytes(rng.choices(b"abc ", k=rng.choice([0, 5, 40]))),
                            rng.choice([None, b"pair"]), number) for number in range(count)]
    path.write_bytes(b"".join(records))
    return records


@pytest.mark.parametrize(("kind", "write", "first"), [(Lines, write_lines, 1),
                                                      (Records, write_records, 0)])
@pytest.mark.parametrize("seed", range(4))
def test_source_shards_of_any_number_are_the_whole(tmp_path, kind, write, first, seed):
    rng, path = random.Random(seed), tmp_path / "texts"
    for count in (0, 1, 2, 57):
        want = list(enumerate(write(path, rng, count), first))
        assert items(kind(str(path), Shard(), 0)) == want
        for shards in (2, 3, 10, 100):
            parts = [items(kind(str(path), Shard(index, shards), 0)) for index in range(shards)]
            assert sum(parts, []) == want


@pytest.mark.parametrize(("kind", "write"), [(Lines, write_lines), (Records, write_records)])
def test_source_skip_leaves_out_the_first_of_the_shard(tmp_path, kind, write):
    path = tmp_path / "texts"
    write(path, random.Random(1), 40)
    for shard in (Shard(), Shard(1, 3)):
        whole = items(kind(str(path), shard, 0))
        for skip in (1, 5, len(whole) - 1, len(whole), len(whole) + 9):
            assert items(kind(str(path), shard, skip)) == whole[skip:]


def test_lines_standard_input_is_read_to_its_end(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\nb\r\nc")))
    source = Lines("-", Shard(), 1)
    assert source.done is None and items(source) == [(2, b"b"), (3, b"c")]


def test_lines_one_too_long_is_none_and_the_next_is_whole(tmp_path):
    (tmp_path / "texts").write_bytes(b"a\n" + b"x" * ((16 << 20) + 1) + b"\nb\n" +
                                     b"y" * (16 << 20) + b"\nc")
    got = items(Lines(str(tmp_path / "texts"), Shard(), 0), 1)
    assert [(number, item and len(item)) for number, item in got] == [
        (1, 1), (2, None), (3, 1), (4, 16 << 20), (5, 1)]


@pytest.mark.parametrize("kind", [Lines, Records])
def test_source_part_of_long_items_is_short(tmp_path, kind):
    long = b"x" * 100_000
    item = write_record(long, None, 0) if kind is Records else long + b"\n"
    (tmp_path / "texts").write_bytes(item * 20)
    source = kind(str(tmp_path / "texts"), Shard(), 0)
    sizes = []
    while part := source.take(1000)[1]:
        sizes.append(len(part))
        assert sum(map(len, part)) <= TAKE_BYTES + len(long)
    source.close()
    assert sum(sizes) == 20 and max(sizes) > 1


@pytest.mark.parametrize(("data", "words"), [
    (write_record(b"abc", None, 1) + b"\1\0", "record 1 (at byte 15) is cut short"),
    (b"\xff\xff\xff\x7f" + bytes(20), "leads past the end")])
def test_records_that_are_not_sound_are_told(tmp_path, data, words):
    (tmp_path / "texts").write_bytes(data)
    with pytest.raises(SourceError) as caught:
        items(Records(str(tmp_path / "texts"), Shard(), 0))
    assert words in str(caught.value) and str(caught.value).startswith(str(tmp_path / "texts"))


def test_records_file_cut_meanwhile_is_told(tmp_path):
    path = tmp_path / "texts"
    path.write_bytes(write_record(b"abc", None, 1) * 20_000)
    source = Records(str(path), Shard(), 0)
    assert source.take(10)[1]
    os.truncate(path, 15 * 10_000)
    with pytest.raises(SourceError):
        items(source, 4096)
