"""The short way of requests: the answers, counts and messages of the general way, come what may."""

import itertools
import random
import re
import time

import pytest

from server.express import Express
from server.messages import HIGH, LOW, Reason
from server.metrics_schema import SCHEMAS
from tests.front_desk import make_desk, post    # noqa: F401

# Times, of which one is part of the content, and so its length.
VARYING = re.compile(rb"(X-Latency-ms: |tokenize;dur=|\"latency_ms\": |Content-Length: )[0-9.]+"
                     rb"|(X-Trace-Id: |\"trace_id\": \")[0-9a-f]{32}|(Date: )[^\r]*")
BODIES = [
    {"text": "win a free phone"}, {"text": ""}, {"text": "a \"quoted\" \\ line\n"},
    {"text": "caf\u00e9 \u4e2d \U0001f600"}, {"text": "long " * 300}, {"text": "a", "user_id": 7},
    {"text": "a", "user_id": "x"}, {"texts": ["a", "b"]}, {"text": "a", "logits": True},
    {"text": "a", "top_k": 1}, {"text": "a", "text_pair": "b"},
    b'{"text":"tight"}', b'{"text": "\\ud800"}', b'{"text": "\\ud83d\\ude00"}', b'{"text": "a"} ',
    b'{"text": "a"', b'{"text": "a\x01"}', b'{"text": "\xff"}', b"", b"[]", b'{"text": 1}',
    b'{"text": "a", "b": 1}', b'{"text": "' + b"x " * 5000 + b'"}',
]
FIELDS = [(), (), (), (b"X-Priority: high",), (b"X-Deadline-ms: 60000",), (b"X-Priority: none",),
          (b"Connection: close",), (b"X-Request-ID: mine\"1",), (b"Expect: 100-continue",),
          (b"Content-Type: text/plain",), (b"Origin: http://h",), (b"Content-Encoding: gzip",)]
GETS = [b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n", b"GET /nothing HTTP/1.1\r\nHost: h\r\n\r\n",
        b"POST /infer HTTP/1.0\r\nContent-Length: 13\r\n\r\n{\"text\": \"a\"}", b"\r\n",
        b"nonsense"]


def request(rng):
    if rng.random() < 0.05:
        return rng.choice(GETS)
    body = rng.choice(BODIES[:3]) if rng.random() < 0.7 else rng.choice(BODIES)
    return post(body, *(rng.choice(FIELDS) if rng.random() < 0.2 else ()))


def script(rng, steps):
    """What clients, dispatcher and front do, by names that `play` knows."""
    for _ in range(steps):
        kind, client = rng.random(), rng.randrange(4)
        if kind < 0.45:
            yield "say", client, request(rng)
        elif kind < 0.5:    # requests close behind each other, or one in pieces
            data = request(rng) + request(rng)
            cut = rng.randrange(len(data))
            yield "say", client, data[:cut]
            yield "say", client, data[cut:]
        elif kind < 0.92:
            yield "answer", rng.randrange(1, 9), rng.random() < 0.1
        elif kind < 0.93:
            yield "odd", rng.choice((float("nan"), float("inf")))
        elif kind < 0.94:
            yield "refuse",
        elif kind < 0.95:
            yield "close", client
        elif kind < 0.96:
            yield "end", client
        elif kind < 0.97:
            yield "backlog", rng.choice((0.0, 0.0, 9000.0))
        elif kind < 0.98:
            yield "behind", rng.choice(((), (), (LOW,), (HIGH, LOW)))
        else:
            yield "again",


def play(desk, steps, is_short):
    """What each client heard after each step, without what varies; and the counters at the end."""
    clients, heard = [desk.connect() for _ in range(4)], []
    if not is_short:
        desk.clients.express = type("NoExpress", (Express,), {
            "take": lambda *_: None})(None, 0, None, desk.requests.classifier, desk.requests, None)
    for kind, *given in steps:
        if kind == "say":
            try:
                clients[given[0]].send(given[1])
            except OSError:     # it was closed
                clients[given[0]] = desk.connect()
        elif kind == "answer":
            desk.answer(given[0], (0,) if given[1] else ())
        elif kind == "odd":
            desk.answer(1, logits=(1.0, given[0], 2.0, 3.0))
        elif kind == "refuse":
            desk.refuse(Reason.WAIT, 10)
        elif kind == "close":
            clients[given[0]].close()
            clients[given[0]] = desk.connect()
        elif kind == "end":
            clients[given[0]].end()
            desk.settle()
            clients[given[0]] = desk.connect()
        elif kind == "backlog":
            desk.set_state(given[0])
        elif kind == "behind":
            desk.requests.behind = given[0]
        else:
            desk.inflight.link_down(0.0)
            desk.inflight.link_up(0.0)
            desk.set_state(0.0)
            desk.jobs, desk.groups = [], []
            desk.settle()
        said = []
        for number, client in enumerate(clients):
            try:
                said.append(VARYING.sub(rb"\1\2\3", client.heard()))
                client._said = b""
            except OSError:
                clients[number] = desk.connect()
        # Refused requests are spread by the rate of answers, which the clock tells.
        heard.append([re.sub(rb"Retry-After: [0-9]+", b"Retry-After", one) for one in said])
        heard.append((desk.inflight.open_jobs, len(desk.jobs), len(desk.cancelled)))
    return heard, samples(desk.page)


def samples(page):
    """What is counted, but not how long it took."""
    found = {}
    for metric in SCHEMAS["front"]:
        for number in range(metric.size):
            labels = dict(zip(metric.labels, metric.sample(number)))
            counter = page.counter(metric.name, **labels)
            first = counter._slot
            values = page.values[first:first + metric.width]
            if metric.kind == "counter":
                found[metric.name, *labels.values()] = values[0]
            elif metric.kind == "histogram":
                found[metric.name, *labels.values()] = sum(values[:-1])
    return found


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("truncate", ["auto", "never"])
def test_express_does_what_the_general_way_does(make_desk, monkeypatch, seed,       # noqa: F811
                                                truncate):
    # A clock that goes on by itself alone, so that no timer ends before it is meant to.
    ticks = itertools.count(1_000_000_000)
    monkeypatch.setattr(time, "monotonic", lambda: next(ticks) * 1e-6)
    steps = list(script(random.Random(seed), 400))
    general = play(make_desk("--truncate", truncate), steps, False)
    taken, real = [], Express.take
    monkeypatch.setattr(Express, "take", lambda *given: taken.append(real(*given)) or taken[-1])
    assert play(make_desk("--truncate", truncate), steps, True) == general
    assert len(taken) - taken.count(None) > 5 and taken.count(None) > 10


def test_express_body_past_the_limit_is_refused_under_a_known_head(make_desk):      # noqa: F811
    desk = make_desk("--max-body", "1024")
    for _ in range(2):
        client = desk.connect()
        assert [client.ask({"text": "a"}).status for _ in range(2)] == [200, 200]   # it rests
        client.send(post({"text": "a" * 2000}))
        assert (client.read().status, desk.jobs) == (413, [])


def test_express_hits_are_counted_though_nothing_is_sent(make_desk):        # noqa: F811
    desk = make_desk("--cache-mb", "2")
    client = desk.connect()

    def tokenised() -> float:
        return samples(desk.page)[("tokenize_seconds",)]

    client.send(post({"text": "win"}))
    desk.answer_from_cache()
    before = tokenised()
    client.send(post({"text": "win"}))      # now its head is known, and its answer
    assert desk.jobs == [] and tokenised() == before + 1
