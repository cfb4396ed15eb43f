"""A front's process: the loop that turns its clients' bytes into requests in flight, and back.

One epoll loop, no threads, nothing that waits. A turn takes what its sockets have, goes on with
work that was cut into pieces, looks at the timers, and sends what came of it: all texts of a turn
leave for the dispatcher in one message. Each step of a turn is bounded, so that a hostile client
costs its neighbours milliseconds.
"""

import gc
import os
import select
import time
from collections import deque

from loader.prepare import map_file, open_card
from loader.tokenizers.table import open_tokenizer
from server import codec, link, log
from server.actions import Answers, Finish, SendCancel, SendGroups, SendHello
from server.cache import share_out
from server.classify import Classifier
from server.clients import Clients
from server.connection import Connection
from server.doors import Doors, capacity_of
from server.inflight import NEVER, InFlight, Limits
from server.messages import MessageError
from server.metrics import DRAINING, UP
from server.processes import ChildSpec, arm
from server.rehearsal import GROUP, Rehearsal
from server.replies import Replies
from server.requests import Requests, log_fault
from server.routes import Routes
from server.status import Status
from server.unread import Unread
from server.wakeups import Wakeups

# The page's sign of life, and a look at the neighbours and at timers, none of which is set for an
# earlier time but the deadlines of requests and those of streams.
LOOK_S = 0.1
SIGN_S = 0.02               # a turn's sign of life, and its Date, hold for those so soon after it
EVENTS_A_TURN = 32
MESSAGES_S = 0.008          # a turn's share for the dispatcher's messages
RELINK_S = 0.02
LATE_S = 1.0                # a turn that begins so late was stopped: clients get their time again
LEAVING = ("replaced", "draining")
IDLE_COLLECT_S = 30.0       # collect garbage while nothing happens, at most so often


def run(spec: ChildSpec) -> None:
    """Serves until the process is killed or the master ends."""
    arm(spec)
    Front(spec).serve()


class Front:
    """The shell around http1, inflight and the classifier."""

    def __init__(self, spec: ChildSpec) -> None:
        settings = spec.settings
        self.spec, self.page, self.control = spec, spec.page, spec.control
        now = time.monotonic()
        self.inflight = InFlight(spec.index, spec.incarnation, spec.generation, Limits(
            settings.max_wait_ms, settings.max_age_s, settings.outage_s,
            cache_bytes=share_out(settings.cache_mb, settings.fronts)[1]), now)
        self.replies = Replies()
        self.status = Status(spec.registry, spec.generation, self.inflight)
        self.requests = Requests(self.page, self.inflight, self.replies, self.status,
                                 settings.records)
        self.poll = select.epoll()
        self.poll.register(self.control, select.EPOLLIN)
        self.clients = Clients(
            self.poll, settings.max_body, settings.read_timeout,
            Routes(spec.keys, settings.allow_origin, bool(settings.records)), self.replies,
            self.requests)
        self.doors = Doors(
            spec.listeners, spec.index,
            [spec.registry.page("front", index, spec.generation)
             for index in range(len(spec.listeners))],
            self.poll, capacity_of(settings.fronts), spec.shared_listeners)
        self.requests.settle = self.clients.settle
        self.requests.hear_master = self._read_control
        self.clients.on_close = self._see_off
        self.link: link.Link | None = None
        self._link_number, self._control_number = -1, self.control.fileno()
        self.relink_at = now
        self.phase = ""
        self._is_leaving = self.has_told_open = self.has_told_drained = False
        self.rehearsal: Rehearsal | None = None
        self._messages: deque[bytes] = deque()
        self._ended_at = self._collected_at = now       # the last turn, and garbage
        self._look_at = 0.0         # when timers and neighbours are looked at, at the latest
        self._due_at = now          # when the next turn has something to do, socket or not
        self._patient_until = self._sign_at = self._longest_s = 0.0
        self._loading_s = 0.0       # a model, in this turn: nobody waits behind that
        self.wakeups, self.unread = Wakeups(), Unread(self.poll, settings.max_wait_ms)
        self._turn_peak = self.page.gauge("front_turn_seconds_max")
        self._hits = self.page.counter("cache_total", result="hit")
        self._open_connections = self.page.gauge("connections")
        self._open_requests = self.page.gauge("inflight")

    def serve(self) -> None:
        """Turns for ever."""
        self._read_control()
        self._connect(time.monotonic())
        self.page.set_state(UP)
        # What is here now stays; what dies young dies by its count. Old objects are looked through
        # only while nothing happens, because that takes longer than a turn may.
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 50, 100_000)
        self._ended_at = time.monotonic()
        while True:
            self.turn()

    def turn(self) -> None:
        """Waits for something to do, and does a bounded share of it."""
        asleep_at, due_at = self._ended_at, self._due_at
        # Rounded up to a millisecond, so that what is waited for is due when the wait ends.
        wait_s = max(0.001, due_at - asleep_at) if due_at > asleep_at else 0.0
        events = self.poll.poll(wait_s, EVENTS_A_TURN)
        now = time.monotonic()
        if now >= self._sign_at:
            self._sign_at = now + SIGN_S
            self.page.turn(now)
            self.replies.tick()
        self.wakeups.count(len(events))
        if now - asleep_at - wait_s > LATE_S:
            self._patient_until = now + LATE_S
        if len(events) == EVENTS_A_TURN or self.unread.is_watching:
            self._note_crowd(len(events), now)
        clients, inflight, others, at = self.clients, self.inflight, [], now
        connections, serve = clients.connections, clients.serve
        for number, mask in events:
            connection = connections.get(number)
            if connection is not None:
                try:
                    at = serve(connection, mask, at)
                except Exception as error:
                    self._lose(connection, error, at)
            elif number == self._link_number:
                self._serve_link(mask)
            else:
                others.append(number)
        # Last, because a new client may get the descriptor of one that left in this very turn.
        has_orders = bool(others) and self._serve_others(others, now)
        if self._messages:
            self._take_messages(now)
        if has_orders:
            # What a dead dispatcher had sent counts before its death does.
            self._hear_out(now)
            self._read_control()
        if clients.again:
            clients.go_on(time.monotonic())
        if self.requests.work:
            self.requests.go_on()
        # What was due before this turn, or when its last client was served; what a turn makes due
        # waits for the next, which begins at once.
        if at >= due_at or has_orders or self._is_leaving:
            self._look_at_timers(at)
        if inflight.unsent_lone:
            clients.express.count()
            self._send(codec.encode_lone(inflight.take_lone()))
        has_more = inflight.has_more() and self._act()
        ended = self._ended_at = time.monotonic()
        now, self._loading_s = now + self._loading_s, 0.0
        if ended - now > self._longest_s:
            self._longest_s = ended - now
            self._turn_peak.raise_to(ended - now)
        self._due_at = self._look_at
        if has_more or clients.again or self.requests.work or self._messages:
            self._due_at = ended
        elif inflight.deadlines or self.requests.streams:
            self._due_at = min(self._look_at, inflight.due_at(), self.requests.next_timer())
        if not events and ended - self._collected_at > IDLE_COLLECT_S:
            gc.collect()
            self._collected_at = self._ended_at = time.monotonic()

    def _serve_others(self, numbers: list[int], now: float) -> bool:
        """Lets in who knocks at listeners; whether the master has said something as well."""
        for number in numbers:
            if number == self.unread.number:
                self.unread.came(now)
            elif number != self._control_number:
                self._let_in(number)
        return self._control_number in numbers

    def _note_crowd(self, ready: int, now: float) -> None:
        self.requests.behind = self.unread.turn(
            ready, ready == EVENTS_A_TURN, self.inflight.state[3:5], now)
        if self.unread.is_watching and self.link is not None:
            self._receive()         # answers do not wait with those who come

    def _lose(self, connection: Connection, error: Exception, now: float) -> None:
        """A fault of ours costs this client alone."""
        log_fault(error)
        connection.is_gone = True
        self.clients.settle(connection, now)

    def _let_in(self, listener: int) -> None:
        now = time.monotonic()
        if len(self.clients.connections) >= self.doors.capacity:
            self.clients.close_idlest(now)
        self.clients.let_in(
            self.doors.accept(listener, len(self.clients.connections), now), now)
        self._look_at = 0.0         # there is somebody to count

    def _see_off(self) -> None:
        self.doors.released()
        self._look_at = 0.0

    def _look_at_timers(self, now: float) -> None:
        self._look_at = now + LOOK_S
        if now >= self.relink_at:
            self._connect(now)
        self._open_connections.set(len(self.clients.connections))
        self._open_requests.set(self.inflight.open_groups)
        self.doors.watch(now)
        if not self.has_told_open and self.doors.is_open:
            self.has_told_open = True
            self.control.send({"type": "opened"})
        self.clients.let_in(self.doors.last_clients(len(self.clients.connections), now), now)
        # Sockets first: what has come counts before a deadline does.
        self._hear_out(now)
        if self._messages:
            self._look_at = now
            return
        self.inflight.tick(now)
        self.requests.tick(now)
        if self.rehearsal is not None:
            self._tell_tested(self.rehearsal.tick(now))
        if now >= self._patient_until:
            self.clients.expire(now)
        self._look_at = min(self._look_at, self.inflight.due_at(), self.clients.next_timer(),
                            self.doors.next_timer(now), self.relink_at)
        if self._is_leaving and not self.has_told_drained \
                and not self.clients.connections and self.doors.is_closed:
            self.has_told_drained = True
            self.control.send({"type": "drained"})

    # ---- dispatcher ---------------------------------------------------------------------

    def _connect(self, now: float) -> None:
        self.link = link.connect(self.spec.dispatcher_name)
        if self.link is None:
            self.relink_at = now + RELINK_S
            return
        self.relink_at = NEVER
        self._link_number = self.link.fileno()
        self.poll.register(self.link, select.EPOLLIN)
        self.inflight.link_up(now)

    def _serve_link(self, mask: int) -> None:
        if mask & select.EPOLLOUT:
            self.link.flush()
            self.link.watch(self.poll)
        self._receive()

    def _receive(self) -> bool:
        """One message, if any: there is rarely a second, and to ask in vain costs as much."""
        data = self.link.receive_one()
        if data:
            self._messages.append(data)
        elif data is None:
            self._unlink(time.monotonic())
        return bool(data)

    def _hear_out(self, now: float) -> None:
        """Takes all that has come from the dispatcher, as far as a turn's share goes."""
        for _ in range(link.MESSAGES_A_READ):
            if self.link is None or not self._receive():
                break
        self._take_messages(now)

    def _take_messages(self, now: float) -> None:
        while self._messages:
            data = self._messages.popleft()
            answers = codec.read_answers(data)
            if answers is not None:
                answered = self.inflight.take_answers(answers)
                if answered:
                    self.clients.express.finish(answered)
                continue
            try:
                message = codec.decode(data)
            except MessageError as error:
                log.event("link_closed", why=error)
                self._messages.clear()
                if self.link is not None:
                    self._unlink(now)
                return
            self.inflight.receive(message, now)
            if self._messages and time.monotonic() - now > MESSAGES_S:
                return

    def _unlink(self, now: float) -> None:
        self.poll.unregister(self.link)
        self.link.close()
        self.link, self._link_number = None, -1
        self.relink_at = now + RELINK_S
        self._look_at = 0.0
        # Before the loss is known, so that what the dispatcher had sent is not asked for again.
        while self._messages:
            self._take_messages(time.monotonic())
        self.inflight.link_down(now)

    def _act(self) -> bool:
        """Does what requests in flight ask for; whether they ask for more."""
        inflight = self.inflight
        # Twice, because the end of one request may put the next into flight.
        for _ in range(2):
            if inflight.hits:
                self._hits.add(inflight.hits)
                inflight.hits = 0
            for action in inflight.take_actions():
                kind = type(action)
                if kind is Answers:
                    self.clients.express.finish(action.answered)
                elif kind is Finish:
                    if action.group != GROUP:
                        self.requests.finish(action.group, action.outcome)
                    else:
                        self._tell_tested(self.rehearsal.judge(
                            action.outcome, self.status.card, time.monotonic()))
                elif kind is SendGroups:
                    self._send(codec.encode_jobs(action.groups))
                elif kind is SendHello:
                    self._send([codec.encode_front_hello(action.hello)])
                elif kind is SendCancel:
                    self._send(codec.encode_cancel(action.cancel.jobs))
            if not inflight.has_more():
                return False
        return True

    def _send(self, messages: list[bytes]) -> None:
        for message in messages:
            if not self.link.send(message):
                self.link.watch(self.poll)

    # ---- master -------------------------------------------------------------------------

    def _read_control(self) -> None:
        messages, has_ended = self.control.receive_all()
        now = time.monotonic()
        for message, descriptors in messages:
            kind = message["type"]
            if kind == "model":
                self._take_model(*descriptors)
            elif kind == "card":
                self.status.card = open_card(descriptors[0])
                os.close(descriptors[0])
            elif kind == "phase":
                self._enter(message["phase"], now)
            elif kind == "reload":
                self.status.last_reload = message["last"]
            elif kind == "death" and message["role"] == "dispatcher":
                self.inflight.dispatcher_died(message["incarnation"], message["fault"])
        if has_ended:
            os._exit(0)     # the master is gone

    def _take_model(self, card: int, tokenizer: int) -> None:
        begun = time.monotonic()
        facts = open_card(card)
        self.clients.set_classifier(Classifier(
            facts, open_tokenizer(map_file(tokenizer)), self.spec.settings, self.page,
            self.inflight, self.replies))
        self.status.card = facts
        os.close(card)
        os.close(tokenizer)
        self._loading_s = time.monotonic() - begun
        if self.phase == "rehearsal":
            self._rehearse()

    def _rehearse(self) -> None:
        self.rehearsal = Rehearsal(self.requests.classifier, self.inflight, time.monotonic())

    def _tell_tested(self, fault: str | None) -> None:
        """The rehearsal's outcome, once there is one: a fault, or "" for none."""
        if fault is not None:
            self.control.send({"type": "tested", "fault": fault})

    def _enter(self, phase: str, now: float) -> None:
        """Each phase implies that the server was ready once: a successor queues, as all did."""
        self.phase, self._is_leaving = phase, phase in LEAVING
        self.inflight.set_ready(now)
        self.status.is_leaving = phase not in ("waiting", "rehearsal", "serving", "replaced")
        if phase in ("waiting", "rehearsal"):
            self.doors.hold()
            if phase == "rehearsal" and self.requests.classifier is not None:
                self._rehearse()
        elif phase == "serving":
            self.doors.open()
        elif phase in LEAVING:
            self.page.set_state(DRAINING)
            self.replies.is_draining = True
            if phase == "replaced":
                self.doors.close()
            else:
                self.doors.close_soon(now)
            self.clients.close_idle_at(now + self.spec.settings.drain_s / 2, now)
        elif phase == "stop":
            self.requests.give_up(now)
