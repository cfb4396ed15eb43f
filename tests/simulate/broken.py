"""Machines spoiled on purpose, each as its name says: the simulation must catch them all."""

import contextlib
import math
from collections.abc import Callable, Iterator
from unittest import mock

from server import supervise
from server.inflight import InFlight
from server.scheduler import Scheduler
from tests.simulate import master, roles


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
    real = roles.Front.turn

    def turn(self, items, now):
        before = self.held.stale_results
        timer = real(self, items, now)
        self.counted += self.held.stale_results - before
        return timer

    with mock.patch.object(roles.Front, "turn", turn):
        yield


@contextlib.contextmanager
def timers_before_sockets() -> Iterator[None]:
    """A front looks at its timers before it reads what has come."""
    real = roles.Front.turn

    def turn(self, items, now):
        self.inbox = items
        self.held.tick(now)
        if self.link is not None:
            self._act(now)
        self.inbox = []
        return real(self, items, now)

    with mock.patch.object(roles.Front, "turn", turn):
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


BROKEN: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    make.__name__: make for make in (
        no_incarnation_check, job_number_reused, no_resend, double_count, timers_before_sockets,
        death_before_done, lease_not_moved, outside_kill_is_poison)}
