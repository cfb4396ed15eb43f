"""An engine: batches in, answers out, promises before work, a new dispatcher after the old."""

import os
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from server import codec, link
from server.engine import Engine
from server.messages import LOW, Batch, Done, EngineHello, Failed, Row
from server.metrics import ALIVE_UNTIL, CPU_UNTIL, STATE, UP, WORKED, Registry
from server.processes import ChildSpec, Control
from tests.house import wait_until

pytestmark = pytest.mark.sockets
CARD = {"id_bytes": 2, "labels": ["a", "b", "c"]}
COSTS = [(1, 16, 1.0), (8, 256, 10.0)]


class Program:
    """Logits are the sum of the ids, by class; `answer` may be replaced."""

    def __init__(self, page):
        self.page, self.promises, self.idled = page, [], 0
        self.answer = lambda rows: np.array(
            [[row.ids.sum() + c for c in range(3)] for row in rows], np.float32)

    def run(self, rows):
        self.promises.append((self.page.get(ALIVE_UNTIL) - time.monotonic(),
                              self.page.get(CPU_UNTIL)))
        return self.answer(rows)

    def idle(self):
        self.idled += 1


class Bench:
    """An engine in a thread, and the dispatcher's side of its links."""

    def __init__(self):
        self.name = f"firebrick-test-{os.getpid()}-{time.monotonic_ns()}"
        self.listener = link.listen(self.name)
        self.ours, theirs = Control.pair()
        registry = Registry(1, 4)
        self.page = registry.page("engine", 3)
        self.page.begin(0, 7, 1, time.monotonic())
        spec = ChildSpec("engine", 3, 7, 1, SimpleNamespace(), theirs, self.page, registry,
                         self.name, os.getpid())
        self.program = Program(self.page)
        self.engine = Engine(spec, self.program, CARD, COSTS, 0)
        self.thread = threading.Thread(target=self.engine.serve)
        self.thread.start()
        self.links = []

    def accept(self):
        """The next link, after its HELLO."""
        peer = wait_until("a link", lambda: link.accept(self.listener), 20)
        self.links.append(peer)
        return peer, self.hear(peer)

    def hear(self, peer):
        found = []
        wait_until("a message", lambda: found.extend(peer.receive()[0]) or found, 20)
        (data,) = found
        return codec.decode(data)

    def ask(self, peer, number, *texts):
        peer.send(codec.encode_batch(Batch(number, LOW, [
            Row(len(ids), len(ids), np.array(ids, "<u2").tobytes()) for ids in texts])))
        return self.hear(peer)

    def close(self):
        self.ours.close()
        self.thread.join(20)
        assert not self.thread.is_alive(), "the engine outlives its master"
        for peer in self.links:
            peer.close()
        if self.engine.link is not None:
            self.engine.link.close()
        self.engine.spec.control.close()
        self.listener.close()


@pytest.fixture
def bench():
    made = Bench()
    yield made
    made.close()


def logits_of(done):
    return np.frombuffer(done.logits, "<f4").reshape(-1, done.classes).tolist()


def test_engine_says_who_it_is_and_what_it_costs(bench):
    _, hello = bench.accept()
    assert hello == EngineHello(0, 3, 7, 1, 3, COSTS)
    wait_until("up", lambda: bench.page.get(STATE) == UP, 20)


def test_engine_answers_batches_in_order(bench):
    peer, _ = bench.accept()
    for number in (1, 2):
        done = bench.ask(peer, number, [10, 20], [5])
        assert isinstance(done, Done) and done.batch == number and done.infer_us >= 0
        assert logits_of(done) == [[30, 31, 32], [5, 6, 7]]
    wait_until("worked", lambda: bench.page.get(WORKED), 20)


def test_engine_promises_before_a_batch_and_takes_it_back_after(bench):
    peer, _ = bench.accept()
    bench.ask(peer, 1, [1] * 100)
    ((wall_s, cpu_until),) = bench.program.promises
    assert wall_s > 9 and cpu_until > 1
    wait_until("the end of the promise", lambda: bench.page.get(CPU_UNTIL) == 0, 20)
    assert bench.page.get(ALIVE_UNTIL) - time.monotonic() < 6


def test_engine_takes_the_short_way_of_programs_that_have_one_and_else_the_long(bench):
    asked = []

    def run_packed(rows, body):
        asked.append((rows, body))
        return np.arange(3 * rows, dtype="<f4").tobytes() if body[-2:] != b"\7\0" else None

    bench.engine.run_packed = run_packed
    peer, _ = bench.accept()
    done = bench.ask(peer, 5, [1, 2], [3])
    assert done.batch == 5 and logits_of(done) == [[0, 1, 2], [3, 4, 5]]
    assert asked == [(2, np.array([4, 2, 2, 1], "<u4").tobytes() + b"\1\0\2\0\3\0")]
    assert not bench.program.promises, "the program was run the long way too"
    assert logits_of(bench.ask(peer, 6, [6, 7])) == [[13, 14, 15]]
    assert len(asked) == 2
    wait_until("worked", lambda: bench.page.get(WORKED), 20)


def test_engine_short_way_promises_and_leaves_alone_what_is_no_batch(bench):
    promised = []

    def run_packed(rows, body):
        promised.append((bench.page.get(ALIVE_UNTIL) - time.monotonic(),
                         bench.page.get(CPU_UNTIL)))
        return bytes(12 * rows)

    bench.engine.run_packed = run_packed
    peer, _ = bench.accept()
    peer.send(codec.encode_done(Done(1, 1, 3, b"\0" * 12), 1))
    wait_until("the link's end", lambda: peer.receive()[1], 20)
    assert not promised
    peer, _ = bench.accept()
    bench.ask(peer, 1, [1] * 100)
    ((wall_s, cpu_until),) = promised
    assert wall_s > 9 and cpu_until > 1


@pytest.mark.parametrize("answer, words", [
    (lambda rows: 1 / 0, "ZeroDivisionError"),
    (lambda rows: np.zeros((len(rows) + 1, 3), np.float32), "(2, 3)"),
    (lambda rows: np.zeros((len(rows), 4), np.float32), "(1, 4)"),
    (lambda rows: np.full((len(rows), 3), np.nan, np.float32), "not finite"),
    (lambda rows: np.full((len(rows), 3), -np.inf, np.float32), "not finite"),
    (lambda rows: np.array([[np.inf, -np.inf, 0]] * len(rows), np.float32), "not finite")])
def test_engine_unusable_answer_is_a_failure_and_the_engine_goes_on(bench, answer, words):
    peer, _ = bench.accept()
    right, bench.program.answer = bench.program.answer, answer
    failed = bench.ask(peer, 1, [1])
    assert isinstance(failed, Failed) and failed.batch == 1 and not failed.fatal
    assert words in failed.reason
    bench.program.answer = right
    assert logits_of(bench.ask(peer, 2, [1])) == [[1, 2, 3]]


def test_engine_largest_finite_logits_are_an_answer(bench):
    peer, _ = bench.accept()
    largest = float(np.finfo(np.float32).max)
    bench.program.answer = lambda rows: np.full((len(rows), 3), largest, np.float32)
    assert logits_of(bench.ask(peer, 1, [1], [2])) == [[largest] * 3] * 2


def test_engine_takes_batches_that_wait_together_one_after_the_other(bench):
    peer, _ = bench.accept()
    for number in (1, 2, 3):
        peer.send(codec.encode_batch(Batch(number, LOW, [Row(1, 1, b"\1\0")])))
    found = []
    wait_until("three answers", lambda: found.extend(peer.receive()[0]) or len(found) == 3, 20)
    assert [codec.decode(data).batch for data in found] == [1, 2, 3]


def test_engine_answers_that_find_no_room_wait_for_it(bench):
    peer, _ = bench.accept()
    for number in range(600):       # some 280 answers fill the socket
        peer.send(codec.encode_batch(Batch(number, LOW, [Row(1, 1, b"\1\0")])))
    wait_until("all computed", lambda: peer.flush() or len(bench.program.promises) == 600, 20)
    found = []
    wait_until("all answers", lambda: found.extend(peer.receive()[0]) or len(found) == 600, 20)
    assert [codec.decode(data).batch for data in found] == list(range(600))


def test_engine_long_exception_is_cut_to_a_message(bench):
    peer, _ = bench.accept()

    def answer(rows):
        raise ValueError("ä" * 100_000)
    bench.program.answer = answer
    assert isinstance(bench.ask(peer, 1, [1]), Failed)


def test_engine_joins_the_next_dispatcher_with_its_loaded_model(bench):
    peer, _ = bench.accept()
    bench.ask(peer, 1, [1])
    peer.close()
    peer, hello = bench.accept()
    assert hello == EngineHello(0, 3, 7, 1, 3, COSTS)
    assert logits_of(bench.ask(peer, 1, [4])) == [[4, 5, 6]]


def test_engine_malformed_message_ends_the_link_and_not_the_engine(bench):
    for garbage in (b"\xff" * 20, codec.encode_done(Done(1, 1, 3, b"\0" * 12), 1)):
        peer, _ = bench.accept()
        peer.send(garbage)
        wait_until("the link's end", lambda: peer.receive()[1], 20)
    peer, _ = bench.accept()
    assert isinstance(bench.ask(peer, 1, [1]), Done)


def test_engine_computes_nothing_for_a_dispatcher_that_is_gone(bench):
    peer, _ = bench.accept()
    started, go_on = threading.Event(), threading.Event()
    right = bench.program.answer

    def answer(rows):
        started.set()
        go_on.wait(20)
        return right(rows)
    bench.program.answer = answer
    row = Row(1, 1, b"\1\0")
    peer.send(codec.encode_batch(Batch(1, LOW, [row])))
    assert started.wait(20)
    peer.send(codec.encode_batch(Batch(2, LOW, [row])))
    peer.close()
    go_on.set()
    peer, _ = bench.accept()
    bench.ask(peer, 1, [1])
    assert len(bench.program.promises) == 2, "batch 2 was for nobody"


def test_engine_without_work_gives_memory_back_once(bench):
    peer, _ = bench.accept()
    bench.ask(peer, 1, [1])
    wait_until("idle", lambda: bench.program.idled, 20)
    time.sleep(1.2)
    assert bench.program.idled == 1


def test_engine_ids_that_are_not_whole_fail_the_batch(bench):
    peer, _ = bench.accept()
    peer.send(codec.encode_batch(Batch(1, LOW, [Row(1, 1, b"\1\0\2"), Row(1, 1, b"\0")])))
    assert isinstance(bench.hear(peer), Failed)
    assert isinstance(bench.ask(peer, 2, [1]), Done)
