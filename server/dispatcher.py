"""The dispatcher's process: links and clock around the scheduler, which decides everything.

A turn drains every readable link, then lets the scheduler act, then sends. Nothing here blocks and
nobody stops reading because it cannot write: what waits for a slow peer is bounded by the jobs that
the peer has open. The dispatcher kills nobody and owns nothing whose loss matters.
"""

import gc
import time
from dataclasses import dataclass, field
from select import EPOLLIN, EPOLLOUT, epoll

from server import codec, link, log
from server.cache import share_out
from server.dispatch import (Answered, Measured, Policy, RunBatch, SendNotes, SendRefused,
                             SendResults, SendState)
from server.messages import (ENGINE_KINDS, HIGH, Cancel, Done, EngineHello, Failed, FrontHello,
                             Jobs, LoneJobs, MessageError, Note, PackedBatch, Refusal)
from server.metrics import UP
from server.processes import ChildSpec, arm
from server.scheduler import Scheduler
from server.wakeups import Wakeups

# How long a turn may wait: the page's lease needs a sign of life more often than it ends.
LONGEST_WAIT_S = 0.5
# How often a turn looks whether more has come before it acts. It takes one message a look from each
# link: to look once for all costs less than to read each until it has nothing.
LOOKS_A_TURN = 4
# Behind a longer batch nobody should have to wait for the core.
SHORT_S = 0.002


@dataclass(slots=True, eq=False)
class _Peer:
    """A link and who is behind it, once its HELLO has said so; `out` is this turn's output."""

    link: link.Link
    front: tuple[int, int] | None = None
    engine: tuple[int, int] | None = None
    kind: int = 0
    results: list[bytes] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)


def run(spec: ChildSpec) -> None:
    """Serves until the process is killed or the master ends."""
    arm(spec)
    Dispatcher(spec).serve()


class Dispatcher:
    """The shell: sockets in, events to the scheduler, actions out."""

    def __init__(self, spec: ChildSpec) -> None:
        settings = spec.settings
        self.spec, self.page, self.control = spec, spec.page, spec.control
        self.listener = spec.dispatcher_listener
        self.scheduler = Scheduler(spec.incarnation, Policy(
            settings.engines, settings.max_wait_ms, settings.high_share,
            max_age_s=settings.max_age_s,
            cache_bytes=share_out(settings.cache_mb, settings.fronts)[0]))
        self.peers: dict[int, _Peer] = {}
        self.fronts: dict[tuple[int, int], _Peer] = {}
        self.engines: dict[tuple[int, int], _Peer] = {}
        self.has_told_ready = False
        self.recomputed = 0
        # Without `selectors`, whose Python would be a tenth of a turn.
        self.epoll = epoll()
        self.epoll.register(self.listener, EPOLLIN)
        self.epoll.register(self.control, EPOLLIN)
        self.metrics = _Metrics(self.page)
        self.wakeups = Wakeups()

    def serve(self) -> None:
        self.page.turn(time.monotonic())
        self.page.set_state(UP)
        self.page.set_worked()
        # What is here now is looked through no more, above all the cache, however it grows: its
        # 256 MiB would stop everybody for 0.14 s at every full collection.
        gc.collect()
        gc.freeze()
        while True:
            self.turn()

    def turn(self) -> None:
        now = time.monotonic()
        timer = self.scheduler.next_timer(now)
        wait_s = LONGEST_WAIT_S if timer is None else min(max(timer - now, 0.0), LONGEST_WAIT_S)
        events = self.epoll.poll(wait_s)
        now = time.monotonic()
        self.page.turn(now)
        verdicts = []
        looks = 1
        while events:
            for descriptor, mask in events:
                peer = self.peers.get(descriptor)
                if peer is not None:
                    self._serve(peer, mask, now)
                elif descriptor == self.listener.fileno():
                    self._accept()
                elif descriptor == self.control.fileno():
                    verdicts += self.control.receive()
            if looks == LOOKS_A_TURN:
                break
            events = self.epoll.poll(0)
            looks += 1
        # Links before verdicts: what a dead engine had sent is its work, not its fault. What is not
        # read yet is: the scheduler keeps a verdict until the link has ended.
        for message, _ in verdicts:
            if message["type"] == "death" and message["role"] == "engine":
                self.scheduler.death(message["index"], message["incarnation"], message["fault"])
            elif message["type"] == "leaving":
                self.scheduler.leaving(message["index"], message["incarnation"])
        self._act(now)

    # ---- in -----------------------------------------------------------------------------

    def _accept(self) -> None:
        while True:
            accepted = link.accept(self.listener)
            if accepted is None:
                return
            peer = _Peer(accepted)
            self.peers[accepted.fileno()] = peer
            self.epoll.register(accepted, EPOLLIN)

    def _serve(self, peer: _Peer, mask: int, now: float) -> None:
        if mask & EPOLLOUT:
            peer.link.flush()
            peer.link.watch(self.epoll)
        if mask & ~EPOLLOUT:
            self._read(peer, now)

    def _read(self, peer: _Peer, now: float) -> None:
        data = peer.link.receive_one()
        try:
            if data:
                self._take(peer, codec.decode(data), now)
        except MessageError as error:
            log.event("link_closed", front=peer.front, engine=peer.engine, why=error)
            data = None
        if data is None:
            self._drop(peer)

    def _take(self, peer: _Peer, message: object, now: float) -> None:
        scheduler = self.scheduler
        if peer.front is not None:
            if isinstance(message, LoneJobs):
                scheduler.lone(peer.front, message, now)
                return
            if isinstance(message, Jobs):
                scheduler.jobs(peer.front, message.groups, now)
                return
            if isinstance(message, Cancel):
                scheduler.cancel(peer.front, message.jobs)
                return
        elif peer.engine is not None:
            if isinstance(message, Done) and scheduler.done(*peer.engine, message, now):
                return
            if isinstance(message, Failed) and scheduler.failed(*peer.engine, message):
                log.event("batch_failed", engine=peer.engine[0], reason=message.reason)
                return
        elif isinstance(message, (FrontHello, EngineHello)):
            self._greet(peer, message)
            return
        raise MessageError(f"{type(message).__name__} does not belong here")

    def _greet(self, peer: _Peer, hello: FrontHello | EngineHello) -> None:
        if hello.generation != self.spec.generation:
            raise MessageError(f"generation {hello.generation}, this dispatcher serves "
                               f"{self.spec.generation}")
        if isinstance(hello, FrontHello):
            peer.front = hello.front, hello.incarnation
            self._replace(self.fronts, peer.front, peer)
            self.scheduler.front_hello(peer.front)
            return
        peer.engine, peer.kind = (hello.index, hello.incarnation), hello.kind
        self._replace(self.engines, peer.engine, peer)
        self.scheduler.engine_hello(hello)
        self.metrics.engine_up(ENGINE_KINDS[hello.kind], hello.index, True)
        if not self.has_told_ready:
            self.has_told_ready = True
            self.control.send({"type": "ready"})

    def _replace(self, table: dict[tuple[int, int], _Peer], key: tuple[int, int],
                 peer: _Peer) -> None:
        """A process has one link: an older one of the same life is dropped."""
        older = table.get(key)
        if older is not None:
            self._drop(older)
        table[key] = peer

    def _drop(self, peer: _Peer) -> None:
        self.epoll.unregister(peer.link)
        del self.peers[peer.link.fileno()]
        peer.link.close()
        if peer.front is not None and self.fronts.get(peer.front) is peer:
            del self.fronts[peer.front]
            self.scheduler.front_gone(peer.front)
        elif peer.engine is not None and self.engines.get(peer.engine) is peer:
            del self.engines[peer.engine]
            self.scheduler.engine_gone(*peer.engine)
            self.metrics.engine_up(ENGINE_KINDS[peer.kind], peer.engine[0], False)

    # ---- out ----------------------------------------------------------------------------

    def _act(self, now: float) -> None:
        touched: dict[int, _Peer] = {}
        measured: list[Measured] = []
        for action in self.scheduler.take_actions(now):
            if isinstance(action, RunBatch):
                batch = action.batch
                self._say(self.engines[action.engine, action.incarnation],
                          codec.encode_packed(batch) if isinstance(batch, PackedBatch)
                          else codec.encode_batch(batch))
            elif isinstance(action, Measured):
                measured.append(action)
            elif isinstance(action, SendState):
                message = codec.encode_state(action.state)
                for peer in self.fronts.values():
                    self._say(peer, message)
                self.metrics.backlog(action.state.backlog_low_ms / 1e3)
            else:
                peer = self.fronts.get(action.source)
                if peer is not None:
                    touched[id(peer)] = peer
                    _collect(peer, action)
        for peer in touched.values():
            self._send(peer)
        for batch in measured:      # nobody waits for these
            self.metrics.batch(batch)
            self.wakeups.count(batch.size if batch.infer_s < SHORT_S else 0)
        if self.scheduler.recomputed != self.recomputed:
            self.metrics.recomputed(self.scheduler.recomputed - self.recomputed)
            self.recomputed = self.scheduler.recomputed
        self.metrics.shared(self.scheduler.sharing.counts)

    def _send(self, peer: _Peer) -> None:
        if peer.notes or peer.refusals:
            for message in codec.encode_notes(peer.notes) + codec.encode_refused(peer.refusals):
                self._say(peer, message)
            peer.notes, peer.refusals = [], []
        for message in codec.cut_results(peer.results):
            self._say(peer, message)
        peer.results = []

    def _say(self, peer: _Peer, message: bytes) -> None:
        if not peer.link.send(message):
            peer.link.watch(self.epoll)


def _collect(peer: _Peer, action: Answered | SendResults | SendRefused | SendNotes) -> None:
    if isinstance(action, Answered):
        peer.results += codec.pack_answered(action)
    elif isinstance(action, SendResults):
        peer.results += codec.pack_results(action.results)
    elif isinstance(action, SendRefused):
        peer.refusals.append(action.refusal)
    else:
        peer.notes += action.notes


class _Metrics:
    """The dispatcher's counters, each looked up once."""

    def __init__(self, page) -> None:
        self._page = page
        self._queue = [page.histogram("queue_seconds", priority="high" if number == HIGH else "low")
                       for number in range(2)]
        self._infer = [page.histogram("infer_seconds", engine_kind=kind) for kind in ENGINE_KINDS]
        self._size = page.histogram("batch_size")
        self._tokens = page.counter("tokens_total", kind="real")
        self._padding = page.counter("tokens_total", kind="padding")
        self._recomputed = page.counter("recomputed_total")
        self._cache = [page.counter("cache_total", result=result)
                       for result in ("hit", "join", "miss")]
        self._shared = [0, 0, 0]
        self._backlog = page.gauge("backlog_seconds")

    def batch(self, measured: Measured) -> None:
        self._size.observe(measured.size)
        self._tokens.add(measured.tokens)
        self._padding.add(measured.padding)
        self._infer[measured.kind].observe(measured.infer_s)
        for histogram, waited_s in zip(self._queue, measured.queued_s):
            for seconds, jobs in waited_s:
                histogram.observe(seconds, jobs)

    def recomputed(self, jobs: int) -> None:
        self._recomputed.add(jobs)

    def shared(self, counts: list[int]) -> None:
        """Jobs since the start by how they came to their answer, in the order of the labels."""
        if counts != self._shared:
            for counter, now, before in zip(self._cache, counts, self._shared):
                counter.add(now - before)
            self._shared = counts.copy()

    def backlog(self, seconds: float) -> None:
        self._backlog.set(seconds)

    def engine_up(self, kind: str, index: int, is_up: bool) -> None:
        self._page.gauge("engine_up", engine=f"{kind}-{index}").set(float(is_up))
