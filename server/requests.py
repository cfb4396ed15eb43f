"""A front's requests: each is answered at once, or worked on in pieces and put into flight.

Work on a long body goes on in bounded pieces after everybody's sockets were served. What is in
flight comes back through `finish`.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from server import log
from server.actions import Outcome
from server.classify import INLINE_BYTES, Classifier
from server.connection import NEVER, Connection, Exchange
from server.errors import ClientError
from server.inflight import InFlight
from server.mapped import PARKED, BodySource, FileSource, Window, Windows
from server.messages import HIGH, Reason
from server.metrics import Page
from server.replies import TEXT, Replies
from server.returns import Returns
from server.routes import FILE, RECORDS, Plan
from server.status import Status

SHORT_ROUTE = "/infer"      # of all that goes the short way
PIECES_S = 0.004            # a turn's share for such pieces
# Refusals whose returns are spread; a deadline that is too short stays so.
SPREAD = (Reason.WAIT.name.lower(), Reason.FULL.name.lower())


class Work(NamedTuple):
    """A body that is worked on in pieces; `size` bytes are held for it."""

    exchange: Exchange
    task: Iterator
    stream: Windows | None
    size: int


class Requests:
    """Answers the requests of one front; `classifier` is None until the model is there.

    `settle` is called with a connection that got an answer outside of its own turn. `hear_master`
    is called before a request is refused for what the master may have changed by now.
    """

    def __init__(self, page: Page, inflight: InFlight, replies: Replies, status: Status,
                 records: str) -> None:
        self.classifier: Classifier | None = None
        self.behind: tuple[int, ...] = ()       # classes that this front cannot read as they come
        self.is_over = False                    # the drain's time is: nothing more is computed
        self.settle: Callable[[Connection, float], None] = lambda connection, now: None
        self.hear_master: Callable[[], None] = lambda: None
        self.work: deque[Work] = deque()
        self.held_bytes = 0                     # of bodies that `work` has not finished with
        self._page = page
        self._inflight = inflight
        self._replies = replies
        self._status = status
        self._records = records
        self.streams: set[Windows] = set()
        self._counted: dict[tuple[str, int], Callable[[float], None]] = {}
        self._refused: dict[str, Callable[[float], None]] = {}
        self._has_worked = False
        self._returns = Returns(time.monotonic())

    def take(self, exchange: Exchange, content: bytes, now: float) -> None:
        """Answers a request whose body is there, or begins to."""
        plan = exchange.plan
        if plan.refusal is not None:
            self._replies.refuse(exchange, plan.refusal, now)
        elif plan.action == "infer":
            self._infer(exchange, plan, content, now)
        elif plan.action == "options":
            self._replies.send(exchange, 200, b"", TEXT, now)
        else:
            status, body, content_type = self._status.answer(plan.action, now)
            self._replies.send(exchange, status, body, content_type, time.monotonic(),
                               b"Retry-After: 1\r\n" if status == 503 else b"")

    def _infer(self, exchange: Exchange, plan: Plan, content: bytes, now: float) -> None:
        inflight, classifier = self._inflight, self.classifier
        if not inflight.is_ready:
            self.hear_master()
            classifier = self.classifier
        refusal = self.early_refusal(plan.priority, now)
        if refusal is None and classifier is None:
            refusal = Outcome("not_ready", retry_ms=1000)
        if refusal is None and self.is_over:
            refusal = Outcome("draining", retry_ms=1000)
        if refusal is not None:
            self.refuse(exchange, refusal, now)
            return
        try:
            if plan.kind == RECORDS:
                self._start(Windows(classifier, exchange, BodySource(content), False, self._wake),
                            len(content))
            elif plan.kind == FILE:
                self._start(Windows(classifier, exchange, FileSource(self._records, content), True,
                                    self._wake), INLINE_BYTES + 1)
            else:
                task = classifier.start(exchange, content)
                if task is not None:
                    self._queue(Work(exchange, task, None, len(content)))
        except ClientError as error:
            self._replies.refuse(exchange, error, now)
        except Exception as error:
            self.fault(exchange, error)

    def early_refusal(self, priority: int, now: float) -> Outcome | None:
        """Why a new request is not taken, known before it is even tokenised."""
        inflight = self._inflight
        refusal = inflight.early_refusal(priority, now)
        if refusal is None and priority in self.behind:
            state = inflight.state
            wait_ms = state.backlog_high_ms if priority == HIGH else state.backlog_low_ms
            return Outcome("refused", reason="full", retry_ms=int(wait_ms) + 1)
        return refusal

    def _start(self, stream: Windows, size: int) -> None:
        stream.exchange.stream = stream
        self.streams.add(stream)
        if size > INLINE_BYTES:
            self._queue(Work(stream.exchange, stream.task, stream, size))
            return
        while self._step(stream.exchange, stream.task, stream):
            continue

    def _queue(self, work: Work) -> None:
        self.held_bytes += work.size
        self.work.append(work)

    def _step(self, exchange: Exchange, task: Iterator, stream: Windows | None) -> bool:
        """One piece of work on a body; whether another can follow at once."""
        try:
            return next(task) is not PARKED
        except StopIteration:
            pass
        except ClientError as error:
            self._replies.refuse(exchange, error, time.monotonic())
        except Exception as error:
            self.fault(exchange, error)
        if stream is not None:
            self._end_stream(stream)
        return False

    def fault(self, exchange: Exchange, error: Exception) -> None:
        """A fault of ours costs this request alone, not the front and all its clients."""
        log_fault(error, self._replies.trace_id(exchange))
        if exchange.status:
            exchange.connection.is_gone = True
            return
        if exchange.stream is not None:
            self._end_stream(exchange.stream)
            exchange.stream = None
        self._replies.refuse_outcome(exchange, Outcome("failed"), time.monotonic())

    def _wake(self, stream: Windows) -> None:
        self.work.append(Work(stream.exchange, stream.task, stream, 0))

    def _end_stream(self, stream: Windows) -> None:
        self.streams.discard(stream)
        stream.abandon()
        stream.task.close()

    def go_on(self) -> None:
        """A turn's share of work that was cut into pieces."""
        until = time.monotonic() + PIECES_S
        while self.work:
            work = self.work.popleft()
            exchange, task, stream, size = work
            if not exchange.is_gone and self._step(exchange, task, stream):
                self.work.append(work)
            else:
                self.held_bytes -= size
                if exchange.is_gone:
                    task.close()
                else:
                    self.settle(exchange.connection, time.monotonic())
            if time.monotonic() > until:
                break

    def refuse(self, exchange: Exchange, outcome: Outcome, now: float) -> None:
        """Answers with what is not "ok", and counts it among refusals if it is one."""
        if outcome.reason in SPREAD:
            outcome.retry_ms = self._returns.give_ms(outcome.retry_ms, now)
        self._count_refusal(self._replies.refuse_outcome(exchange, outcome, now))

    def refuse_resting(self, connection: Connection, outcome: Outcome, now: float) -> None:
        """As `refuse` of what the short way has read, without an exchange: under overload most
        requests end here, and what each takes is taken from the answers of others."""
        if outcome.reason in SPREAD:
            outcome.retry_ms = self._returns.give_ms(outcome.retry_ms, now)
        status, answer, reason = self._replies.refusal(outcome)
        self._count_refusal(reason)
        self._count(SHORT_ROUTE, status, 1)
        if not connection.answer_calm(answer, now):
            self.settle(connection, now)

    def _count_refusal(self, reason: str) -> None:
        if reason:
            add = self._refused.get(reason)
            if add is None:
                add = self._page.counter("refused_total", reason=reason).add
                self._refused[reason] = add
            add()

    def finish(self, group: int, outcome: Outcome) -> None:
        """A group in flight came to its end."""
        classifier = self.classifier
        target = classifier.targets.pop(group, None)
        if target is None:
            return
        now = time.monotonic()
        if type(target) is Window:
            self._finish_window(target, outcome, now)
            return
        target.group = 0
        try:
            if outcome.kind == "ok":
                self._returns.answered(now)
                classifier.finish(target, outcome)
            else:
                self.refuse(target, outcome, now)
        except Exception as error:
            self.fault(target, error)
        self.settle(target.connection, now)

    def _finish_window(self, window: Window, outcome: Outcome, now: float) -> None:
        stream = window.owner
        try:
            stream.ended(window, outcome, now)
        except Exception as error:
            self.fault(stream.exchange, error)
        if stream.is_over:
            self._end_stream(stream)
        self.settle(stream.exchange.connection, now)

    def abandon(self, exchange: Exchange) -> None:
        """The client left: gives up what is queued for it."""
        if exchange.group:
            self.classifier.abandon(exchange.group)
        stream = exchange.stream
        if stream is not None:
            self._end_stream(stream)
            if exchange.status:
                return          # counted when its answer began
        exchange.status = 499
        self.count(exchange)

    def give_up(self, now: float) -> None:
        """The drain's time is over: what is still open is answered so."""
        self.is_over = True
        targets = list(self.classifier.targets.values()) if self.classifier is not None else []
        open_ones = [target for target in targets if type(target) is Exchange]
        open_ones += [work.exchange for work in self.work
                      if work.stream is None and not work.exchange.is_gone]
        self.work.clear()
        for exchange in open_ones:
            if exchange.group:
                self.classifier.abandon(exchange.group)
            self.refuse(exchange, Outcome("draining", retry_ms=1000), now)
            self.settle(exchange.connection, now)
        for stream in list(self.streams):
            stream.fail(Outcome("draining", retry_ms=1000))
            self._end_stream(stream)
            self.settle(stream.exchange.connection, now)

    def next_timer(self) -> float:
        """When `tick` has work next, monotonic seconds."""
        if not self.streams:
            return NEVER
        return min(stream.next_timer() for stream in self.streams)

    def tick(self, now: float) -> None:
        """Tries again what was refused for the moment."""
        for stream in self.streams:
            stream.tick(now)

    def count(self, exchange: Exchange) -> None:
        """Counts an answer; called before any of its bytes is handed to the kernel."""
        plan = exchange.plan
        self._count(plan.route if plan is not None else "none", exchange.status, 1)

    def answered(self, answers: int, written: int, now: float) -> None:
        """Notes answers that the short way made, and counts those that it writes at once, like
        `count` before any of their bytes is handed to the kernel."""
        self._returns.answered(now, answers)
        if written:
            self._count(SHORT_ROUTE, 200, written)

    def _count(self, route: str, code: int, answers: int) -> None:
        add = self._counted.get((route, code))
        if add is None:
            add = self._page.counter("requests_total", route=route, code=code).add
            self._counted[route, code] = add
        add(answers)
        if not self._has_worked:
            self._has_worked = True
            self._page.set_worked()


def log_fault(error: Exception, trace_id: str | None = None) -> None:
    """Says where an exception came from; not its text, which may hold a client's."""
    where = error.__traceback__
    while where.tb_next is not None:
        where = where.tb_next
    log.event("front_fault", error=type(error).__name__, trace_id=trace_id,
              where=f"{where.tb_frame.f_code.co_filename}:{where.tb_lineno}")
