"""A front without its process: clients and requests over sockets, a dispatcher by hand."""

import http.client
import io
import json
import os
import select
import socket
import struct
import time
from pathlib import Path

import pytest

from loader.prepare import map_file, prepare, seal
from loader.tokenizers.table import open_tokenizer
from model.families.echo import echo_logits
from model.families.table import FAMILIES
from model.grid import buckets
from server.actions import Answers, Finish, SendCancel, SendGroups
from server import codec
from server.cache import share_out
from server.classify import Classifier
from server.clients import Clients
from server.inflight import InFlight, Limits
from server.messages import (CACHE, RESULT_FAILED, RESULT_OK, Reason, Refusal, Refused, Result,
                             Results, State)
from server.metrics import Registry
from server.replies import Replies
from server.requests import Requests
from server.routes import Routes
from server.settings import parse
from server.status import Status

ECHO = Path(__file__).resolve().parent / "fixtures" / "echo"
LABELS = 4


class Desk:
    """Turns by hand; `jobs` holds what was sent to the dispatcher and is not answered yet."""

    def __init__(self, *arguments: str, keys: tuple[bytes, ...] = (),
                 card: dict | None = None) -> None:
        settings = parse(arguments, {})
        prepared = prepare(ECHO, "echo", FAMILIES)
        prepared.card["buckets"] = buckets(prepared.card["max_tokens"])
        prepared.card.update(card or {})
        files = seal(prepared)
        now = time.monotonic()
        self.registry = Registry(1, 1)
        self.page = self.registry.page("front", 0, 1)
        self.inflight = InFlight(0, 1, 1, Limits(
            max_age_s=settings.max_age_s, cache_bytes=share_out(settings.cache_mb, 1)[1]), now)
        self.replies = Replies()
        self.status = Status(self.registry, 1, self.inflight)
        self.requests = Requests(self.page, self.inflight, self.replies, self.status,
                                 settings.records)
        self.poll = select.epoll()
        self.clients = Clients(self.poll, settings.max_body, settings.read_timeout,
                               Routes(keys, settings.allow_origin, bool(settings.records)),
                               self.replies, self.requests)
        self.requests.settle = self.clients.settle
        self.clients.set_classifier(Classifier(
            prepared.card, open_tokenizer(map_file(files.tokenizer_fd)), settings, self.page,
            self.inflight, self.replies))
        self.status.card = prepared.card
        self.inflight.link_up(now)
        self.inflight.take_actions()
        self.set_state(0.0)
        self.jobs: list = []
        self.groups: list = []
        self.cancelled: list[int] = []
        self.longest_turn_s = 0.0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = [self._listener]
        self._files = files

    def close(self) -> None:
        """Gives back every descriptor."""
        for connection in list(self.clients.connections.values()):
            connection.close()
        for sock in self._sockets:
            sock.close()
        self.poll.close()
        for descriptor in (self._files.card_fd, self._files.tokenizer_fd, self._files.weights_fd):
            os.close(descriptor)

    def set_state(self, backlog_ms: float, is_ready: bool = True) -> None:
        self.inflight.receive(State(is_ready, 1, 1, backlog_ms, backlog_ms), time.monotonic())

    def connect(self) -> "Client":
        theirs = socket.create_connection(self._listener.getsockname(), timeout=5)
        ours, _ = self._listener.accept()
        ours.setblocking(False)
        for one in (ours, theirs):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sockets.append(theirs)
        self.clients.let_in([ours], time.monotonic())
        return Client(self, theirs)

    def turn(self, now: float | None = None) -> None:
        """One turn of a front's loop; `now` stands for the clock of its timers."""
        begun = time.perf_counter()
        self.replies.tick()
        for number, mask in self.poll.poll(0, 64):
            self.clients.serve(self.clients.connections[number], mask, time.monotonic())
        self.clients.go_on(time.monotonic())
        self.requests.go_on()
        later = time.monotonic() if now is None else now
        self.inflight.tick(later)
        self.requests.tick(later)
        self.clients.expire(later)
        self.act()
        self.longest_turn_s = max(self.longest_turn_s, time.perf_counter() - begun)

    def act(self) -> None:
        if self.inflight.unsent_lone:
            self.clients.express.count()
            self._send(list(map(codec.read_lone, self.inflight.take_lone())))
        for _ in range(2):
            for action in self.inflight.take_actions():
                if isinstance(action, Finish):
                    self.requests.finish(action.group, action.outcome)
                elif isinstance(action, Answers):
                    self.clients.express.finish(action.answered)
                elif isinstance(action, SendGroups):
                    self._send(action.groups)
                elif isinstance(action, SendCancel):
                    self._cancel(set(action.cancel.jobs))

    def _send(self, groups: list) -> None:
        self.groups += groups
        self.jobs += [job for group in groups for job in group.jobs]

    def _cancel(self, numbers: set[int]) -> None:
        self.cancelled += sorted(numbers)
        self.jobs = [job for job in self.jobs if job.job not in numbers]
        self.groups = [group for group in self.groups
                       if not numbers.issuperset(job.job for job in group.jobs)]

    def settle(self) -> None:
        """Turns until nothing moves any more."""
        for _ in range(2000):
            self.turn()
            now = time.monotonic()
            timer = self.inflight.next_timer(now)
            if not (self.requests.work or self.clients.again or self.poll.poll(0)
                    or timer is not None and timer <= now):
                return
        raise AssertionError("the front does not come to rest")

    def answer(self, count: int | None = None, failed: tuple[int, ...] = (),
               logits: tuple[float, ...] | None = None) -> None:
        """Answers the oldest jobs (all), those at the places in `failed` as failed."""
        taken, self.jobs = self.jobs[:count], [] if count is None else self.jobs[count:]
        results = []
        for at, job in enumerate(taken):
            ids = list(struct.unpack(f"<{job.tokens}H", job.ids))
            values = logits or tuple(map(float, echo_logits(ids, job.split, LABELS)))
            results.append(Result(job.job, RESULT_FAILED if at in failed else RESULT_OK, 0, 0,
                                  len(taken), 100, 200, struct.pack(f"<{LABELS}f", *values)))
        self.inflight.receive(Results(results), time.monotonic())
        self.settle()

    def answer_from_cache(self) -> None:
        """Answers all jobs as the dispatcher answers those that it knows."""
        results = [Result(job.job, RESULT_OK, CACHE, 0, 0, 0, 0, struct.pack(
            f"<{LABELS}f", *map(float, echo_logits(
                list(struct.unpack(f"<{job.tokens}H", job.ids)), job.split, LABELS))))
            for job in self.jobs]
        self.jobs = []
        self.inflight.receive(Results(results), time.monotonic())
        self.settle()

    def refuse(self, reason: Reason, retry_ms: int) -> None:
        """Refuses all groups that wait."""
        refusals = [Refusal(group.group, reason, retry_ms) for group in self.groups]
        self.groups, self.jobs = [], []
        self.inflight.receive(Refused(refusals), time.monotonic())
        self.settle()

    def counted(self, route: str, code: int) -> float:
        return self.page.counter("requests_total", route=route, code=code)._values[
            self.page.counter("requests_total", route=route, code=code)._slot]


class Answer:
    """A parsed answer."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.body = response.read()

    @property
    def json(self) -> dict:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return self.json["error"]["code"]


class Client:
    """The other end of a connection."""

    def __init__(self, desk: Desk, sock: socket.socket) -> None:
        self.desk = desk
        self.socket = sock
        self._said = b""

    def send(self, *pieces: bytes) -> None:
        """Sends without blocking; what the front has no room for is sent in further turns."""
        self.socket.setblocking(False)
        data = b"".join(pieces)
        try:
            while data:
                try:
                    sent = self.socket.send(data)
                except BlockingIOError:
                    self.desk.turn()
                    continue
                data = data[sent:]
        finally:
            self.socket.settimeout(5)
        self.desk.settle()

    def end(self) -> None:
        self.socket.shutdown(socket.SHUT_WR)
        self.desk.settle()

    def close(self) -> None:
        self.socket.close()
        self.desk.settle()

    def heard(self) -> bytes:
        """All that has been said and not yet been read."""
        self.socket.setblocking(False)
        try:
            while data := self.socket.recv(1 << 20):
                self._said += data
                self.desk.turn()
        except BlockingIOError:
            pass
        finally:
            self.socket.settimeout(5)
        return self._said

    def read(self, method: str = "GET") -> Answer:
        """The next answer, which must be there whole."""
        source = _Replay(self.heard())
        response = http.client.HTTPResponse(source, method=method)
        response.begin()
        answer = Answer(response)
        self._said = self._said[source.file.tell():]
        return answer

    def ask(self, body: bytes | dict, *fields: bytes) -> Answer:
        """Posts a body, has it computed, and reads the answer."""
        self.send(post(body, *fields))
        self.desk.answer()
        return self.read()


class _Replay:
    """What HTTPResponse takes for a socket: bytes that were read before."""

    def __init__(self, data: bytes) -> None:
        self.file = io.BytesIO(data)
        self.file.close = lambda: None

    def makefile(self, *_: object) -> io.BytesIO:
        return self.file


def post(body: bytes | dict, *fields: bytes) -> bytes:
    if isinstance(body, dict):
        body = json.dumps(body).encode()
    head = [b"POST /infer HTTP/1.1", b"Host: h", b"Content-Length: %d" % len(body), *fields]
    return b"\r\n".join(head) + b"\r\n\r\n" + body


def get(path: bytes, *fields: bytes, method: bytes = b"GET") -> bytes:
    return b"\r\n".join([method + b" " + path + b" HTTP/1.1", b"Host: h", *fields]) + b"\r\n\r\n"


@pytest.fixture
def make_desk():
    made = []

    def make(*arguments, **options):
        made.append(Desk(*arguments, **options))
        return made[-1]

    yield make
    for desk in made:
        desk.close()


@pytest.fixture
def desk(make_desk):
    return make_desk()
