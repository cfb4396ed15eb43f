"""Messages survive the wire, keep to their limit, and broken bytes are refused."""

import math
import random

import pytest

from server import codec
from server.dispatch import Answered
from server.messages import (GPU, LIMIT_BYTES, RESULT_OK, VERSION, Batch, Cancel, Done, EngineHello,
                             Failed, FrontHello, Group, Job, LoneJobs, MessageError, Note, Notes,
                             PackedBatch, Refusal, Refused, Result, Results, Row, State)


def random_groups(rng):
    groups = []
    for number in range(rng.randint(1, 40)):
        jobs = [Job(rng.getrandbits(64), rng.randint(0, 9000), rng.randint(0, 9000),
                    rng.randint(0, 3), rng.randint(1, 255), rng.randbytes(
                        rng.choice((0, 8, 40, 1024, 59_000)))) for _ in range(rng.randint(1, 9))]
        groups.append(Group(number, rng.getrandbits(64), rng.randint(0, 1),
                            rng.choice((math.inf, 12.5)), len(jobs), jobs))
    return groups


def test_codec_jobs_random_groups_survive_and_keep_the_limit():
    rng = random.Random(3)
    for _ in range(50):
        groups = random_groups(rng)
        messages = codec.encode_jobs(groups)
        assert max(map(len, messages)) <= LIMIT_BYTES
        joined = {}
        for message in messages:
            for part in codec.decode(message).groups:
                if part.group in joined:
                    joined[part.group].jobs.extend(part.jobs)
                else:
                    joined[part.group] = part
        assert list(joined.values()) == groups


def packed(group):
    job = group.jobs[0]
    return group.group, 1.5, codec.LONE.pack(
        group.group, group.connection, group.deadline, group.priority, job.job, job.tokens,
        job.split, len(job.ids), job.deaths, job.sends), job.ids


def test_codec_lone_requests_travel_as_groups_of_one():
    rng, whole = random.Random(4), 0
    for _ in range(50):
        groups = [Group(one.group, one.connection, one.priority, one.deadline, 1, one.jobs[:1])
                  for one in random_groups(rng)]
        entries = list(map(packed, groups))
        for group, lone in zip(groups, map(codec.read_lone, entries)):
            assert all(getattr(lone, name) == getattr(group, name)
                       for name in ("group", "connection", "priority", "deadline", "count"))
            assert all(getattr(lone, name) == getattr(group.jobs[0], name)
                       for name in ("job", "tokens", "split", "ids", "deaths", "sends"))
        messages = codec.encode_lone(entries)
        assert max(map(len, messages)) <= LIMIT_BYTES
        read = list(map(codec.decode, messages))
        assert [one for each in read for one in (
            each.as_groups() if isinstance(each, LoneJobs) else each.groups)] == groups
        whole += isinstance(read[0], LoneJobs)
    assert 10 < whole < 50


def test_codec_answered_jobs_are_the_results_of_each():
    rng = random.Random(5)
    for width in (4, 12):
        jobs = [rng.getrandbits(64) for _ in range(9)]
        answered = Answered((0, 1), jobs, GPU, 3, 12, 1 << 40, 70, width, rng.randbytes(9 * width))
        assert codec.pack_answered(answered) == codec.pack_results([
            Result(job, RESULT_OK, GPU, 3, 12, 1 << 40, 70,
                   answered.logits[number * width:(number + 1) * width])
            for number, job in enumerate(jobs)])


def test_codec_answers_are_the_results_or_left_to_the_reader():
    rng, read = random.Random(6), 0
    for _ in range(2000):
        classes = rng.choice((0, 1, 2, 6))
        results = [Result(rng.getrandbits(64), rng.randint(0, 1), rng.randint(0, 2), 1, 8, 10, 20,
                          rng.randbytes(4 * (classes if rng.random() < 0.8 else rng.randint(0, 3))))
                   for _ in range(rng.randint(1, 4))]
        (data,) = codec.encode_results(results)
        for _ in range(rng.randint(0, 1)):      # one byte is another, or missing
            at = rng.randrange(len(data))
            data = data[:at] + rng.randbytes(rng.randint(0, 1)) + data[at + 1:]
        answers = codec.read_answers(data)
        if answers is not None:
            read += 1
            assert codec.decode(data).results == [
                Result(*head, logits) for *head, _, logits in answers]
    assert 300 < read < 1900
    assert codec.read_answers(codec.encode_state(State(True, 3, 5, 1.5, 2.5))) is None


def test_codec_batch_heads_are_those_of_batches_or_left_to_the_reader():
    rng, read = random.Random(7), 0
    for _ in range(2000):
        rows = [Row(9, 9, rng.randbytes(4)) for _ in range(rng.randint(1, 4))]
        data = codec.encode_batch(Batch(rng.getrandbits(64), rng.randint(0, 1), rows))
        for _ in range(rng.randint(0, 1)):      # one byte of its head is another, or missing
            at = rng.randrange(codec.BATCH_HEAD_BYTES)
            data = data[:at] + rng.randbytes(rng.randint(0, 1)) + data[at + 1:]
        head = codec.read_batch_head(data)
        try:
            batch = codec.decode(data)
        except MessageError:
            continue
        is_batch = isinstance(batch, PackedBatch)
        assert head == ((batch.batch, len(batch.sizes)) if is_batch else None)
        read += is_batch
    assert 1000 < read < 1900
    assert codec.read_batch_head(codec.encode_batch(Batch(1, 0, []))[:-1]) is None
    assert codec.read_batch_head(codec.encode_state(State(True, 3, 5, 1.5, 2.5))) is None


@pytest.mark.parametrize("message,encoded", [
    (FrontHello(3, 2**63, 1), codec.encode_front_hello),
    (EngineHello(1, 2, 9, 1, 6, [(1, 16, 0.5), (8, 512, 20.25)]), codec.encode_engine_hello),
    (State(True, 3, 5, 1.5, 2.5), codec.encode_state),
    (State(False, 0, 5, 0.0, 0.0, True), codec.encode_state),
    (Failed(7, True, "no memory é"), codec.encode_failed),
    (Done(7, 1000, 2, b"\0" * 16, 300), lambda done: codec.encode_done(done, 2)),
], ids=lambda value: type(value).__name__)
def test_codec_single_messages_survive(message, encoded):
    assert codec.decode(encoded(message)) == message


def test_codec_batch_comes_packed():
    message = codec.encode_batch(Batch(7, 1, [Row(3, 2, b"abcdef"), Row(0, 0, b""),
                                              Row(1, 1, b"gh")]))
    assert codec.decode(message) == PackedBatch(7, 1, [6, 0, 2], [2, 0, 1], b"abcdefgh")


@pytest.mark.parametrize("message,encoded", [
    (Results([Result(n, 0, 0, 1, 8, 10, 20, b"\1\2\3\4" * 700) for n in range(90)]),
     lambda m: codec.encode_results(m.results)),
    (Cancel(list(range(20_000))), lambda m: codec.encode_cancel(m.jobs)),
    (Refused([Refusal(n, 2, 1500) for n in range(9000)]),
     lambda m: codec.encode_refused(m.refusals)),
    (Notes([Note(n, 3) for n in range(9000)]), lambda m: codec.encode_notes(m.notes)),
], ids=lambda value: type(value).__name__)
def test_codec_long_messages_are_cut_and_survive(message, encoded):
    messages = encoded(message)
    assert len(messages) > 1 and max(map(len, messages)) <= LIMIT_BYTES
    name = next(iter(message.__slots__))
    entries = [entry for part in messages for entry in getattr(codec.decode(part), name)]
    assert entries == getattr(message, name)


def test_codec_every_cut_and_any_flipped_byte_is_a_message_or_refused():
    rng = random.Random(5)
    samples = [
        *codec.encode_jobs(random_groups(rng))[:1],
        *codec.encode_lone([packed(one) for one in random_groups(rng)
                            if len(one.jobs[0].ids) < 2000][:3]),
        *codec.encode_results([Result(1, 0, 0, 1, 8, 10, 20, b"\1\2\3\4")]),
        codec.encode_batch(Batch(7, 1, [Row(3, 3, b"abcdef")])),
        codec.encode_done(Done(7, 1000, 2, b"\0" * 16), 2),
        codec.encode_engine_hello(EngineHello(0, 2, 9, 1, 6, [(1, 16, 0.5)])),
        *codec.encode_refused([Refusal(1, 2, 3)]), *codec.encode_cancel([1, 2]),
        codec.encode_state(State(True, 3, 5, 1.5, 2.5)),
    ]
    for sample in samples:
        for cut in range(min(len(sample), 200)):
            with pytest.raises(MessageError):
                codec.decode(sample[:cut])
        with pytest.raises(MessageError):
            codec.decode(sample + b"\0")
        for _ in range(300):
            broken = bytearray(sample)
            broken[rng.randrange(min(len(broken), 120))] = rng.randrange(256)
            try:
                codec.decode(bytes(broken))
            except MessageError:
                pass


def test_codec_other_protocol_version_is_refused():
    message = bytearray(codec.encode_state(State(True, 3, 5, 1.5, 2.5)))
    message[2] += 1
    with pytest.raises(MessageError, match=f"version {VERSION + 1}"):
        codec.decode(bytes(message))
