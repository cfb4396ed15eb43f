"""tools.pack: texts to records and back, bad lines by number, nothing half written."""

import json
import os
import random
from pathlib import Path

import pytest

from loader.wire import LARGEST_IN_FILE, Record, read_records, write_record
from tools.pack import main

ITEMS = [("a", None, 1), ("", None, 2), ("ä\U0001F600", "pair", 3), ("x", None, (1 << 64) - 1)]


def run(capsys, *arguments: object) -> tuple[int, str, str]:
    status = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def packed(capsys, path: Path, *flags: str) -> list[Record]:
    status, out, err = run(capsys, path, path.with_suffix(".fbr"), *flags)
    assert (status, err) == (0, ""), err
    data = path.with_suffix(".fbr").read_bytes()
    assert out.endswith(f" 0 bad, {len(data):,} bytes written to {path.with_suffix('.fbr')}\n")
    return read_records(data)


def records(items: list[tuple]) -> list[Record]:
    return [Record(text.encode(), pair and pair.encode(), number) for text, pair, number in items]


@pytest.mark.parametrize(("name", "lines"), [
    ("x.tsv", ["a", "", "ä\U0001F600\tpair", f"x\t\t{(1 << 64) - 1}"]),
    ("x.jsonl", ['{"text": "a"}', '{"text": "", "text_pair": null}',
                 '{"text": "\\u00e4\\ud83d\\ude00", "text_pair": "pair"}',
                 '{"user_id": 18446744073709551615, "text": "x", "text_pair": ""}'])])
def test_pack_lines_become_records_whose_ids_are_line_numbers(tmp_path, capsys, name, lines):
    for end in ("\n", "\r\n"):
        (tmp_path / name).write_bytes(end.join([*lines, ""]).encode())
        assert packed(capsys, tmp_path / name) == records(ITEMS)
    (tmp_path / name).write_bytes("\n".join(lines).encode())  # no line end at the end
    assert packed(capsys, tmp_path / name) == records(ITEMS)


def test_pack_csv_with_a_head_becomes_records(tmp_path, capsys):
    (tmp_path / "x.csv").write_text(
        '\ufefftext_pair,label,text,user_id\r\n,x,"two\nlines, ""quoted""",\r\nb,y,a,9\r\n')
    status, out, err = run(capsys, tmp_path / "x.csv", tmp_path / "o")
    assert status == 0 and "not read: the columns label" in err and "2 texts, 1 of them" in out
    assert read_records((tmp_path / "o").read_bytes()) == [
        Record(b'two\nlines, "quoted"', None, 2), Record(b"a", b"b", 9)]


def test_pack_columns_are_those_that_are_named(tmp_path, capsys):
    (tmp_path / "x.txt").write_text("spam\twin\nham\thello\n")
    got = packed(capsys, tmp_path / "x.txt", "--format", "tsv", "--columns", "label,text")
    assert got == records([("win", None, 1), ("hello", None, 2)])


@pytest.mark.parametrize(("name", "line", "words"), [
    ("x.tsv", b"a\tb\t1\tc", "4 columns, but 3 are named"), ("x.tsv", b"\xff", "not UTF-8 at"),
    ("x.tsv", b"a\t\t-1", "user_id '-1' is no whole number"),
    ("x.tsv", b"a\t\t18446744073709551616", "is no whole number below"),
    ("x.tsv", "a\t\t\u0663".encode(), "is no whole number below"),
    ("x.tsv", b"a" * ((16 << 20) + 9), "the line is too long"),
    ("x.tsv", b"a" * LARGEST_IN_FILE, "longer than the 16777216 bytes of a record"),
    ("x.jsonl", b"", "the line is not JSON"), ("x.jsonl", b"[]", "the line must be a JSON object"),
    ("x.jsonl", b'{"text": 5}', "text must be a string"),
    ("x.jsonl", b'{"text": "a", "user_id": "u"}', "is a text; a record's is a number"),
    ("x.jsonl", b'{"text": "a", "top_k": 1}', "top_k belong to requests"),
    ("x.csv", b"only", "1 columns instead of 2"), ("x.csv", b'"a"b,c', "no CSV"),
    ("x.csv", b"a\xff,b", "not UTF-8")])
def test_pack_bad_line_is_told_and_left_out(tmp_path, capsys, name, line, words):
    good = {"x.tsv": b"good", "x.jsonl": b'{"text": "good"}', "x.csv": b"good,"}[name]
    head = b"text,text_pair\n" if name == "x.csv" else good + b"\n"
    (tmp_path / name).write_bytes(head + line + b"\n" + good + b"\n")
    status, out, err = run(capsys, tmp_path / name, tmp_path / "o")
    assert status == 1 and " 1 bad, " in out
    assert err.startswith(f"{tmp_path / name}:2: ") and words in err and err.count("\n") == 1
    got = read_records((tmp_path / "o").read_bytes())
    assert [record.text for record in got] == [b"good"] * (1 + (name != "x.csv"))
    assert got[-1].user_id == 3


@pytest.mark.parametrize("kind", ["tsv", "jsonl", "csv"])
def test_pack_random_texts_come_back(tmp_path, capsys, kind):
    rng = random.Random(4)
    letters = [chr(code) for code in (*range(32, 127), 0xE9, 0x4E2D, 0x1F600, 0, 0xFEFF)
               if kind != "csv" or code]  # csv of Python 3.10 reads no NUL
    letters += ["\n", "\r", "\t"] * (kind != "tsv")
    items = [("".join(rng.choices(letters, k=rng.randrange(30))),
              rng.choice([None, "p" + "".join(rng.choices(letters, k=5))]),
              rng.randrange(1 << 64)) for _ in range(3000)]
    source, text, back = (tmp_path / name for name in ("a.fbr", f"a.{kind}", "b.fbr"))
    source.write_bytes(b"".join(write_record(t.encode(), p and p.encode(), n)
                                for t, p, n in items))
    status, out, err = run(capsys, source, text, "--unpack")
    assert (status, err) == (0, "") and out.startswith("3,000 texts, ")
    assert run(capsys, text, back)[0] == 0
    assert back.read_bytes() == source.read_bytes()


def test_unpack_record_that_is_no_text_is_told(tmp_path, capsys):
    (tmp_path / "a").write_bytes(write_record(b"\xff", None, 1) + write_record(b"a\tb", None, 2) +
                                 write_record(b"c", None, 3))
    status, out, err = run(capsys, tmp_path / "a", tmp_path / "o.tsv", "--unpack")
    assert status == 1 and "1 texts" in out and " 2 bad" in out
    assert "record 0: not UTF-8" in err and "record 1: the text holds a tab" in err
    assert (tmp_path / "o.tsv").read_bytes() == b"c\t\t3\n"
    assert run(capsys, tmp_path / "a", tmp_path / "o.jsonl", "--unpack")[0] == 1
    assert json.loads((tmp_path / "o.jsonl").read_text().splitlines()[0])["text"] == "a\tb"


def test_unpack_long_records_are_read_some_at_a_time(tmp_path, capsys):
    long = b"x" * (9 << 20)
    (tmp_path / "a").write_bytes(b"".join(write_record(long, None, n) for n in range(5)))
    assert run(capsys, tmp_path / "a", tmp_path / "o.tsv", "--unpack")[0] == 0
    assert (tmp_path / "o.tsv").stat().st_size == 5 * (len(long) + 4)


@pytest.mark.parametrize(("name", "content", "flags", "words"), [
    ("a.fbr", b"\5\0\0\0ab", ["--unpack"], "record 0 (at byte 0) is cut short"),
    ("a.txt", b"x", [], "its name does not end in .tsv, .jsonl or .csv; say --format"),
    ("a.csv", b"", [], "names no column text"), ("a.csv", b"label,x\n", [], "no column text"),
    ("a.csv", b"text,text\n", [], "names the column text twice"),
    ("a.csv", b'"a"b\n', [], "the first line is no CSV"),
    (None, b"", ["--format", "tsv"], "No such file")])
def test_pack_what_cannot_be_read_leaves_the_target_alone(tmp_path, capsys, name, content, flags,
                                                          words):
    if name:
        (tmp_path / name).write_bytes(content)
    target = tmp_path / ("out.jsonl" if "--unpack" in flags else "out")
    target.write_bytes(b"kept")
    status, out, err = run(capsys, tmp_path / (name or "none"), target, *flags)
    assert (status, out) == (2, "") and words in err and err.count("\n") == 1
    assert target.read_bytes() == b"kept" and not list(tmp_path.glob("*.part"))


def test_pack_folder_that_is_not_there_is_told(tmp_path, capsys):
    (tmp_path / "a.tsv").write_text("x\n")
    status, _, err = run(capsys, tmp_path / "a.tsv", tmp_path / "no" / "o")
    assert status == 2 and f"{tmp_path / 'no' / 'o.part'}: No such file" in err


@pytest.mark.parametrize("value", ["txt", "text,text", "text,user_id,user_id", ""])
def test_pack_wrong_columns_are_refused(capsys, value):
    with pytest.raises(SystemExit) as ended:
        main(["a.tsv", "b", "--columns", value])
    assert ended.value.code == 2
    assert "--columns: invalid" in capsys.readouterr().err


def test_pack_hundred_thousand_texts_hold_no_more_memory(tmp_path, capsys):
    (tmp_path / "a.tsv").write_text("some text that is not long\n" * 100_000)
    before = _peak_kib()
    assert run(capsys, tmp_path / "a.tsv", tmp_path / "o")[1].startswith("100,000 texts")
    assert run(capsys, tmp_path / "o", tmp_path / "b.jsonl", "--unpack")[0] == 0
    assert _peak_kib() - before < 8 << 10


def _peak_kib() -> int:
    with open(f"/proc/{os.getpid()}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
