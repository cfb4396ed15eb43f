"""`python -m tools.pack`: texts between TSV, JSONL or CSV and the server's record file."""

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from loader.errors import WireError
from loader.wire import LARGEST_IN_FILE, RecordFile, write_record
from server.body import TextItem
from tools.texts.csv_file import read_csv, write_csv
from tools.texts.formats import (FIELDS, LineError, numbered_lines, read_columns, read_jsonl,
                                 read_tsv, write_jsonl, write_tsv)

TEXT_FORMATS = ("tsv", "jsonl", "csv")
SLICE_RECORDS = 1024     # read at once; fewer where they are long
SLICE_BYTES = 16 << 20
SOME_BAD, REFUSED = 1, 2


class Counts(NamedTuple):
    """What became of a file's texts."""

    good: int
    pairs: int
    bad: int
    bytes_written: int


class PackError(Exception):
    """Why nothing can be converted: one sentence with the way out."""


def main(argv: list[str] | None = None) -> int:
    """0 when all were converted, 1 when some lines were bad, 2 when nothing was written."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.pack", allow_abbrev=False,
        description="Convert texts to the server's record file (the body of a binary request), or "
                    "such a file back to texts. A text without a user_id gets the number of its "
                    "line. Bad lines are told by number and left out; then the exit status is 1.")
    parser.add_argument("source", metavar="IN", type=Path)
    parser.add_argument("target", metavar="OUT", type=Path,
                        help="replaced only when IN was read to its end")
    parser.add_argument("--format", choices=TEXT_FORMATS,
                        help="of the texts; otherwise the end of the name says it: .tsv (no head; "
                             "text, text_pair, user_id), .jsonl ({\"text\", \"text_pair\"?, "
                             "\"user_id\"?} a line) or .csv (with a head that names the columns)")
    parser.add_argument("--columns", type=read_columns, metavar="NAMES",
                        default=FIELDS,
                        help="the columns of a TSV file in order; others than text, text_pair and "
                             "user_id are left out: label,text reads label<TAB>text")
    parser.add_argument("--unpack", action="store_true", help="IN is the record file")
    chosen = parser.parse_args(argv)
    try:
        kind = chosen.format or _kind(chosen.source, chosen.target, chosen.unpack)
        counts = unpack(chosen.source, chosen.target, kind) if chosen.unpack else \
            pack(chosen.source, chosen.target, kind, chosen.columns)
    except PackError as refusal:
        print(refusal, file=sys.stderr)
        return REFUSED
    except OSError as error:
        print(f"{error.filename or chosen.target}: {error.strerror}.", file=sys.stderr)
        return REFUSED
    print(f"{counts.good:,} texts, {counts.pairs:,} of them pairs, {counts.bad:,} bad, "
          f"{counts.bytes_written:,} bytes written to {chosen.target}")
    return SOME_BAD if counts.bad else 0


def pack(source: Path, target: Path, kind: str, columns: Sequence[str]) -> Counts:
    """Writes the texts of `source` as records. Raises PackError or OSError."""
    good = pairs = bad = 0
    with open(source, "rb") as file, _replaced(target) as out:
        for number, item in _texts(file, source, kind, columns):
            try:
                if isinstance(item, LineError):
                    raise item
                record = _record(item, number)
            except LineError as fault:
                print(f"{source}:{number}: {fault}", file=sys.stderr)
                bad += 1
                continue
            out.write(record)
            good += 1
            pairs += item.pair is not None
        size_bytes = out.tell()
    return Counts(good, pairs, bad, size_bytes)


def unpack(source: Path, target: Path, kind: str) -> Counts:
    """Writes the records of `source` as texts. Raises PackError or OSError."""
    good = pairs = bad = 0

    def sound() -> Iterator[TextItem]:
        nonlocal good, pairs, bad
        for number, item in enumerate(_records(source)):
            try:
                if isinstance(item, LineError):
                    raise item
                if kind == "tsv":
                    write_tsv(item)  # may be a text that TSV cannot hold
            except LineError as fault:
                print(f"{source}: record {number}: {fault}", file=sys.stderr)
                bad += 1
                continue
            good += 1
            pairs += item.pair is not None
            yield item

    with _replaced(target) as out:
        lines = write_csv(sound()) if kind == "csv" else \
            map(write_tsv if kind == "tsv" else write_jsonl, sound())
        out.writelines(lines)
        size_bytes = out.tell()
    return Counts(good, pairs, bad, size_bytes)


def _kind(source: Path, target: Path, is_unpacking: bool) -> str:
    path = target if is_unpacking else source
    kind = path.suffix.lower().removeprefix(".")
    if kind not in TEXT_FORMATS:
        raise PackError(f"{path}: its name does not end in .tsv, .jsonl or .csv; say --format, or "
                        "--unpack to read a record file.")
    return kind


def _texts(file: BinaryIO, source: Path, kind: str, columns: Sequence[str]
           ) -> Iterator[tuple[int, TextItem | LineError]]:
    if kind == "csv":
        try:
            ignored, rows = read_csv(file)
        except LineError as fault:
            raise PackError(f"{source}: {fault}; name the columns text, text_pair and user_id.") \
                from None
        if ignored:
            print(f"{source}: not read: the columns {', '.join(ignored)}", file=sys.stderr)
        yield from rows
        return
    for number, line in numbered_lines(file):
        if line is None:
            yield number, LineError("the line is too long")
            continue
        try:
            yield number, read_jsonl(line) if kind == "jsonl" else read_tsv(line, columns)
        except LineError as fault:
            yield number, fault


def _record(item: TextItem, number: int) -> bytes:
    if isinstance(item.user_id, str):
        raise LineError(f"the user_id {item.user_id[:40]!r} is a text; a record's is a number")
    record = write_record(item.text.encode("utf-8"),
                          None if item.pair is None else item.pair.encode("utf-8"),
                          number if item.user_id is None else item.user_id)
    if len(record) > LARGEST_IN_FILE:
        raise LineError(f"the text is longer than the {LARGEST_IN_FILE} bytes of a record")
    return record


def _records(source: Path) -> Iterator[TextItem | LineError]:
    records = RecordFile(os.open(source, os.O_RDONLY | os.O_CLOEXEC))
    try:
        first = 0
        while len(offsets := records.index(first, SLICE_RECORDS)) > 1:
            while len(offsets) > 2 and offsets[-1] - offsets[0] > SLICE_BYTES:
                del offsets[len(offsets) // 2 + 1:]
            for record in records.read(offsets):
                try:
                    pair = None if record.pair is None else record.pair.decode("utf-8")
                    yield TextItem(record.text.decode("utf-8"), pair, record.user_id)
                except UnicodeDecodeError:
                    yield LineError("not UTF-8")
            first += len(offsets) - 1
    except WireError as error:
        raise PackError(f"{source}: {error}; nothing was written.") from None
    finally:
        records.close()


@contextlib.contextmanager
def _replaced(target: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of `target` at the end, if all went well."""
    part = target.with_name(target.name + ".part")
    try:
        with open(part, "wb") as file:
            yield file
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
