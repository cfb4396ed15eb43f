"""The dispatcher's process by hand: links that replace each other, and its word to the master."""

import math
import os
from types import SimpleNamespace

import pytest

from server import codec, link
from server.dispatcher import Dispatcher
from server.messages import (CACHE, LOW, Done, EngineHello, FrontHello, Group, Job, PackedBatch,
                             State)
from server.metrics import Registry
from server.processes import Control


@pytest.fixture(params=[1])
def desk(request):
    """(dispatcher, a way to connect, the master's end of its control); the parameter is how many
    MiB there are to cache answers."""
    name = f"firebrick-test-{os.getpid()}-{os.urandom(6).hex()}"
    listener = link.listen(name)
    ours, theirs = Control.pair()
    dispatcher = Dispatcher(SimpleNamespace(
        settings=SimpleNamespace(engines=1, max_wait_ms=2000.0, max_age_s=60.0, high_share=0.8,
                                 cache_mb=request.param, fronts=1),
        generation=1, incarnation=1, control=theirs, page=Registry(1, 1).page("dispatcher", 0),
        dispatcher_listener=listener))
    links = []

    def connect(hello):
        links.append(link.connect(name))
        dispatcher.turn()           # accepts it
        links[-1].send(hello)
        return links[-1]

    yield dispatcher, connect, ours
    for end in (*links, *(peer.link for peer in dispatcher.peers.values()), listener, ours, theirs):
        end.close()
    dispatcher.epoll.close()


def lone(job):
    """A front's request of one text, as most are."""
    ids = b"%4d" % job
    return job + 10, 0.0, codec.LONE.pack(job + 10, job, math.inf, LOW, job, 2, 2, len(ids), 0,
                                          1), ids


def test_dispatcher_link_replaced_in_the_turn_it_spoke_is_not_read(desk):
    dispatcher, connect, _ = desk
    old = connect(codec.encode_front_hello(FrontHello(0, 7, 1)))
    dispatcher.turn()
    # Both are readable in one turn, the new one first: its HELLO closes the old one.
    new = connect(codec.encode_front_hello(FrontHello(0, 7, 1)))
    old.send(*codec.encode_cancel([1]))
    dispatcher.turn()
    assert list(dispatcher.peers.values()) == [dispatcher.fronts[0, 7]]
    (state,) = map(codec.decode, new.receive()[0])
    assert isinstance(state, State)


def test_dispatcher_first_engine_is_told_to_the_master_once(desk):
    dispatcher, connect, control = desk
    for incarnation in (1, 2):
        connect(codec.encode_engine_hello(EngineHello(0, 0, incarnation, 1, 2, [(1, 8, 1.0)])))
        dispatcher.turn()
    assert [message for message, _ in control.receive()] == [{"type": "ready"}]


def test_dispatcher_other_generation_is_turned_away(desk):
    dispatcher, connect, _ = desk
    stranger = connect(codec.encode_front_hello(FrontHello(0, 7, 2)))
    dispatcher.turn()
    assert not dispatcher.peers and stranger.receive() == ([], True)


def test_dispatcher_known_text_is_answered_and_counted(desk):
    dispatcher, connect, _ = desk
    front = connect(codec.encode_front_hello(FrontHello(0, 7, 1)))
    engine = connect(codec.encode_engine_hello(EngineHello(0, 0, 1, 1, 2, [(1, 8, 1.0)])))
    dispatcher.turn()
    for job in (1, 2):
        (message,) = codec.encode_jobs([Group(job, 1, 1, 9e9, 1, [Job(job, 2, 2, 0, 1, b"text")])])
        front.send(message)
        dispatcher.turn()
        for batch in map(codec.decode, engine.receive()[0]):
            assert isinstance(batch, PackedBatch) and job == 1
            engine.send(codec.encode_done(Done(batch.batch, 10, 2, b"\0" * 8), 1))
            dispatcher.turn()
    results = [result for message in map(codec.decode, front.receive()[0])
               if not isinstance(message, State) for result in message.results]
    assert [(result.job, result.kind == CACHE) for result in results] == [(1, False), (2, True)]
    page = dispatcher.page
    counted = [page.counter("cache_total", result=result) for result in ("hit", "join", "miss")]
    assert [counter._values[counter._slot] for counter in counted] == [1, 0, 1]


def test_dispatcher_reads_all_that_a_link_has_before_it_acts(desk):
    dispatcher, connect, _ = desk
    front = connect(codec.encode_front_hello(FrontHello(0, 7, 1)))
    engine = connect(codec.encode_engine_hello(EngineHello(0, 0, 1, 1, 2, [(1, 8, 1.0)])))
    dispatcher.turn()
    for job in (1, 2, 3):
        front.send(*codec.encode_jobs(
            [Group(job, job, 1, 9e9, 1, [Job(job, 2, 2, 0, 1, b"text%d" % job)])]))
    dispatcher.turn()
    (batch,) = map(codec.decode, engine.receive()[0])
    assert (batch.sizes, batch.ids) == ([5, 5, 5], b"text1text2text3")


@pytest.mark.parametrize("desk", [0, 1], indirect=True)
def test_dispatcher_lone_jobs_are_answered_each_with_its_logits_and_counted(desk):
    dispatcher, connect, _ = desk
    front = connect(codec.encode_front_hello(FrontHello(0, 7, 1)))
    engine = connect(codec.encode_engine_hello(EngineHello(0, 0, 1, 1, 2, [(1, 8, 1.0)])))
    dispatcher.turn()
    front.send(*codec.encode_lone([lone(job) for job in range(1, 6)]))
    dispatcher.turn()
    (batch,) = map(codec.decode, engine.receive()[0])
    assert batch.ids == b"".join(b"%4d" % job for job in range(1, 6)) and batch.sizes == [4] * 5
    front.send(*codec.encode_lone([lone(job) for job in range(6, 9)]))
    dispatcher.turn()
    logits = [bytes([job]) * 8 for job in range(1, 6)]
    engine.send(codec.encode_done(Done(batch.batch, 10, 2, b"".join(logits)), 5))
    dispatcher.turn()
    results = [result for message in map(codec.decode, front.receive()[0])
               if not isinstance(message, State) for result in message.results]
    assert [(result.job, result.logits) for result in results] == list(zip(range(1, 6), logits))
    assert {(result.kind, result.batch_size, result.infer_us) for result in results} == {(0, 5, 10)}
    queued = dispatcher.page.histogram("queue_seconds", priority="low")
    assert sum(queued._values[queued._slot:queued._sum]) == 5
