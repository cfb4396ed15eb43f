"""An engine's process: one batch after another, from the dispatcher, through the program, back.

Before each batch it publishes when it is due, so that the master can kill one that hangs. It lives
as long as the master does: when a dispatcher dies it forgets what it was given and joins the next.
"""

import math
import os
import select
import time

import numpy as np

from model.program import Program, Texts
from server import codec, link, log
from server.leases import due_s
from server.messages import Done, EngineHello, Failed, MessageError, PackedBatch
from server.metrics import LOOP_LEASE_S, UP
from server.processes import ChildSpec, arm, take_niceness
from server.wakeups import Wakeups

LONGEST_WAIT_MS = 500
RECONNECT_MS = 10
GONE = select.POLLHUP | select.POLLERR
LOGIT_TYPE = np.dtype("<f4")
ID_TYPES = {2: np.dtype("<u2"), 4: np.dtype("<u4")}


def run(spec: ChildSpec, program: Program, card: dict, costs: list[tuple[int, int, float]],
        kind: int) -> None:
    """Serves until the process is killed or the master ends."""
    arm(spec)
    spec.control.send({"type": "up", "pid": os.getpid()})
    if spec.control.receive_all()[1]:
        return          # given up meanwhile: the place may have a new engine
    take_niceness(spec.settings.engine_nice)
    Engine(spec, program, card, costs, kind).serve()


class Engine:
    """The loop around the program."""

    def __init__(self, spec: ChildSpec, program: Program, card: dict,
                 costs: list[tuple[int, int, float]], kind: int) -> None:
        self.spec, self.page, self.program = spec, spec.page, program
        self.id_type = ID_TYPES[card["id_bytes"]]
        self.classes = len(card["labels"])
        self.hello = codec.encode_engine_hello(EngineHello(
            kind, spec.index, spec.incarnation, spec.generation, self.classes, costs))
        # The dearest point a token bounds any batch from above, which is what a lease needs.
        self.token_ms = max((ms / tokens for _, tokens, ms in costs if tokens), default=1.0)
        self.base_ms = max((ms for _, _, ms in costs), default=0.0)
        self.link: link.Link | None = None
        self.watched = select.POLLIN    # of the link
        self.poll = select.poll()
        self.poll.register(spec.control, select.POLLIN)
        self.is_rested = True
        self.wakeups = Wakeups()
        # Of programs that take a batch's bytes as they come.
        self.run_packed = getattr(program, "run_packed", None)

    def serve(self) -> None:
        control = self.spec.control.fileno()
        while True:
            self.page.turn(time.monotonic())
            if self.link is None and not self._connect():
                ready = dict(self.poll.poll(RECONNECT_MS))
            else:
                ready = self._wait()
            if control in ready and self.spec.control.receive_all()[1]:
                return

    def _connect(self) -> bool:
        self.link = link.connect(self.spec.dispatcher_name)
        if self.link is None:
            return False
        self.poll.register(self.link, select.POLLIN)
        self.watched = select.POLLIN
        self.link.send(self.hello)
        self.page.set_state(UP)
        return True

    def _disconnect(self) -> None:
        self.poll.unregister(self.link)
        self.link.close()
        self.link = None

    def _wait(self) -> dict[int, int]:
        """At most one batch: a second one makes the socket readable again, so that nothing is read
        where nothing is. Gives what poll(2) told."""
        watched = select.POLLIN | select.POLLOUT if self.link.waiting else select.POLLIN
        if watched != self.watched:
            self.poll.modify(self.link, watched)
            self.watched = watched
        ready = dict(self.poll.poll(LONGEST_WAIT_MS))
        if not ready and not self.is_rested:
            self.program.idle()
            self.is_rested = True
        events = ready.get(self.link.fileno(), 0)
        if events & select.POLLOUT:
            self.link.flush()
        if events & GONE:       # of a dispatcher that is gone nobody awaits an answer
            self._disconnect()
        elif events & select.POLLIN:
            self.is_rested = False
            data = self.link.receive_one()
            if data is None or data and not self._serve_batch(data):
                self._disconnect()
        return ready

    def _serve_batch(self, data: bytes) -> bool:
        """Runs one batch; False where the message is not one, which ends the link."""
        if self.run_packed and self._is_served_packed(data):
            return True
        try:
            batch = codec.decode(data)
        except MessageError as error:
            log.event("link_closed", engine=self.spec.index, why=error)
            return False
        if not isinstance(batch, PackedBatch):
            return False
        started = self._promise(len(batch.ids))
        self._answer_with(self._answer(batch, started), len(batch.sizes))
        return True

    def _is_served_packed(self, data: bytes) -> bool:
        """The shortest way from a batch to its answer; False for whatever is not as it should be,
        which then goes the long way and is told there. After a batch little of Python's code is in
        the core's caches, and the long way's calls take longer than a short text's network."""
        head = codec.read_batch_head(data)
        if head is None:
            return False
        batch, rows = head
        started = self._promise(len(data))
        logits = self.run_packed(rows, data[codec.BATCH_HEAD_BYTES:])
        if logits is None:
            return False
        infer_us = int((time.monotonic() - started) * 1e6)
        self._answer_with(codec.encode_done(Done(batch, infer_us, self.classes, logits), rows),
                          rows)
        return True

    def _promise(self, id_bytes: int) -> float:
        """Publishes when a batch of so many bytes of ids is due; gives the time."""
        cpu_s, wall_s = due_s(self.base_ms + self.token_ms * (id_bytes // self.id_type.itemsize))
        started = time.monotonic()
        self.page.promise(started + max(wall_s, LOOP_LEASE_S), time.process_time() + cpu_s)
        return started

    def _answer_with(self, message: bytes, rows: int) -> None:
        self.link.send(message)
        self.page.set_worked()
        self.wakeups.count(rows)

    def _answer(self, batch: PackedBatch, started: float) -> bytes:
        """DONE, or FAILED with a reason where the program raises or gives no usable logits."""
        try:
            logits = self.program.run(texts_of(batch, self.id_type))
        except Exception as error:
            # The input's fault or the program's: either way the rows are tried alone, and what
            # breaks every time is answered 500 by its front.
            return codec.encode_failed(Failed(batch.batch, False,
                                              f"{type(error).__name__}: {error}"))
        infer_us = int((time.monotonic() - started) * 1e6)
        wanted = (len(batch.sizes), self.classes)
        # No finite float32 can make a sum of Python floats infinite. After a batch, which has
        # pushed code out of the caches, it takes half of the 20 µs of numpy's isfinite and all.
        if logits.shape != wanted or not math.isfinite(sum(logits.ravel().tolist())):
            return codec.encode_failed(Failed(
                batch.batch, False, f"logits {logits.shape} instead of {wanted}, or not finite"))
        return codec.encode_done(Done(batch.batch, infer_us, self.classes,
                                      logits.astype(LOGIT_TYPE, copy=False).tobytes()),
                                 len(batch.sizes))


def texts_of(batch: PackedBatch, id_type: np.dtype) -> Texts:
    """What a program runs. Raises ValueError where the ids are not whole."""
    width = id_type.itemsize
    sizes = [size // width for size in batch.sizes]
    ids = np.frombuffer(batch.ids, id_type)
    if sum(sizes) != len(ids):
        raise ValueError(f"a text's ids are no multiple of {width} bytes")
    return Texts(ids, sizes, batch.splits)
