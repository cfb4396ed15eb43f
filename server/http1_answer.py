"""The bytes of HTTP/1.1 answers (pure): status line, fields that every answer has, content."""

from http import HTTPStatus

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"

_NAMES = {413: "Content Too Large", 417: "Expectation Failed"}
_STARTS = {
    status.value: f"HTTP/1.1 {status.value} {_NAMES.get(status.value, status.phrase)}\r\n"
                  "Server: firebrick\r\nDate: ".encode()
    for status in HTTPStatus
}
_CLOSE = b"Connection: close\r\n"
_KEEP = b"Connection: keep-alive\r\n"
_NOTHING = b""


def answer_start(status: int, date: bytes, content_type: bytes) -> bytes:
    """How answers of a kind begin for a second; `date` is the Date field's value."""
    return b"%b%b\r\nContent-Type: %b\r\nContent-Length: " % (
        _STARTS[status], date, content_type)


def answer_bytes(start: bytes, latency_ms: bytes, trace_id: bytes, fields: bytes, content: bytes,
                 closes: bool = False, minor: int = 1, without_content: bool = False) -> bytes:
    """A whole answer.

    `start` is of `answer_start`, `latency_ms` a number, `fields` are further header lines, each
    with its CR LF; `closes` says Connection: close; a client of HTTP/1.0 (`minor` 0) is told when
    it does not; `without_content` leaves the content out but not its length (HEAD).
    """
    return b"%b%d\r\nX-Latency-ms: %b\r\n%bX-Trace-Id: %b\r\n%b\r\n%b" % (
        start, len(content), latency_ms, fields, trace_id,
        _CLOSE if closes else _NOTHING if minor else _KEEP,
        _NOTHING if without_content else content)


def stream_head(status: int, date: bytes, latency_ms: float, trace_id: bytes, content_type: bytes,
                fields: bytes, closes: bool, chunked: bool) -> bytes:
    """The header of an answer whose length is not known: chunked, or ended by the close."""
    return b"%b%b\r\nContent-Type: %b\r\n%bX-Latency-ms: %.3f\r\n%bX-Trace-Id: %b\r\n%b\r\n" % (
        _STARTS[status], date, content_type,
        b"Transfer-Encoding: chunked\r\n" if chunked else b"", latency_ms, fields, trace_id,
        _CLOSE if closes else _NOTHING)


def chunk(content: bytes) -> bytes:
    """One chunk; `content` is not empty, for an empty one would be the last."""
    return b"%x\r\n%b\r\n" % (len(content), content)
