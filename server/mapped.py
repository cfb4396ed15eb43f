"""Records in windows: large bodies of records and mapped files, a bounded number in flight.

A window is one group in flight; its answers leave in order. A body's answers are collected and sent
whole, a file's are streamed as they come. The file is read by pread, not through a mapping, because
a page of a mapping whose file was cut is the death of the process (loader/wire.py).

`Windows.run` is a generator: it yields None between bounded pieces of work, and PARKED where it
waits for a window to end, for the client to read, or for its turn on the connection; then `wake`
is called with it.
"""

import json
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

from loader.errors import WireError
from loader.wire import NOT_UTF8, OK, TOO_LONG, Record, RecordFile, Walk
from server.actions import Outcome
from server.answer import Row
from server.classify import PIECE_CHARACTERS, TEXT_CHARACTERS, Classifier, last_finished
from server.connection import WAITING_BYTES, Exchange
from server.errors import ClientError
from server.http1_answer import LAST_CHUNK, chunk
from server.inflight import NEVER
from server.messages import LOW
from server.messages import Row as JobRow
from server.replies import JSON, outcome_error

RECORDS_TYPE = b"application/x-firebrick-records"
WINDOW_RECORDS = 256
WINDOW_BYTES = 1 << 20      # of a window of a file; one record may be larger
BODY_WINDOWS = 16           # in flight at a time
FILE_WINDOWS = 4
STEP_RECORDS = 2000         # looked for at a time, less than a millisecond
FILE_BODY_BYTES = 4 << 10
PARKED = "parked"


class Source(Protocol):
    """Where records come from. All methods raise ClientError or WireError."""

    def find(self) -> Iterator[None]:
        """Finds the first record, in bounded steps."""

    def take(self, limit: int) -> list[Record]:
        """The next records, at most `limit`; none at the end."""

    def close(self) -> None:
        """Gives up what is held open."""


class BodySource:
    """The records of a request's body; none of them counts if one is unsound."""

    def __init__(self, body: bytes) -> None:
        self._walk = Walk(body)
        self._is_empty = not body
        self._taken = 0

    def find(self) -> Iterator[None]:
        if self._is_empty:
            raise WireError("there is no record in an empty body")
        while not self._walk.step(STEP_RECORDS):
            yield

    def take(self, limit: int) -> list[Record]:
        first = self._taken
        self._taken = min(first + limit, len(self._walk.starts))
        return [self._walk.record(at) for at in range(first, self._taken)]

    def close(self) -> None:
        """Nothing is held open."""


class FileSource:
    """`count` records of a file from record `first` on, fewer where it ends before."""

    def __init__(self, folder: str, content: bytes) -> None:
        name, self._at, self._left = read_file_request(content)
        try:
            self._file = RecordFile.open(folder, name)
        except FileNotFoundError:
            raise ClientError(404, "not_found", f"{name[:80]!r} is not in the folder of "
                              "records") from None
        except (OSError, UnicodeEncodeError):
            raise ClientError(400, "invalid_field", f"{name[:80]!r} cannot be opened as a plain "
                              "file") from None
        except WireError as error:
            raise ClientError(400, "invalid_field", str(error)) from None

    def find(self) -> Iterator[None]:
        while not self._file.reach(self._at, STEP_RECORDS):
            yield

    def take(self, limit: int) -> list[Record]:
        offsets = self._file.index(self._at, min(limit, self._left))
        last = 1
        while last < len(offsets) - 1 and offsets[last + 1] - offsets[0] <= WINDOW_BYTES:
            last += 1
        records = self._file.read(offsets[:last + 1])
        self._at += len(records)
        self._left -= len(records)
        return records

    def close(self) -> None:
        self._file.close()


def read_file_request(content: bytes) -> tuple[str, int, int]:
    """(file, first, count) of a body that names a file. Raises ClientError."""
    def pairs(items: list[tuple[str, object]]) -> dict[str, object]:
        if len({key for key, _ in items}) < len(items):
            raise ClientError(400, "invalid_field", "a key is given twice; send it once")
        return dict(items)

    if len(content) > FILE_BODY_BYTES:
        raise ClientError(413, "too_large", f"a body that names a file has at most "
                          f"{FILE_BODY_BYTES} bytes")
    try:
        body = json.loads(content, object_pairs_hook=pairs)
    except UnicodeDecodeError:
        raise ClientError(400, "invalid_utf8", "the body is not UTF-8") from None
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise ClientError(400, "invalid_json",
                          'the body must be like {"file": "name", "first": 0, "count": 1000}')
    unknown = body.keys() - {"file", "first", "count"}
    if unknown:
        raise ClientError(400, "invalid_field", f"{min(unknown)[:40]!r} is not a key of this "
                          "request; the keys are file, first and count")
    if not isinstance(body.get("file"), str):
        raise ClientError(400, "invalid_field", "file must be the name of a file")
    numbers = {"first": 0, "count": 1 << 62}
    for key, low in (("first", 0), ("count", 1)):
        value = body.get(key)
        if value is not None:
            if type(value) is not int or not low <= value < 1 << 62:
                raise ClientError(400, "invalid_field", f"{key} must be an integer of at least "
                                  f"{low}")
            numbers[key] = value
    return body["file"], numbers["first"], numbers["count"]


class Window:
    """Some records that are in flight together."""

    __slots__ = ("owner", "rows", "jobs", "group", "opened_at", "retry_at", "outcome")

    def __init__(self, owner: "Windows", rows: list[Row], jobs: list[JobRow]) -> None:
        self.owner = owner
        self.rows = rows            # in order; those not OK have no job
        self.jobs = jobs
        self.group = 0
        self.opened_at = 0.0
        self.retry_at = NEVER
        self.outcome: Outcome | None = None if jobs else Outcome("ok")


class Windows:
    """Works through a source for one exchange. `wake` is called when a parked run can go on."""

    def __init__(self, classifier: Classifier, exchange: Exchange, source: Source,
                 is_streamed: bool, wake: Callable[["Windows"], None]) -> None:
        self.exchange = exchange
        self.is_parked = False
        self.task = self.run()
        self._classifier = classifier
        self._source = source
        self._is_streamed = is_streamed
        self._is_chunked = False
        self._wake = wake
        self._windows: deque[Window] = deque()
        self._parts: list = []          # answers of a body: bytes, or str for JSON
        self._first: tuple | None = None
        self._has_ended_one = False
        self._tokenize_s = 0.0
        self._last: tuple | None = None  # (result, tokens) that came last
        self.is_over = False
        self._is_all_taken = False

    def run(self) -> Iterator[str | None]:
        """The work, from the first record to the last answer."""
        try:
            yield from self._source.find()
            while True:
                while not self._may_go_on():
                    self.is_parked = True
                    yield PARKED
                records = self._source.take(WINDOW_RECORDS)
                if not records:
                    break
                window = yield from self._tokenise(records)
                self._windows.append(window)
                if window.jobs:
                    self._open(window)
                else:
                    self._collect()
            self._is_all_taken = True
            while not self._may_go_on():
                self.is_parked = True
                yield PARKED
            self._end()
        except WireError as error:
            self._fail(ClientError(400, "invalid_records", str(error)))
        finally:
            self._source.close()

    def resume(self) -> None:
        """Wakes the run if it is parked and what it waits for is there."""
        if self.is_parked and not self.is_over and self._may_go_on():
            self.is_parked = False
            self._wake(self)

    def _may_go_on(self) -> bool:
        if self._is_all_taken:
            return not self._windows
        connection = self.exchange.connection
        if self._is_streamed:
            return (len(self._windows) < FILE_WINDOWS
                    and connection.waiting_bytes <= WAITING_BYTES
                    and connection.exchanges[0] is self.exchange)
        return len(self._windows) < BODY_WINDOWS

    def _tokenise(self, records: list[Record]) -> Iterator[None]:
        rows: list[Row] = []
        jobs: list[JobRow] = []
        classifier, piece = self._classifier, 0
        begun = time.perf_counter()
        for text, pair, user_id in records:
            if pair is not None and not classifier.takes_pairs:
                raise WireError("a record holds a pair, and this model takes one text")
            piece += TEXT_CHARACTERS + len(text)
            if piece > PIECE_CHARACTERS:
                piece = 0
                self._tokenize_s += time.perf_counter() - begun
                yield
                begun = time.perf_counter()
            try:
                job, was_cut = classifier.encode(text.decode(), pair and pair.decode())
            except UnicodeDecodeError:
                rows.append(Row(user_id, 0, False, None, NOT_UTF8))
                continue
            if classifier.may_take(was_cut):
                jobs.append(job)
                rows.append(Row(user_id, job.tokens, was_cut, None, OK))
            else:
                rows.append(Row(user_id, job.tokens, was_cut, None, TOO_LONG))
        self._tokenize_s += time.perf_counter() - begun
        return Window(self, rows, jobs)

    def _open(self, window: Window) -> None:
        exchange = self.exchange
        window.opened_at = window.opened_at or time.monotonic()
        window.retry_at = NEVER
        window.group = self._classifier.open(
            window, exchange, window.jobs, LOW if self._is_streamed else exchange.plan.priority,
            is_partial=True)

    def ended(self, window: Window, outcome: Outcome, now: float) -> None:
        """A window's group came to its end."""
        window.group = 0
        if outcome.kind == "ok":
            window.outcome = outcome
            self._has_ended_one = True
            self._collect()
            self.resume()
        elif outcome.kind == "refused" and outcome.reason != "deadline" and (
                self._has_ended_one or window is not self._windows[0]
                or self._is_streamed) and self._may_wait(window, now):
            window.retry_at = now + max(outcome.retry_ms, 10) / 1000
        else:
            self.fail(outcome)

    def _may_wait(self, window: Window, now: float) -> bool:
        return now - window.opened_at < self._classifier.inflight.limits.max_age_s

    def next_timer(self) -> float:
        """When `tick` has a refused window to try again."""
        return min((window.retry_at for window in self._windows), default=NEVER)

    def tick(self, now: float) -> None:
        """Tries refused windows again."""
        for window in self._windows:
            if window.retry_at <= now:
                self._open(window)

    def _collect(self) -> None:
        """Moves the answers of windows that are done, in order."""
        while self._windows and self._windows[0].outcome is not None:
            window = self._windows.popleft()
            answers = self._judge(window)
            if not self._is_streamed:
                self._parts += answers
                continue
            data = b"".join(answers)
            if not self.exchange.status:
                self._start_stream()
            self.exchange.connection.stream(chunk(data) if self._is_chunked else data)

    def _judge(self, window: Window) -> list:
        classifier, answers = self._classifier, []
        wants_json = self.exchange.plan.wants_json and not self._is_streamed
        results = iter(window.outcome.results)
        renderer = classifier.renderer
        for row in window.rows:
            winner = None
            if row.status == OK:
                row, winner = classifier.judge(row[:3], next(results))
            if not wants_json:
                answers.append(renderer.record(row.user_id, row, winner))
                continue
            if self._first is None:
                self._first = row, winner
            answers.append(renderer.result(row, winner))
        if window.jobs:
            at = last_finished(window.outcome.results)
            if window.outcome.results[at] is not None:
                self._last = window.outcome.results[at], window.jobs[at].tokens
        return answers

    def _fields(self, now: float) -> bytes:
        fields = b"X-Labels: %b\r\n" % self._classifier.renderer.labels_header.encode()
        if self._last is not None:
            fields += self._classifier.timing_fields(
                *self._last, self._tokenize_s * 1000,
                (now - self.exchange.received_at) * 1000)
        return fields

    def _start_stream(self) -> None:
        now = time.monotonic()
        self._is_chunked = self._classifier.replies.start_stream(
            self.exchange, RECORDS_TYPE, now, self._fields(now))

    def _end(self) -> None:
        """All answers are there."""
        exchange, replies = self.exchange, self._classifier.replies
        self.is_over = True
        self._classifier.counters.tokenize_seconds.observe(self._tokenize_s)
        if self._is_streamed:
            if not exchange.status:
                self._start_stream()
            exchange.connection.end_stream(exchange, LAST_CHUNK if self._is_chunked else b"")
            return
        now = time.monotonic()
        fields = self._fields(now)
        exchange.stream = None
        if not exchange.plan.wants_json:
            replies.send(exchange, 200, b"".join(self._parts), RECORDS_TYPE, now, fields)
            return
        latency_ms = max(0.0, now - exchange.received_at) * 1000
        renderer, trace = self._classifier.renderer, self._classifier.replies.trace_id(exchange)
        if len(self._parts) == 1:
            content = renderer.one(*self._first, False, None, trace, latency_ms)
        else:
            content = renderer.join(self._parts, trace, latency_ms)
        replies.send(exchange, 200, content, JSON, now, fields, latency_ms)

    def fail(self, outcome: Outcome) -> None:
        """Ends the request with what is not "ok"."""
        self._fail(outcome_error(outcome)[0])

    def _fail(self, error: ClientError) -> None:
        """Ends the request: by an error, or the connection if the answer has begun."""
        exchange = self.exchange
        self.abandon()
        if exchange.is_gone:
            return
        if exchange.status:
            exchange.connection.is_gone = True
        else:
            exchange.stream = None
            self._classifier.replies.refuse(exchange, error, time.monotonic())

    def abandon(self) -> None:
        """Gives up all windows in flight."""
        self.is_over = True
        for window in self._windows:
            if window.group:
                self._classifier.abandon(window.group)
        self._windows.clear()
