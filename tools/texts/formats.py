"""One text to a line: JSONL and TSV, read strictly and written so that they read back the same."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO

from server.body import USER_ID_LIMIT, TextItem, read_json
from server.errors import ClientError

LONGEST_LINE_BYTES = 16 << 20
FIELDS = ("text", "text_pair", "user_id")

# Turns a line without its end into a text. Raises LineError.
LineReader = Callable[[bytes], TextItem]


class LineError(ValueError):
    """A line or record that is no text: the reason, without its place."""


def read_columns(value: str) -> tuple[str, ...]:
    """The columns of a TSV file in order; those not in FIELDS are left out. ValueError without
    text, or with one of FIELDS twice."""
    names = tuple(value.split(","))
    if "text" not in names or any(names.count(field) > 1 for field in FIELDS):
        raise ValueError(value)
    return names


def numbered_lines(file: BinaryIO, first: int = 1) -> Iterator[tuple[int, bytes | None]]:
    """(number, line without its end); None for a line longer than LONGEST_LINE_BYTES."""
    number = first
    while line := file.readline(LONGEST_LINE_BYTES + 2):
        is_long = len(line.rstrip(b"\r\n")) > LONGEST_LINE_BYTES
        while is_long and line and not line.endswith(b"\n"):
            line = file.readline(LONGEST_LINE_BYTES)
        yield number, None if is_long else line.removesuffix(b"\n").removesuffix(b"\r")
        number += 1


def read_jsonl(line: bytes) -> TextItem:
    """{"text", "text_pair"?, "user_id"?}, by the rules of a request to the server."""
    try:
        body = read_json(line, 1)
    except ClientError as error:
        message = error.message.partition("; ")[0]  # what follows is advice on requests
        raise LineError(message.replace("the body", "the line").replace("the request", "the line")
                        .replace("a request", "a line")) from None
    if body.many or body.logits or body.top_k is not None:
        raise LineError("texts, logits and top_k belong to requests; a line has text, text_pair "
                        "and user_id")
    return body.texts[0]


def read_tsv(line: bytes, columns: Sequence[str]) -> TextItem:
    """The named columns; text must be there, others may be missing at the end of the line.

    Nothing is unescaped: a backslash is a backslash, and a text holds no tab.
    """
    try:
        values = line.decode("utf-8").split("\t")
    except UnicodeDecodeError as error:
        raise LineError(f"not UTF-8 at byte {error.start} of the line") from None
    if len(values) > len(columns):
        raise LineError(f"{len(values)} columns, but {len(columns)} are named "
                        f"({','.join(columns)}); name all of them with --columns")
    return item_of(dict(zip(columns, values)))


def item_of(values: dict[str, str]) -> TextItem:
    """A text out of its columns. Raises LineError."""
    if "text" not in values:
        raise LineError("there is no text in it")
    number = values.get("user_id")
    return TextItem(values["text"], values.get("text_pair") or None,
                    None if not number else _user_id(number))


def write_jsonl(item: TextItem) -> bytes:
    """The line, with its end, that `read_jsonl` reads as the same text."""
    fields = {"text": item.text, "text_pair": item.pair, "user_id": item.user_id}
    kept = {key: value for key, value in fields.items() if value is not None}
    return json.dumps(kept, ensure_ascii=False).encode("utf-8") + b"\n"


def write_tsv(item: TextItem) -> bytes:
    """The line of FIELDS, with its end. Raises LineError for a text that TSV cannot hold."""
    for text in (item.text, item.pair or ""):
        if any(mark in text for mark in "\t\n\r"):
            raise LineError("the text holds a tab or a line break, which TSV cannot; write JSONL")
    values = (item.text, item.pair or "", "" if item.user_id is None else str(item.user_id))
    return "\t".join(values).encode("utf-8") + b"\n"


def _user_id(value: str) -> int:
    if not value.isascii() or not value.isdecimal() or int(value[:21]) >= USER_ID_LIMIT:
        raise LineError(f"the user_id {value[:40]!r} is no whole number below 2^64")
    return int(value)
