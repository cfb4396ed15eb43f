"""What a request's header means: its target, its host, where its body ends (RFC 9112, 9110).

Pure grammar over lines that are already cut; server/http1.py cuts them and keeps the state.
"""

import re
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from server.errors import ClientError

TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
VALUE = rb"[^\x00-\x08\x0a-\x1f\x7f]*"
REQUEST_LINE = re.compile(rb"(" + TOKEN + rb") ([\x21-\x7e]+) HTTP/([0-9])\.([0-9])")
FIELD = re.compile(TOKEN + rb":" + VALUE)
ALL_FIELDS = re.compile(rb"(?:" + TOKEN + rb":" + VALUE + rb"\r\n)*")
_VERSION = re.compile(rb".* HTTP/[0-9]\.[0-9]", re.DOTALL)
_ABSOLUTE = re.compile(rb"https?://([^/?]*)([^?]*)(.*)", re.IGNORECASE)
_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
# RFC 3986 3.2.2 without the comma, so that two Host fields never join to a valid one.
_HOST = re.compile(rb"(?:\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z._~!$&'()*+;=%-]*)(?::[0-9]*)?")


class ProtocolError(ClientError):
    """Bytes that are not HTTP, or go past a limit of framing; the connection is to be closed."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(status, code, message, close=True)


@dataclass(eq=False, slots=True)
class Head:
    """The header of a request; shared between equal requests, so never to be changed.

    `segments` are the parts of the path between slashes, percent-decoded one by one (none for `*`
    and CONNECT); `query` is what follows the first `?`, as sent. `fields` maps lower-case names to
    values; repeated fields are joined by ", ". `host` is the authority that the client named.
    `expect` is "", "100-continue" or "unknown".
    """

    method: str
    target: str
    segments: tuple[str, ...]
    query: str
    minor: int                    # of version 1.x; above 1 is read as 1
    fields: dict[bytes, bytes]
    host: str
    keep_alive: bool
    expect: str
    content_length: int | None    # None where the request does not say
    chunked: bool


def read_request_line(line: bytes) -> re.Match[bytes]:
    """Groups method, target, major, minor of a sound request line; else ProtocolError."""
    matched = REQUEST_LINE.fullmatch(line)
    if matched is None:
        if not _VERSION.fullmatch(line):
            raise bad("the request line must be METHOD SP TARGET SP HTTP/1.1")
        raise bad("the method must be a token and the target visible ASCII without blanks")
    if matched.group(3) != b"1":
        version = b".".join(matched.group(3, 4)).decode()
        raise ProtocolError(505, "version_not_supported",
                            f"HTTP/{version} is not spoken here; use HTTP/1.1 or 1.0")
    return matched


def add_field(fields: dict[bytes, bytes], line: bytes) -> None:
    """Adds a header line that matches FIELD."""
    name, _, value = line.partition(b":")
    name, value = name.lower(), value.strip(b" \t")
    there = fields.get(name)
    fields[name] = value if there is None else there + b", " + value


def make_head(line: re.Match[bytes], fields: dict[bytes, bytes]) -> Head:
    """The Head of a request line and all fields; judges what they mean together."""
    method, target, _, minor = line.groups()
    segments, query, authority = _read_target(method, target)
    host = fields.get(b"host")
    if host is None and minor != b"0":
        raise bad("the Host field is missing; HTTP/1.1 requires it")
    if host and not _HOST.fullmatch(host):
        raise bad("the Host field must be there once and be a host with an optional port")
    content_length, chunked = _read_framing(fields, minor)
    connection = fields.get(b"connection", b"").lower()
    options = [option.strip() for option in connection.split(b",")] if connection else ()
    keep_alive = b"close" not in options and (minor != b"0" or b"keep-alive" in options)
    expect = fields.get(b"expect", b"").lower() if minor != b"0" else b""
    return Head(method.decode(), target.decode(), segments, query, min(int(minor), 1), fields,
                (authority or host or b"").decode(), keep_alive,
                "unknown" if expect and expect != b"100-continue" else expect.decode(),
                content_length, chunked)


def _read_target(method: bytes, target: bytes) -> tuple[tuple[str, ...], str, bytes | None]:
    """(segments, query, authority of an absolute target) (RFC 9112 3.2)."""
    if method == b"CONNECT" or target == b"*" and method == b"OPTIONS":
        return (), "", None
    authority = None
    if b"#" in target:
        raise bad("the target must not hold a fragment (#); percent-encode it")
    path, _, query = target.partition(b"?")
    if path[:1] != b"/":
        matched = _ABSOLUTE.fullmatch(target)
        if matched is None:
            raise bad("the target must begin with / or be an http URL")
        authority, path, query = matched.groups()
        if not authority or not _HOST.fullmatch(authority) or authority[:1] == b":":
            raise bad("the URL in the request line names no valid host")
        path, query = path or b"/", query[1:]
    if b"%" not in path:
        return tuple(path[1:].decode().split("/")), query.decode(), authority
    if _BAD_ESCAPE.search(path):
        raise bad("a % in the path must be followed by two hexadecimal digits")
    try:
        # Split first: an encoded slash belongs to its segment.
        segments = [unquote_to_bytes(part).decode() for part in path[1:].split(b"/")]
    except UnicodeDecodeError:
        raise bad("the path is not UTF-8 after percent-decoding") from None
    return tuple(segments), query.decode(), authority


def _read_framing(fields: dict[bytes, bytes], minor: bytes) -> tuple[int | None, bool]:
    """(content length or None, chunked): where the request ends (RFC 9112 6.3)."""
    length, coding = fields.get(b"content-length"), fields.get(b"transfer-encoding")
    if coding is not None:
        if length is not None:
            raise bad("Content-Length and Transfer-Encoding exclude each other; send one")
        if minor == b"0":
            raise bad("HTTP/1.0 knows no Transfer-Encoding; send Content-Length")
        codings = [part.strip(b" \t").lower() for part in coding.split(b",")]
        if codings[-1] != b"chunked" or b"chunked" in codings[:-1]:
            raise bad("Transfer-Encoding must be chunked, once and last")
        if len(codings) > 1:
            raise ProtocolError(501, "not_implemented",
                                "of transfer codings this server knows chunked alone")
        return None, True
    if length is None:
        return None, False
    lengths = {part.strip(b" \t") for part in length.split(b",")}
    digits = lengths.pop()
    if lengths or not digits.isdigit():
        raise bad("Content-Length must be one number of decimal digits")
    # Twenty digits are more than any limit; the reading of a longer number takes quadratic time.
    return int(digits.lstrip(b"0")[:20] or b"0"), False


def field_fault(line: bytes) -> str:
    """Why a header line is no field."""
    if line[:1] in (b" ", b"\t"):
        return "a header line begins with a blank (line folding); write each field on one line"
    name, colon, value = line.partition(b":")
    if not colon:
        return "a header line has no colon"
    if name.endswith((b" ", b"\t")):
        return "there is a blank between a field name and its colon; leave it out"
    if re.fullmatch(TOKEN, name):
        return "a field value holds a control character (CR, LF, NUL or another)"
    return "a field name is empty or holds a character that is not allowed"


def bad(message: str) -> ProtocolError:
    """The error of bytes that are not HTTP."""
    return ProtocolError(400, "bad_request", message)
