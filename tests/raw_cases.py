"""The cases of tests/raw: read, and played through the parser in any cut."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from server.errors import ClientError
from server.http1 import Body, Head, Parser

FOLDER = Path(__file__).resolve().parent / "raw"
BODY_LIMIT = 4 << 20
SHOWN = 200


class Case(NamedTuple):
    """One pair of files."""

    name: str
    sent: bytes
    events: list[str]
    answers: list[tuple[int, bool]]   # (status, whether the connection ends with it)


def read_cases() -> list[Case]:
    """All cases, by name."""
    found = []
    for path in sorted(FOLDER.glob("*.http")):
        lines = path.with_suffix(".expect").read_text("utf-8").splitlines()
        answers = [line.split() for line in lines if line.startswith("answer ")]
        found.append(Case(path.stem, path.read_bytes(),
                          [line for line in lines if not line.startswith("answer ")],
                          [(int(words[1]), words[2:] == ["close"]) for words in answers]))
    return found


def show(event: Head | Body) -> str:
    """An event as a line of an .expect file."""
    if isinstance(event, Head):
        length = "chunked" if event.chunked else event.content_length
        expect = f" expect {event.expect}" if event.expect else ""
        return (f"head {event.method} {event.target[:SHOWN]} "
                f"{'keep-alive' if event.keep_alive else 'close'} {length}{expect}")
    size = len(event.content)
    return (f"body {event.content[:SHOWN]!r}" + (f" of {size} bytes" if size > SHOWN else "")
            + (f" trailers {len(event.trailers)}" if event.trailers else ""))


def play(pieces: Iterable[bytes], parser: Parser | None = None) -> list[str]:
    """What a parser makes of bytes that arrive in pieces."""
    parser = parser or Parser(BODY_LIMIT)
    seen = []
    try:
        for piece in pieces:
            parser.feed(piece)
            for event in pull(parser):
                seen.append(show(event))
    except ClientError as error:
        return [*seen, f"error {error.status} {error.code}"]
    return [*seen, "wait"] if parser.started else seen


def pull(parser: Parser) -> Iterator[Head | Body]:
    """All events that the bytes so far give."""
    while True:
        event = parser.next_event()
        if event is not None:
            yield event
        elif not parser.has_more:
            return
