"""HTTP/1.1 requests as a pure state machine: bytes go in, events come out (RFC 9112, strictly).

`feed` takes bytes; `next_event` gives a Head as soon as a request's header is complete, then one
Body when all of its content is there (also for a request without content), then the next Head.
None says that more bytes are needed, or, where `has_more` is set, that a bounded share of the work
is done and the call is to be repeated. Whoever pulls decides how far pipelined requests are read;
what was not pulled stays in the buffer. A fault of framing raises ProtocolError, after which the
parser is of no use: nobody can say where the next request begins.

How bytes are cut makes no difference to the events, because a line is judged when it is complete or
as long as it may become, and lines are judged in order. A head that arrives whole takes a short cut
that knows only sound heads; whatever it does not know is judged line by line. Heads that were found
sound are remembered by their bytes, since clients repeat themselves.

    LINE ─► FIELDS ─┬─ Content-Length, or none ──────────► LENGTH ─────────────────────► LINE
                    └─ chunked ─► SIZE ─► DATA ─► SIZE … ─ size 0 ─► TRAILERS ─────────► LINE
"""

import re
from typing import NamedTuple

from server.http1_head import (ALL_FIELDS, FIELD, REQUEST_LINE, Head, ProtocolError, add_field, bad,
                               field_fault, make_head, read_request_line)

REQUEST_LINE_BYTES = 8 << 10
FIELDS_BYTES = 32 << 10
FIELDS_COUNT = 100
CHUNK_LINE_BYTES = 1 << 10
CHUNK_EXTENSIONS_BYTES = 8 << 10   # of all chunks of a request together
CHUNKS_A_STEP = 500                # about 1 ms
# Heads longer than this are not remembered, and so many are: 3 MB at most.
KNOWN_HEAD_BYTES = 1 << 10
KNOWN_HEADS = 1 << 10

LINE, FIELDS, LENGTH, SIZE, DATA, TRAILERS = range(6)

_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})([ \t]*;[\t\x20-\x7e\x80-\xff]*)?")


class Body(NamedTuple):
    """The content of a request whose Head came before, and the trailers of a chunked one."""

    content: bytes
    trailers: dict[bytes, bytes]


_NO_CONTENT = Body(b"", {})


class Parser:
    """The requests of one connection. `known` is where sound heads are remembered; connections
    may share it. `started` says that bytes of an unfinished request are there."""

    def __init__(self, body_limit: int, known: dict[bytes, Head] | None = None) -> None:
        self.body_limit = body_limit
        self.has_more = False
        self.started = False        # an attribute, because it is asked for several times a request
        self._known = {} if known is None else known
        self._buffer = bytearray()
        self._state = LINE
        self._blank_seen = False
        self._begin_request()

    def _begin_request(self) -> None:
        self._at = 0            # where the next line begins
        self._scan = 0          # before here there is no end of that line
        self._fields_bytes = 0  # in this head so far, then in its trailers
        self._fields_count = 0
        self._extension_bytes = 0
        self._fields: dict[bytes, bytes] = {}

    @property
    def buffered(self) -> int:
        """Bytes held: of the unfinished request, and of what was not pulled."""
        held = len(self._buffer)
        return held + len(self._content) if self._state >= SIZE else held

    def feed(self, data: bytes) -> None:
        """Takes the next bytes of the connection."""
        self._buffer += data
        self.started = self.started or bool(data)

    def discard(self) -> None:
        """Gives back the memory of a request that is not wanted; nothing can be parsed after it."""
        self._buffer = self._content = bytearray()

    def next_event(self) -> Head | Body | None:
        """The next event, or None. Raises ProtocolError."""
        try:
            return self._next_event()
        finally:
            self.started = self._state != LINE or bool(self._buffer)

    def _next_event(self) -> Head | Body | None:
        self.has_more = False
        if self._state == LENGTH:
            return self._read_content()
        if self._state == LINE:
            if not self._buffer:
                return None
            if self._scan == 0:
                head = self._whole_head()
                if head is not None:
                    return head
            if not self._read_request_line():
                return None
        if self._state == FIELDS:
            return self._read_head() if self._read_fields("headers") else None
        return self._read_chunks()

    # -- Head ------------------------------------------------------------------------------------

    def _whole_head(self) -> Head | None:
        """The short cut: a sound head that lies in the buffer whole; None says: line by line."""
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0 or end > FIELDS_BYTES:
            return None
        raw = bytes(self._buffer[:end + 4])
        head = self._known.get(raw)
        if head is None:
            line, _, block = raw[:-2].partition(b"\r\n")
            matched = REQUEST_LINE.fullmatch(line)
            if (matched is None or matched.group(3) != b"1" or len(line) > REQUEST_LINE_BYTES - 2
                    or not ALL_FIELDS.fullmatch(block)):
                return None
            lines = block.split(b"\r\n")
            if len(lines) > FIELDS_COUNT:
                return None
            lines.pop()
            fields: dict[bytes, bytes] = {}
            for field in lines:
                add_field(fields, field)
            head = make_head(matched, fields)
            self._remember(raw, head)
        del self._buffer[:end + 4]
        return self._enter_body(head)

    def _read_request_line(self) -> bool:
        """Judges the request line; False where it is not complete."""
        if self._buffer[0] == 13 and not self._blank_seen:  # RFC 9112 2.2: ignore an empty line
            if len(self._buffer) == 1:
                return False
            if self._buffer[1] != 10:
                raise bad("the request begins with a bare CR; end lines with CR LF")
            self._blank_seen = True
            del self._buffer[:2]
            self._scan = 0
            if not self._buffer:
                return False
        if not 33 <= self._buffer[0] <= 126:
            raise bad("the request does not begin with a method; this port speaks plain HTTP/1.1")
        line = self._next_line(REQUEST_LINE_BYTES, 414, "uri_too_long", "the request line")
        if line is None:
            return False
        self._line = read_request_line(line)
        self._state = FIELDS
        return True

    def _read_fields(self, what: str) -> bool:
        """Judges field lines up to the empty one; False where that has not come."""
        while True:
            line = self._next_line(FIELDS_BYTES - self._fields_bytes, 431, "headers_too_large",
                                   f"the {what} of the request", FIELDS_BYTES)
            if line is None:
                return False
            if not line:
                return True
            self._fields_bytes += len(line) + 2
            self._fields_count += 1
            if self._fields_count > FIELDS_COUNT:
                raise ProtocolError(431, "headers_too_large", f"the {what} of the request have "
                                    f"more than {FIELDS_COUNT} fields; send fewer")
            if not FIELD.fullmatch(line):
                raise bad(field_fault(line))
            add_field(self._fields, line)

    def _read_head(self) -> Head:
        head = make_head(self._line, self._fields)
        if not self._blank_seen:
            self._remember(bytes(self._buffer[:self._at]), head)
        del self._buffer[:self._at]
        return self._enter_body(head)

    def _remember(self, raw: bytes, head: Head) -> None:
        if len(raw) <= KNOWN_HEAD_BYTES:
            if len(self._known) >= KNOWN_HEADS:
                self._known.clear()
            self._known[raw] = head

    def _enter_body(self, head: Head) -> Head:
        self._begin_request()
        self._blank_seen = False
        if head.chunked:
            self._state = SIZE
            self._content = bytearray()
            self._remaining = 0
        else:
            self._state = LENGTH
            self._remaining = head.content_length or 0
        return head

    # -- Body ------------------------------------------------------------------------------------

    def _read_content(self) -> Body | None:
        size = self._remaining
        if not size:
            self._state = LINE
            return _NO_CONTENT
        if size > self.body_limit:
            raise self._too_large()
        buffer = self._buffer
        held = len(buffer)
        if held < size:
            return None
        self._state = LINE
        if held == size:
            self._buffer = bytearray()
            return Body(bytes(buffer), {})
        content = bytes(memoryview(buffer)[:size])
        del buffer[:size]
        return Body(content, {})

    def _read_chunks(self) -> Body | None:
        for _ in range(CHUNKS_A_STEP):
            if self._state == SIZE and not self._read_chunk_line():
                return None
            if self._state == TRAILERS:
                if not self._read_fields("trailers"):
                    return None
                del self._buffer[:self._at]
                trailers, content = self._fields, bytes(self._content)
                self._content = bytearray()
                self._begin_request()
                self._state = LINE
                return Body(content, trailers)
            if not self._read_chunk_data():
                return None
        self.has_more = True
        return None

    def _read_chunk_line(self) -> bool:
        line = self._next_line(CHUNK_LINE_BYTES, 400, "bad_request", "the line of a chunk")
        if line is None:
            return False
        matched = _CHUNK_LINE.fullmatch(line)
        if matched is None:
            raise bad("a chunk must begin with its size in hexadecimal digits and CR LF")
        size, extension = int(matched.group(1), 16), matched.group(2)
        if extension:
            self._extension_bytes += len(extension)
            if self._extension_bytes > CHUNK_EXTENSIONS_BYTES:
                raise bad(f"chunk extensions hold more than {CHUNK_EXTENSIONS_BYTES} bytes; "
                           "leave them out")
        if len(self._content) + size > self.body_limit:
            raise self._too_large()
        self._remaining = size
        self._state = DATA if size else TRAILERS
        if size:
            del self._buffer[:self._at]
            self._at = self._scan = 0
        return True

    def _read_chunk_data(self) -> bool:
        """Moves what is there of a chunk to the content; True after the CR LF behind it."""
        buffer, size = self._buffer, self._remaining
        if size:
            part = buffer[:size]
            self._content += part
            self._remaining -= len(part)
            del buffer[:size]
            if self._remaining:
                return False
        if buffer[:2] != b"\r\n":
            if len(buffer) < 2 and b"\r\n".startswith(buffer):
                return False
            raise bad("the data of a chunk must end with CR LF after as many bytes as it says")
        del buffer[:2]
        self._state = SIZE
        return True

    def _too_large(self) -> ProtocolError:
        return ProtocolError(413, "too_large", f"the body is longer than {self.body_limit} bytes; "
                             "send less at a time")

    def _next_line(self, limit: int, status: int, code: str, what: str,
                   named_limit: int | None = None) -> bytes | None:
        """The next line without its CR LF; None where its end has not come.

        Refuses a line of more than `limit` bytes, CR LF among them, whether or not its end is
        there; the answer is the same either way.
        """
        end = self._buffer.find(b"\n", self._scan)
        size = (end + 1 if end >= 0 else len(self._buffer) + 1) - self._at
        if size > limit:
            raise ProtocolError(status, code, f"{what} must not be longer than "
                                f"{named_limit or limit} bytes")
        if end < 0:
            self._scan = len(self._buffer)
            return None
        line = bytes(self._buffer[self._at:end + 1])
        if not line.endswith(b"\r\n"):
            raise bad("a line ends with a bare LF; end lines with CR LF")
        self._at = self._scan = end + 1
        return line[:-2]
