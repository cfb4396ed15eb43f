"""The dispatcher's order: who is admitted, who is answered, who is blamed (pure).

Events come in as method calls with `now` in monotonic seconds; `take_actions` gives what to send.
The scheduler owns nothing whose loss matters: every job is held by its front, which sends it again
to a successor. A job is QUEUED in a class's turns, RUNNING in a batch, HELD for the master's
verdict, or GONE (answered, cancelled, expired, its front dead); GONE jobs leave queues lazily.

Blame: the running batch of an engine that died is queued again at once, its jobs alone from then
on. Only the master knows the cause; until its verdict the death is unjudged, and a job with three
deaths, judged or not, waits. A verdict of fault counts against the batch's jobs and is noted to
their fronts; three, and the front answers for it.

A GPU engine's death speaks against its device, not against texts: what it ran is for CPU engines
from then on, unblamed.
"""

import math
from collections.abc import Sequence

from server.admission import are_let_in, is_let_in, refusal, work_of
from server.blocks import Block, answers_of
from server.dispatch import (Measured, Policy, SendNotes, SendRefused, SendResults, SendState,
                             Source)
from server.filling import Filling
from server.jobqueue import JobQueue
from server.linked import Run
from server.messages import (CPU, FAULTS_TO_BLAME, GPU, HIGH, LOW, NO_BATCH, RESULT_OK,
                             SENDS_BEFORE_ALONE, Done, EngineHello, Failed, Group, LoneJobs, Note,
                             Result, State)
from server.news import News
from server.pool import Pool
from server.sharing import Sharing, waiting_for
from server.turns import GONE, HELD, QUEUED, RUNNING, Entry


class Scheduler:
    """See the module's docstring. `incarnation` is the dispatcher's own."""

    def __init__(self, incarnation: int, policy: Policy) -> None:
        self.incarnation = incarnation
        self.policy = policy
        self.pool = Pool(policy.engines)
        self.is_ready = False
        self.recomputed = 0
        self.sharing = Sharing(policy.cache_bytes)
        self._queue = JobQueue(policy.high_share)
        self._by_source: dict[Source, dict[int, Entry | Block]] = {}
        self._parts: dict[tuple[Source, int], Group] = {}
        self._unjudged: dict[tuple[int, int], list[Entry]] = {}
        self._verdicts: dict[tuple[int, int], bool] = {}
        self._order = 0
        self._news = News(policy)
        self._filling = Filling(self.pool, self._queue)
        self._actions: list[object] = []

    # ---- fronts -------------------------------------------------------------------------

    def front_hello(self, source: Source) -> None:
        """A front's new link: what came on an older one of the same life is void."""
        self.front_gone(source)
        self._by_source[source] = {}
        self._news.forget()

    def front_gone(self, source: Source) -> None:
        held = self._by_source.pop(source, {})
        for block in {block for block in held.values() if type(block) is Block}:
            self._expand(block)
        for entry in list(held.values()):
            self._end(entry)
        for key in [key for key in self._parts if key[0] == source]:
            del self._parts[key]

    def jobs(self, source: Source, groups: Sequence[Group], now: float) -> None:
        """Groups, or parts of them; each is admitted whole when its last part is here."""
        held, parts = self._by_source.get(source), self._parts
        if held is None:
            return
        for group in groups:
            earlier = parts.pop((source, group.group), None) if parts else None
            if earlier is not None:
                earlier.jobs.extend(group.jobs)
                group = earlier
            if len(group.jobs) < group.count:
                parts[source, group.group] = group
            else:
                self._admit(source, held, group, now)

    def lone(self, source: Source, lone: LoneJobs, now: float) -> None:
        """As `jobs`, of groups of one job each; they stay together while nothing distinguishes
        them."""
        held = self._by_source.get(source)
        if held is not None and not self._is_block(source, held, lone, now):
            self.jobs(source, lone.as_groups(), now)

    def _is_block(self, source: Source, held: dict[int, Entry | Block], lone: LoneJobs,
                  now: float) -> bool:
        """Queues them as one; False, and nothing is queued, where one might fare as no other."""
        pool, queue = self.pool, self._queue
        if self.sharing.is_on or self._parts or pool.gpus or not lone.is_plain() \
                or not held.keys().isdisjoint(lone.jobs):
            return False
        block = Block(source, held, lone, pool.costs[CPU], now, self._order + 1)
        places = dict.fromkeys(lone.jobs, block)
        if len(places) < len(block.jobs) or not are_let_in(queue, self.policy, block, pool.drain) \
                or not queue.put_block(block):
            return False
        held.update(places)
        self._order += len(places)
        return True

    def _expand(self, block: Block) -> None:
        """Something happens to one of its jobs."""
        if block.where == QUEUED:
            self._queue.expand(block)
        else:
            block.expand()

    def cancel(self, source: Source, jobs: Sequence[int]) -> None:
        held = self._by_source.get(source, {})
        for job in jobs:
            if type(held.get(job)) is Block:
                self._expand(held[job])
            entry = held.get(job)
            if entry is not None:
                self._end(entry)
        cancelled = set(jobs)
        for key, group in list(self._parts.items()):
            if key[0] == source and any(job.job in cancelled for job in group.jobs):
                del self._parts[key]

    def _admit(self, source: Source, held: dict[int, Entry], group: Group, now: float) -> None:
        if group.priority == HIGH:
            self._filling.high_came_at = now
        sharing, queue, pool = self.sharing, self._queue, self.pool
        hits = sharing.take_hits(group) if sharing.is_on else ()
        if not is_let_in(queue, self.policy, group, pool.drain) and sharing.adds_work(group):
            refused = refusal(queue, self.policy, source, group, now, work_of(pool, group))
            if refused is not None:
                self._actions.append(SendRefused(source, refused))
                self._news.refused(group.priority)
                return
        if hits:
            sharing.counts[0] += len(hits)
            self._actions.append(SendResults(source, hits))
        costs = pool.costs[CPU]
        for job in group.jobs:
            if job.job in held:
                continue
            self._order += 1
            held[job.job] = entry = Entry(
                source, job.job, group.group, group.connection, group.priority, group.deadline,
                now, self._order, job.tokens, job.split, job.ids, costs.share_ms(job.tokens),
                job.deaths, job.deaths > 0 or job.sends > SENDS_BEFORE_ALONE)
            if sharing.is_on:
                sharing.enter(entry)
            queue.put(entry)

    def wait_ms(self, priority: int) -> float:
        """The estimated wait of a job that came now on a connection that has nothing waiting."""
        return self._queue.ahead_ms(priority) * self.pool.drain if self._queue.count else 0.0

    # ---- engines ------------------------------------------------------------------------

    def engine_hello(self, hello: EngineHello) -> None:
        """An engine's new link. The first measured costs are kept and refined from then on."""
        key = hello.index, hello.incarnation
        if key in self.pool.engines:
            self.engine_gone(*key)
        self.death(*key, False)         # its link was cut, it lives: nobody is to blame
        self.is_ready = True
        self.pool.join(hello)

    def engine_gone(self, index: int, incarnation: int) -> None:
        """The end of an engine's link, after everything that it had sent was read."""
        engine = self.pool.part(index, incarnation)
        if engine is None:
            return
        if engine.hello.kind == GPU:
            self._for_cpu([entry for run in engine.runs for entry in run.entries])
            return
        running = engine.runs.popleft() if engine.runs else None
        if running is not None:
            suspects = self.sharing.interrupted(running.entries)
            for entry in suspects:
                entry.unjudged += 1
                entry.is_alone = True
            self._unjudged[engine.key] = suspects
            self._queue_again(suspects)
        for run in engine.runs:     # sent ahead, never begun
            self._queue_again(self.sharing.interrupted(run.entries))
        verdict = self._verdicts.pop(engine.key, None)
        if verdict is not None:
            self.death(index, incarnation, verdict)

    def death(self, index: int, incarnation: int, is_fault: bool) -> None:
        """The master's verdict on an engine's death; it may come before the end of its link."""
        key = index, incarnation
        if key in self.pool.engines:
            self._verdicts[key] = is_fault
            return
        for entry in self._unjudged.pop(key, ()):
            entry.unjudged -= 1
            entry.deaths += is_fault
            if entry.where == GONE:
                continue
            if is_fault:
                self._actions.append(SendNotes(entry.source, [Note(entry.job, entry.deaths)]))
            if entry.deaths >= FAULTS_TO_BLAME:
                self._end(entry)
            elif entry.where == HELD and entry.deaths + entry.unjudged < FAULTS_TO_BLAME:
                self._queue.put(entry)

    def leaving(self, index: int, incarnation: int) -> None:
        """An engine is about to go: it answers what it has, and gets nothing more."""
        engine = self.pool.engines.get((index, incarnation))
        if engine is not None:
            self.pool.set_leaving(engine)

    def done(self, index: int, incarnation: int, done: Done, now: float) -> bool:
        """A finished batch; False where it is nonsense or not one that this engine runs, so that
        its link should be closed."""
        engine = self.pool.engines.get((index, incarnation))
        run = engine.find(done.batch) if engine is not None else None
        if run is None or engine.ahead_of(run):
            return False
        width = 4 * done.classes
        if done.classes != engine.hello.classes or len(done.logits) != width * run.texts:
            self.failed(index, incarnation, Failed(done.batch, False, "nonsense"))
            return False
        engine.runs.remove(run)
        self.pool.learn(engine, run, done.infer_us / 1e3, now)
        if run.is_of_blocks:
            self._actions += answers_of(run, engine.hello.kind, index, done)
        else:
            self._answer(run, engine.hello.kind, index, done)
        return True

    def _answer(self, run: Run, kind: int, index: int, done: Done) -> None:
        by_source: dict[Source, list[Result]] = {}
        queued: tuple[list[tuple[float, int]], list[tuple[float, int]]] = [], []
        started_at, infer_us, size = run.sent_at, done.infer_us, len(run.entries)
        all_logits, width, at = done.logits, 4 * done.classes, 0
        for entry in run.entries:
            queued[entry.priority].append((started_at - entry.arrived_at, 1))
            logits = all_logits[at:at + width]
            at += width
            for job in waiting_for(entry):
                waited_us = int((started_at - job.arrived_at) * 1e6)
                by_source.setdefault(job.source, []).append(Result(
                    job.job, RESULT_OK, kind, index, size, waited_us if waited_us > 0 else 0,
                    infer_us, logits))
                self._end(job)
            if entry.twins is not None:
                self.sharing.computed(entry, logits)
        self._actions += [SendResults(*pair) for pair in by_source.items()]
        self._actions.append(Measured(kind, size, run.tokens, infer_us / 1e6, queued,
                                      done.padding))

    def failed(self, index: int, incarnation: int, failed: Failed) -> bool:
        """A batch that the engine could not compute though it lives: a fault of its input."""
        engine = self.pool.engines.get((index, incarnation))
        if engine is None:
            return False
        if failed.fatal:
            self.pool.set_leaving(engine)
            if failed.batch == NO_BATCH:
                return True
        run = engine.find(failed.batch)
        if run is None:
            return False
        engine.runs.remove(run)
        ran = run.entries
        if engine.hello.kind == GPU:
            self._for_cpu(ran)
            return True
        entries = self.sharing.interrupted(ran)
        # In company nobody knows whose fault it was, even if the company was cancelled since.
        is_blame = len(ran) == 1
        for entry in entries:
            entry.is_alone = True
            if is_blame:
                entry.deaths += 1
                self._actions.append(SendNotes(entry.source, [Note(entry.job, entry.deaths)]))
                if entry.deaths >= FAULTS_TO_BLAME:
                    self._end(entry)
        self._queue_again([entry for entry in entries if entry.where != GONE])
        return True

    # ---- queue --------------------------------------------------------------------------

    def _queue_again(self, entries: Sequence[Entry]) -> None:
        self.recomputed += sum(entry.where == RUNNING for entry in entries)
        for entry in entries:
            self._order += 1
            entry.order = self._order
            if entry.deaths + entry.unjudged >= FAULTS_TO_BLAME:
                entry.where = HELD
            else:
                self._queue.put(entry)

    def _for_cpu(self, ran: Sequence[Entry]) -> None:
        """Jobs that a GPU engine did not answer; no GPU gets them again."""
        entries = self.sharing.interrupted(ran)
        for entry in entries:
            entry.is_for_cpu = True
        self._queue_again(entries)

    def _end(self, entry: Entry) -> None:
        if entry.twins is not None:
            self.sharing.leave(entry)
        if entry.where == QUEUED:
            self._queue.discount(entry)
        entry.where = GONE
        held = self._by_source.get(entry.source)
        if held is not None:
            held.pop(entry.job, None)

    # ---- order --------------------------------------------------------------------------

    def take_actions(self, now: float) -> list[object]:
        """What to send now, in order."""
        self._actions += self._filling.fill(now)
        state = self._news.take(self._state, now)
        if state is not None:
            self._actions.append(SendState(state))
        actions, self._actions = self._actions, []
        return actions

    def next_timer(self, now: float) -> float | None:
        """When `take_actions` may have something to send though no event came since its last call;
        None for never."""
        due = min(self._news.due_at(now), self._filling.held_until)
        return None if due == math.inf else due

    def _state(self) -> State:
        queue, policy = self._queue, self.policy
        return State(self.is_ready, len(self.pool.serving), self.incarnation,
                     round(self.wait_ms(HIGH), 1), round(self.wait_ms(LOW), 1),
                     queue.count >= policy.max_jobs or queue.size_bytes >= policy.max_bytes)

    @property
    def engines(self) -> list[tuple[int, int]]:
        """(index, incarnation) of every engine that is linked."""
        return list(self.pool.engines)
