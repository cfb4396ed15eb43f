"""Texts in a CSV file with a line of column names; a text may run over several lines."""

import csv
from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple

from server.body import TextItem
from tools.texts.formats import FIELDS, LONGEST_LINE_BYTES, LineError, item_of


class CsvTexts(NamedTuple):
    """`ignored` are the columns that are not read; `rows` gives (line number, text or the fault),
    where the number is that of the row's first line."""

    ignored: list[str]
    rows: Iterator[tuple[int, TextItem | LineError]]


def read_csv(file: BinaryIO) -> CsvTexts:
    """The texts of a CSV file in UTF-8 (RFC 4180, any line ends). Raises LineError for a head that
    names no text column."""
    csv.field_size_limit(LONGEST_LINE_BYTES)
    # What is not UTF-8 becomes surrogates, which the field that holds them is refused for.
    reader = csv.reader((line.decode("utf-8", "surrogateescape") for line in file), strict=True)
    try:
        names = [name.removeprefix("\ufeff").strip() for name in next(reader, [])]
    except csv.Error as error:
        raise LineError(f"the first line is no CSV: {error}") from None
    if "text" not in names:
        raise LineError(f"the first line names no column text, only {', '.join(names)[:80]!r}")
    for field in FIELDS:
        if names.count(field) > 1:
            raise LineError(f"the first line names the column {field} twice")
    return CsvTexts([name for name in names if name not in FIELDS], _rows(reader, names))


def write_csv(items: Iterable[TextItem]) -> Iterator[bytes]:
    """The lines of a CSV file with all FIELDS, its head first."""
    made: list[str] = []

    class Sink:
        """Takes what csv writes, a row at a time."""

        write = staticmethod(made.append)

    # Left to itself csv does not quote a carriage return, which it then refuses to read.
    writer = csv.writer(Sink(), lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerow(FIELDS)
    yield made.pop().encode("utf-8")
    for item in items:
        writer.writerow([item.text, item.pair or "", "" if item.user_id is None else item.user_id])
        yield made.pop().encode("utf-8")


def _rows(reader: Iterator[list[str]], names: list[str]
          ) -> Iterator[tuple[int, TextItem | LineError]]:
    while True:
        number = reader.line_num + 1
        try:
            values = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield number, LineError(f"no CSV: {error}")
            continue
        try:
            yield number, _item(values, names)
        except LineError as fault:
            yield number, fault


def _item(values: list[str], names: list[str]) -> TextItem:
    if len(values) != len(names):
        raise LineError(f"{len(values)} columns instead of {len(names)}")
    for value in values:
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise LineError("not UTF-8") from None
    return item_of(dict(zip(names, values)))
