"""The HTTP/1.1 parser: the corpus in every cut, garbage, limits, bounds of memory and time."""

import random
import time
import tracemalloc

import pytest

from server import http1
from server.errors import ClientError
from server.http1 import Body, Head, Parser
from tests.raw_cases import BODY_LIMIT, play, pull, read_cases, show

CASES = read_cases()
CUTS_A_CASE = 400


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_http1_case_gives_its_events_in_every_cut(case):
    sent = case.sent
    assert play([sent]) == case.events
    assert play(sent[i:i + 1] for i in range(len(sent))) == case.events
    stride = max(1, len(sent) // CUTS_A_CASE)
    for cut in range(1, len(sent), stride):
        assert play([sent[:cut], sent[cut:]]) == case.events, cut


def test_http1_corpus_has_sound_and_unsound_cases():
    kinds = [case.name.split("-")[0] for case in CASES]
    assert kinds.count("ok") > 50 and kinds.count("bad") > 80 and set(kinds) == {"ok", "bad", "cut"}


@pytest.mark.parametrize("seed", range(20))
def test_http1_spliced_cases_give_the_same_events_in_random_cuts(seed):
    rng = random.Random(seed)
    sent = b"".join(rng.choice(CASES).sent for _ in range(4))[:20000]
    if rng.random() < 0.5:
        at = rng.randrange(len(sent))
        sent = sent[:at] + bytes([rng.randrange(256)]) + sent[at + rng.randrange(3):]
    whole = play([sent])
    known: dict = {}
    for _ in range(30):
        cuts = sorted(rng.randrange(len(sent) + 1) for _ in range(rng.randrange(12)))
        pieces = [sent[a:b] for a, b in zip([0, *cuts], [*cuts, len(sent)])]
        assert play(pieces, Parser(BODY_LIMIT, known)) == whole


@pytest.mark.parametrize("seed", range(50))
def test_http1_garbage_gives_events_or_its_error_only(seed):
    rng = random.Random(seed)
    alphabet = rng.choice([bytes(range(256)), b"\r\n :\tGETHP/1.0a", b"0123456789abcdef\r\n;"])
    start = rng.choice([b"", b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"])
    parser = Parser(1000)
    try:
        for _ in range(300):
            parser.feed(start + bytes(rng.choices(alphabet, k=rng.randrange(1, 400))))
            start = b""
            for event in pull(parser):
                assert isinstance(event, (Head, Body))
    except ClientError as error:
        assert error.close and 400 <= error.status <= 505


def feed_all(parser, data, size):
    """Events and the most bytes the parser held."""
    events, most = [], 0
    for at in range(0, len(data), size):
        parser.feed(data[at:at + size])
        events += pull(parser)
        most = max(most, parser.buffered)
    return events, most


@pytest.mark.parametrize("endless", [
    b"GET /" + b"a" * 100_000, b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"a" * 100_000,
    b"GET / HTTP/1.1\r\nHost: h\r\n" + b"X: y\r\n" * 50_000,
    b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999\r\n\r\n" + b"a" * 100_000,
    b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 100_000,
    b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"a" * 100_000,
    b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"X: y\r\n" * 50_000,
], ids=["line", "field", "fields", "length", "chunks", "extension", "trailers"])
def test_http1_endless_request_is_refused_within_its_limits(endless):
    parser = Parser(50_000)
    with pytest.raises(ClientError) as caught:
        feed_all(parser, endless, 100)
    assert caught.value.status in (400, 413, 414, 431)
    assert parser.buffered < 100_000


def test_http1_body_of_many_small_pieces_takes_memory_for_its_bytes_only():
    size = 1 << 20
    head = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    data = head + b"4\r\nabcd\r\n" * (size // 4)
    parser = Parser(BODY_LIMIT)
    tracemalloc.start()
    events, _ = feed_all(parser, data, 1000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(events) == 1 and parser.buffered == size
    assert peak < 4 * size


@pytest.mark.parametrize("data", [
    b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"a" * 32_000 + b"\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: h\r\n" + b"X: " + b" \t" * 16_000 + b"\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: h\r\n" + b"X: " + b" \t" * 15_000 + b"y\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: h\r\n" + b"Accept: a\r\n" * 98 + b"\r\n",
    b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 200000\r\n\r\n" + b"x" * 200_000,
    b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    + b"1;a\r\nx\r\n" * 2000 + b"0\r\n\r\n",
], ids=["field", "blanks", "blanks-before", "fields", "length", "chunks"])
def test_http1_dribbled_bytes_take_linear_time(data):
    started = time.process_time()
    events, _ = feed_all(Parser(BODY_LIMIT), data, 1)
    took = time.process_time() - started
    assert len(events) == 2
    # About 2 µs a byte; quadratic work would take minutes.
    assert took < 40e-6 * len(data) + 0.5


def test_http1_many_chunks_are_read_in_bounded_steps():
    parser = Parser(BODY_LIMIT)
    parser.feed(b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
                + b"1\r\nx\r\n" * 2000 + b"0\r\n\r\n")
    assert isinstance(parser.next_event(), Head)
    steps = 0
    while (event := parser.next_event()) is None:
        assert parser.has_more
        steps += 1
    assert steps == 2000 // http1.CHUNKS_A_STEP and event.content == b"x" * 2000


def test_http1_requests_not_pulled_stay_in_the_buffer():
    request = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
    parser = Parser(BODY_LIMIT)
    parser.feed(request * 3)
    assert isinstance(parser.next_event(), Head) and isinstance(parser.next_event(), Body)
    assert parser.buffered == 2 * len(request)
    parser.feed(request)
    assert len(list(pull(parser))) == 6 and not parser.started


def test_http1_equal_heads_are_parsed_once():
    known: dict = {}
    request = b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n"
    heads = []
    for _ in range(2):
        parser = Parser(BODY_LIMIT, known)
        parser.feed(request)
        heads.append(next(pull(parser)))
    assert heads[0] is heads[1] and list(known) == [request]


def test_http1_known_heads_are_bounded():
    known: dict = {}
    for number in range(http1.KNOWN_HEADS + 10):
        parser = Parser(BODY_LIMIT, known)
        parser.feed(b"GET /%d HTTP/1.1\r\nHost: h\r\n\r\n" % number)
        assert next(pull(parser)).segments == (str(number),)
    assert len(known) <= http1.KNOWN_HEADS


def test_http1_head_of_an_absolute_target_takes_its_host():
    parser = Parser(BODY_LIMIT)
    parser.feed(b"GET http://other:81/a%2Fb/c?d=e?f HTTP/1.1\r\nHost: h\r\n"
                b"X-A: 1\r\nx-a: 2\r\n\r\n")
    head = parser.next_event()
    assert (head.host, head.segments, head.query) == ("other:81", ("a/b", "c"), "d=e?f")
    assert head.fields == {b"host": b"h", b"x-a": b"1, 2"}
