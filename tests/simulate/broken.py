"""Machines spoiled on purpose, each as its name says: the simulation must catch them all."""

import contextlib
import math
from collections.abc import Callable, Iterator
from unittest import mock

from server import sharing, supervise
from server.generation import Generation
from server.inflight import InFlight
from server.jobqueue import BATCH_CAP_MS, JobQueue
from server.linked import LinkedEngine
from server.messages import CPU, GPU
from server.scheduler import Scheduler
from server.turns import RUNNING
from tests.simulate import front, gpu, master, roles


@contextlib.contextmanager
def no_incarnation_check() -> Iterator[None]:
    """A front is known by its place alone, so a successor gets its predecessor's answers."""
    real_jobs = Scheduler.jobs
    real_take = roles.Dispatcher._take

    def hello(self, source):
        self._by_source.setdefault((source[0], 0), {})
        self._sent_state, self._state_due = None, -math.inf

    def jobs(self, source, groups, now):
        for group in groups:
            for job in group.jobs:
                self._by_source[source[0], 0].pop(job.job, None)
        real_jobs(self, (source[0], 0), groups, now)

    def take(self, end, message, now):
        real_take(self, end, message, now)
        who = self.peers.get(end)
        if who is not None and who[0] == "front":
            self.by_key["front", who[1], 0] = end

    with mock.patch.object(Scheduler, "front_hello", hello), \
            mock.patch.object(Scheduler, "jobs", jobs), \
            mock.patch.object(Scheduler, "lone", lambda self, source, lone, now: self.jobs(
                source, lone.as_groups(), now)), \
            mock.patch.object(Scheduler, "front_gone", lambda self, source: None), \
            mock.patch.object(roles.Dispatcher, "_take", take):
        yield


@contextlib.contextmanager
def job_number_reused() -> Iterator[None]:
    """Numbers begin anew when nothing is open, so a late answer meets another request."""
    real = InFlight.open

    def open_again(self, *given, **named):
        if not self._jobs:
            self._next_job = 1
        real(self, *given, **named)

    with mock.patch.object(InFlight, "open", open_again):
        yield


@contextlib.contextmanager
def no_resend() -> Iterator[None]:
    """A new link begins empty."""
    real = InFlight.link_up

    def link_up(self, now):
        real(self, now)
        self._unsent.clear()

    with mock.patch.object(InFlight, "link_up", link_up):
        yield


@contextlib.contextmanager
def double_count() -> Iterator[None]:
    """A late second result is counted as an answer."""
    real = front.Front.turn

    def turn(self, items, now):
        before = self.held.stale_results
        timer = real(self, items, now)
        self.counted += self.held.stale_results - before
        return timer

    with mock.patch.object(front.Front, "turn", turn):
        yield


@contextlib.contextmanager
def timers_before_sockets() -> Iterator[None]:
    """A front looks at its timers before it reads what has come."""
    real = front.Front.turn

    def turn(self, items, now):
        self.inbox = items
        self.held.tick(now)
        if self.link is not None:
            self._act(now)
        self.inbox = []
        return real(self, items, now)

    with mock.patch.object(front.Front, "turn", turn):
        yield


@contextlib.contextmanager
def death_before_done() -> Iterator[None]:
    """The dispatcher believes a death before it has read what the dead engine had sent."""
    real = roles.Dispatcher.turn

    def turn(self, items, now):
        for source, message in list(items):
            if source == "control":
                end = self.by_key.get(("engine", message[0], message[1]))
                if end is not None:
                    self._drop(end)
        return real(self, items, now)

    with mock.patch.object(roles.Dispatcher, "turn", turn):
        yield


@contextlib.contextmanager
def lease_not_moved() -> Iterator[None]:
    """After its own stop the master takes everybody's lease as it stands."""
    with mock.patch.object(supervise, "LATE_S", math.inf):
        yield


@contextlib.contextmanager
def outside_kill_is_poison() -> Iterator[None]:
    """A kill -9 from outside counts against what ran."""
    with mock.patch.object(master, "is_fault", lambda cause, by_us=False: True):
        yield


@contextlib.contextmanager
def old_closes_at_the_commit() -> Iterator[None]:
    """The old fronts let nobody in before the new ones do."""
    with mock.patch.object(Generation, "is_open", property(lambda self: True)):
        real = supervise.Supervisor._enter

        def enter(self, phase, generation):
            real(self, phase, generation)
            for older in self._generations:
                if phase == "serving" and older.number < generation.number:
                    real(self, "replaced", older)

        with mock.patch.object(supervise.Supervisor, "_enter", enter):
            yield


@contextlib.contextmanager
def old_ends_undrained() -> Iterator[None]:
    """The old generation is dismissed as soon as the new one serves."""
    with mock.patch.object(Generation, "is_drained", property(lambda self: True)):
        yield


@contextlib.contextmanager
def clients_come_before_the_commit() -> Iterator[None]:
    """A new front lets clients in though its generation may still be given up."""
    real = front.Front._enter

    def enter(self, phase, now):
        real(self, phase, now)
        self.is_open = self.is_open or phase == "rehearsal"

    with mock.patch.object(front.Front, "_enter", enter):
        yield


@contextlib.contextmanager
def engines_join_any_dispatcher() -> Iterator[None]:
    """An engine takes work of a generation that is not its own."""
    real = roles.House.connect

    def connect(self, end, generation):
        real(self, end, min(self.dispatcher, default=generation)
             if isinstance(end.peer.owner, roles.Engine) else generation)

    with mock.patch.object(roles.House, "connect", connect):
        yield


@contextlib.contextmanager
def death_before_the_commit_is_repaired() -> Iterator[None]:
    """What dies in a new generation is started again, and the reload goes on: then a model that
    cannot be started keeps both generations for ever."""
    real = supervise.Supervisor._fail

    def fail(self, generation, reason, now):
        if reason == "the server is ending":
            real(self, generation, reason, now)

    with mock.patch.object(supervise.Supervisor, "_fail", fail):
        yield


@contextlib.contextmanager
def gpu_death_blames_texts() -> Iterator[None]:
    """What a GPU engine ran when it died is suspected as if a CPU engine had died of it; but of
    such deaths no verdict ever comes."""
    real = Scheduler.engine_gone

    def engine_gone(self, index, incarnation):
        engine = self.pool.engines.get((index, incarnation))
        if engine is not None and engine.hello.kind == GPU:
            engine.hello.kind = CPU
        real(self, index, incarnation)

    with mock.patch.object(Scheduler, "engine_gone", engine_gone):
        yield


@contextlib.contextmanager
def gpu_gets_it_again() -> Iterator[None]:
    """A GPU's leftovers are queued like anything else, so the next GPU falls over them too."""
    with mock.patch.object(Scheduler, "_for_cpu", lambda self, ran: self._queue_again(
            self.sharing.interrupted(ran))):
        yield


@contextlib.contextmanager
def cancel_frees_a_joined_job() -> Iterator[None]:
    """A job that is cancelled takes those with it that have joined it."""
    real = Scheduler.cancel

    def cancel(self, source, jobs):
        for job in jobs:
            entry = self._by_source.get(source, {}).get(job)
            for twin in list(entry.twins.jobs) if entry is not None and entry.twins else ():
                self._end(twin)
        real(self, source, jobs)

    with mock.patch.object(Scheduler, "cancel", cancel):
        yield


@contextlib.contextmanager
def any_split_is_the_same_text() -> Iterator[None]:
    """Texts are told apart by their ids alone, and a pair gets the answer of another pair."""
    with mock.patch.object(sharing, "key_of", lambda job: job.ids):
        yield


@contextlib.contextmanager
def gpu_lane_is_one() -> Iterator[None]:
    """A GPU engine launches what it has as it came, low batches ahead of a high one."""
    with mock.patch.object(gpu.GpuEngine, "_next", lambda self: self.waiting[0]):
        yield


@contextlib.contextmanager
def high_waits_for_the_low_lane() -> Iterator[None]:
    """The dispatcher counts a GPU's batches of both classes as one lane, so low ones fill it."""
    with mock.patch.object(LinkedEngine, "lane", lambda self, priority: len(self.runs)):
        yield


@contextlib.contextmanager
def gpu_batches_are_mixed() -> Iterator[None]:
    """Low jobs ride along in a GPU's high batches, as they do on CPU engines."""
    def choose(self, priority, costs, rows, share, now, has_low):
        return self.choose(costs, rows, share, BATCH_CAP_MS, now)

    with mock.patch.object(JobQueue, "choose_of", choose):
        yield


BROKEN: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    make.__name__: make for make in (
        no_incarnation_check, job_number_reused, no_resend, double_count, timers_before_sockets,
        death_before_done, lease_not_moved, outside_kill_is_poison, old_closes_at_the_commit,
        old_ends_undrained, clients_come_before_the_commit, engines_join_any_dispatcher,
        death_before_the_commit_is_repaired, gpu_death_blames_texts, gpu_gets_it_again,
        gpu_lane_is_one, high_waits_for_the_low_lane, gpu_batches_are_mixed,
        cancel_frees_a_joined_job, any_split_is_the_same_text)}
