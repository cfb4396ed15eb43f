"""What a front holds: every request it accepted, with all facts, until it is answered (pure).

A front owns its requests; the dispatcher only orders them. So everything that must survive the
dispatcher's death is kept here: rows, deadlines, blame. A job's number is never used twice in one
life of a front, and answers to unknown numbers are dropped: that is the whole defence against late,
repeated and stale results.

Life of a group (one request): open → sent → answered once, by one Finish action or, where it was
opened as a lone text and has its result, in an action of Answers. It ends by its results, a
refusal, blame (three faults), its deadline, its age, or because its client left. When the link to
the dispatcher is lost, open jobs are sent again in arrival order; a job sent five times travels
alone, so that three more dispatcher deaths by fault blame it and nobody else.
"""

import heapq
import math
from collections import deque
from collections.abc import Sequence

from server.actions import Answer, Answers, Finish, Outcome, SendCancel, SendGroups, SendHello
from server.cache import Cache, key_of
from server.codec import LONE, read_lone
from server.held import (HeldGroup, HeldJob, Limits, Lone, Packed, message_of,
                         opened_at)
from server.messages import (CACHE, FAULTS_TO_BLAME, HIGH, RESULT_OK, SENDS_BEFORE_ALONE, Cancel,
                             FrontHello, Group, Job, Notes, Reason, Refused, Result, Results, Row,
                             State)

# Jobs sent again in one turn after a new link, so that a full front stays responsive.
RESEND_SLICE_JOBS = 256
NEVER = math.inf
_NO_ROOM = (NEVER, NEVER)


class InFlight:
    """A front's open requests. Events return nothing; `take_actions` gives what to do."""

    def __init__(self, front: int, incarnation: int, generation: int, limits: Limits,
                 now: float) -> None:
        self.hello = FrontHello(front, incarnation, generation)
        self.limits = limits
        self.is_ready = False
        self.state = State(False, 0, 0, 0.0, 0.0)
        self._waits_ms = _NO_ROOM       # of HIGH and LOW, as the last State says
        self.stale_results = 0
        self.hits = 0                   # texts that this front itself knew the answer of
        self._known = Cache(limits.cache_bytes) if limits.cache_bytes else None
        self._groups: dict[int, HeldGroup | Lone | Packed] = {}
        self._jobs: dict[int, HeldJob | Lone | Packed] = {}
        self._next_job = 1
        self._bytes = 0
        self._is_linked = False
        self._unsent: deque[HeldGroup | Lone | Packed] = deque()
        self.unsent_lone: list[Packed] = []     # those that were never sent
        self._suspects: deque[HeldJob | Lone] = deque()
        self._alone: HeldJob | Lone | None = None
        # Dispatcher's incarnation → the job that it was given alone last, until it is judged.
        self._given_alone: dict[int, HeldJob | Lone] = {}
        self._cancelled: list[int] = []
        self.deadlines: list[tuple[float, int]] = []    # a heap of (deadline, group), some over
        self._served_at = now
        self._actions: list[object] = []

    @property
    def open_groups(self) -> int:
        return len(self._groups)

    @property
    def open_jobs(self) -> int:
        return len(self._jobs)

    def set_ready(self, now: float) -> None:
        """The server has been ready before, so that from now on requests queue, whoever dies."""
        if not self.is_ready:
            self.is_ready = True
            self._served_at = now

    def welcomes(self, priority: int) -> bool:
        """Whether a request is taken for sure: at a glance, what `early_refusal` says in full."""
        limits = self.limits
        return (self._waits_ms[priority] <= limits.max_wait_ms and self.is_ready
                and len(self._jobs) < limits.max_jobs and self._bytes < limits.max_bytes)

    def early_refusal(self, priority: int, now: float) -> Outcome | None:
        """Why a new request would not be taken, known before it is even tokenised."""
        if not self.is_ready:
            return Outcome("not_ready", reason="the model is still being loaded", retry_ms=1000)
        self._note_service(now)
        if now - self._served_at > self.limits.outage_s:
            return Outcome("outage", reason="no engine is running", retry_ms=1000)
        state = self.state
        return self.limits.refusal(
            state.backlog_high_ms if priority == HIGH else state.backlog_low_ms, state.is_full,
            len(self._jobs), self._bytes)

    def open(self, group: int, connection: int, priority: int, deadline: float | None,
             rows: Sequence[Row], now: float, partial: bool = False) -> None:
        """Takes a request; from here on it is answered by exactly one Finish.

        `group` must be new in this life of the front; `rows` is not empty; `deadline` is
        monotonic seconds; in a `partial` group a row that fails does not fail the others.
        """
        jobs: list[HeldJob] = []
        held = HeldGroup(group, connection, priority, NEVER if deadline is None else deadline, 0,
                      jobs, partial, now, [None] * len(rows), len(rows))
        number = self._next_job
        for index, row in enumerate(rows):
            if self._known is not None and self._answer(held, index, row):
                continue
            job = HeldJob(number, row.tokens, row.split, 0, 0, row.ids, held, index)
            self._jobs[number] = job
            number += 1
            self._bytes += len(row.ids)
            jobs.append(job)
        self._next_job = number
        held.count = len(jobs)
        self._groups[group] = held
        if not held.remaining:
            self._finish(held, Outcome("ok", held.results))
            return
        if deadline is not None:
            heapq.heappush(self.deadlines, (deadline, group))
        if self._is_linked:
            self._unsent.append(held)

    def open_lone(self, group: int, connection: int, priority: int, deadline: float,
                  tokens: int, split: int, ids: bytes, now: float) -> None:
        """As `open`, of one text; `deadline` is NEVER for none. Its "ok" comes in Answers."""
        if self._known is not None:
            logits = self._known.get(key_of(Row(tokens, split, ids)))
            if logits is not None:
                self.hits += 1
                answer = 0, RESULT_OK, CACHE, 0, 0, 0, 0, len(logits) // 4, logits
                self._actions.append(Answers([(group, answer)]))
                return
        number, size = self._next_job, len(ids)
        # As it travels: it has no deaths and is sent for the first time.
        packed = (group, now, LONE.pack(group, connection, deadline, priority, number, tokens,
                                        split, size, 0, 1), ids)
        self._next_job = number + 1
        self._jobs[number] = self._groups[group] = packed
        self._bytes += size
        self.unsent_lone.append(packed)
        if deadline != NEVER:
            heapq.heappush(self.deadlines, (deadline, group))
        if not self._is_linked:
            self._unpack(packed)

    def _answer(self, held: HeldGroup, index: int, row: Row) -> bool:
        """Answers a row if its answer is known here."""
        logits = self._known.get(key_of(row))
        if logits is None:
            return False
        held.results[index] = Result(0, RESULT_OK, CACHE, 0, 0, 0, 0, logits)
        held.remaining -= 1
        self.hits += 1
        return True

    def cancel(self, group: int) -> None:
        """The client left: the group's queued work is cancelled and nothing is answered."""
        held = self._held(group)
        if held is not None:
            self._forget(held)

    def _held(self, group: int) -> HeldGroup | Lone | None:
        held = self._groups.get(group)
        return self._unpack(held) if type(held) is tuple else held

    def _unpack(self, packed: Packed) -> Lone:
        """The Lone, from now on, of a text that is in flight as Packed."""
        lone = read_lone(packed)
        lone.dispatcher_faults = 0
        self._jobs[lone.job] = self._groups[lone.group] = lone
        if packed in self.unsent_lone:
            self.unsent_lone.remove(packed)     # it goes the way of the others
            lone.sends = 0
            if self._is_linked:
                self._unsent.append(lone)
        return lone

    def link_up(self, now: float) -> None:
        """A new link to a dispatcher: everything open is sent (again), in arrival order."""
        self._is_linked = True
        self._actions.append(SendHello(self.hello))
        self._unsent = deque(self._groups.values())
        self._suspects.clear()

    def link_down(self, now: float) -> None:
        """The link ended: its dispatcher may be dead, which the master will tell."""
        self._note_service(now)
        self._is_linked = False
        for packed in self.unsent_lone.copy():
            self._held(packed[0])
        self._unsent.clear()
        self._cancelled.clear()
        # What was still to be sent on it is sent again with the next.
        self._actions = [one for one in self._actions if isinstance(one, (Answers, Finish))]
        self._alone = None
        self.state = State(self.state.ready, 0, 0, 0.0, 0.0)
        self._waits_ms = _NO_ROOM

    def dispatcher_died(self, incarnation: int, is_fault: bool) -> None:
        """The master's verdict on a dispatcher, before or after its link's end is seen; blames the
        job that it was given alone."""
        job = self._given_alone.pop(incarnation, None)
        if job is None or not is_fault or job.job not in self._jobs:
            return
        job.dispatcher_faults += 1
        if job.dispatcher_faults >= FAULTS_TO_BLAME:
            self._fail(job)

    def receive(self, message: object, now: float) -> None:
        """A decoded message of the dispatcher; kinds that a front never gets are ignored."""
        if isinstance(message, Results):
            answered = self.take_answers([
                (r.job, r.status, r.kind, r.engine, r.batch_size, r.queue_us, r.infer_us,
                 len(r.logits) // 4, r.logits) for r in message.results])
            if answered:
                self._actions.append(Answers(answered))
        elif isinstance(message, State):
            self._note_service(now)
            self.state = message
            self._waits_ms = message[3:5] if message.engines and not message.is_full else _NO_ROOM
            if message.ready:
                self.set_ready(now)
            self._note_service(now)
        elif isinstance(message, Refused):
            for refusal in message.refusals:
                held = self._held(refusal.group)
                if held is not None:
                    self._finish(held, Outcome("refused", (), Reason(refusal.reason).name.lower(),
                                               refusal.retry_ms))
        elif isinstance(message, Notes):
            for note in message.notes:
                job = self._jobs.get(note.job)
                job = self._unpack(job) if type(job) is tuple else job
                if job is not None:
                    job.deaths = max(job.deaths, note.deaths)
                    if job.deaths >= FAULTS_TO_BLAME:
                        self._fail(job)

    def take_answers(self, answers: Sequence[Answer]) -> list[tuple[int, Answer]]:
        """Results of the dispatcher, as codec.read_answers gives them; the groups that were opened
        as lone texts and are answered now, as in Answers."""
        jobs, groups, freed = self._jobs, self._groups, 0
        answered: list[tuple[int, Answer]] = []
        for answer in answers:
            number = answer[0]
            packed = jobs.get(number)
            if type(packed) is tuple and answer[1] == RESULT_OK and answer[2] != CACHE:
                group, _, _, ids = packed
                del jobs[number], groups[group]
                freed += len(ids)
                answered.append((group, answer))
            elif self._take_result(packed, answer):
                answered.append((packed[0] if type(packed) is tuple else packed.group, answer))
        self._bytes -= freed
        return answered

    def tick(self, now: float) -> None:
        """Ends what has passed its deadline or its age."""
        while self.deadlines and self.deadlines[0][0] <= now:
            held = self._held(heapq.heappop(self.deadlines)[1])
            if held is not None:
                self._finish(held, Outcome("deadline"))
        while self._groups:
            oldest = next(iter(self._groups))
            if opened_at(self._groups[oldest]) + self.limits.max_age_s > now:
                break
            self._finish(self._held(oldest), Outcome("aged", retry_ms=1000))

    def has_more(self) -> bool:
        """Whether `take_actions` has anything."""
        return bool(self._actions or self._unsent or self._cancelled or self.unsent_lone
                    or (self._suspects and self._may_send_suspect()))

    def due_at(self) -> float:
        """When `tick` has work next, in monotonic seconds; NEVER for never."""
        deadlines, due = self.deadlines, NEVER
        while deadlines and deadlines[0][1] not in self._groups:
            heapq.heappop(deadlines)
        for held in self._groups.values():      # the oldest
            due = opened_at(held) + self.limits.max_age_s
            break
        return min(due, deadlines[0][0]) if deadlines else due

    def next_timer(self, now: float) -> float | None:
        """When `tick` or `take_actions` has work next, in monotonic seconds; None for never."""
        due = now if self.has_more() else self.due_at()
        return None if due == NEVER else due

    def take_lone(self) -> list[Packed]:
        """The lone texts that are to be sent (codec.encode_lone)."""
        unsent, self.unsent_lone = self.unsent_lone, []
        return unsent

    def take_actions(self) -> list[object]:
        """What to do now, in order: what ended, then what is to be sent beside `take_lone`."""
        if self._is_linked:
            if self._cancelled:
                self._actions.append(SendCancel(Cancel(self._cancelled)))
                self._cancelled = []
            if self._unsent or self._suspects:
                groups = self._next_groups()
                if groups:
                    self._actions.append(SendGroups(groups))
        actions, self._actions = self._actions, []
        return actions

    def _next_groups(self) -> list[Group]:
        groups, budget = [], RESEND_SLICE_JOBS
        while self._unsent and budget > 0:
            held = self._unsent.popleft()
            if type(held) is tuple:
                held = self._held(held[0])
                if held is None:
                    continue
            if not held.jobs[0].sends:      # never sent; then it is whole, or has ended
                if held.group in self._groups:
                    for job in held.jobs:
                        job.sends = 1
                    groups.append(held)
                    budget -= held.count
                continue
            jobs = [job for job in held.jobs if job.job in self._jobs]
            together = [job for job in jobs if job.sends < SENDS_BEFORE_ALONE]
            self._suspects.extend(job for job in jobs if job.sends >= SENDS_BEFORE_ALONE)
            if together:
                groups.append(message_of(held, together))
                budget -= len(together)
        while self._suspects and self._may_send_suspect():
            job = self._suspects.popleft()
            if job.job in self._jobs:
                self._alone = self._given_alone[self.state.incarnation] = job
                groups.append(message_of(job.held, [job]))
        return groups

    def _may_send_suspect(self) -> bool:
        """Whether a suspect may go: one at a time, and only once the dispatcher's STATE has said
        which life it is, so that nobody is blamed for the death of another."""
        return self._alone is None and self.state.incarnation > 0

    def _take_result(self, job: HeldJob | Lone | Packed | None, answer: Answer) -> bool:
        """Takes any result; whether it answers a lone text."""
        if job is None:
            self.stale_results += 1
            return False
        if type(job) is tuple:
            job = self._unpack(job)
        if answer[1] != RESULT_OK:
            self._fail(job)
            return False
        if answer[2] == CACHE and self._known is not None:
            self._known.put(key_of(job), answer[8])
        if type(job) is Lone:
            self._drop(job)
            del self._groups[job.group]
            return True
        job.held.results[job.index] = Result(*answer[:7], answer[8])
        self._close(job)
        return False

    def _fail(self, job: HeldJob | Lone) -> None:
        if job.held.partial:
            self._close(job)
        else:
            self._finish(job.held, Outcome("failed"))

    def _close(self, job: HeldJob) -> None:
        """One job has its end; the group's is reached with its last."""
        self._drop(job)
        held = job.held
        held.remaining -= 1
        if not held.remaining:
            del self._groups[held.group]
            self._actions.append(Finish(held.group, Outcome("ok", held.results)))

    def _finish(self, held: HeldGroup | Lone, outcome: Outcome) -> None:
        self._forget(held)
        self._actions.append(Finish(held.group, outcome))

    def _forget(self, held: HeldGroup | Lone) -> None:
        del self._groups[held.group]
        for job in held.jobs:
            if job.job in self._jobs:
                self._drop(job)
                if job.sends and self._is_linked:
                    self._cancelled.append(job.job)

    def _drop(self, job: HeldJob | Lone) -> None:
        del self._jobs[job.job]
        self._bytes -= len(job.ids)
        if job is self._alone:
            self._alone = None

    def _note_service(self, now: float) -> None:
        if self._is_linked and self.state.engines:
            self._served_at = now
