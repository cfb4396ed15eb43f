"""Whether this process, when something comes for it, interrupts the one that works on its core.

It does by default (sched(7), SCHED_OTHER), which is best for a single client: its request waits
for nobody. Where many come at once it is not: processes that work for each other interrupt each
other in the middle of their turns, each finds less to do a turn, and caches are filled anew each
time. Who has so much to do lets others finish first (SCHED_BATCH); what it then has to wait for is
their turn, or a tick of the kernel's. Fronts, the dispatcher and CPU engines decide each by their
own turns, so that a server with little to do keeps the kernel's default.
"""

import os
from collections.abc import Callable

BUSY, CALM = 2.0, 1.4       # events a turn, on average
TURNS = 64                  # that an average is taken of


class Wakeups:
    """The policy of one process, by how much its turns had to do; `set_policy` is told of changes
    and may raise OSError, after which the policy stays as it is."""

    def __init__(self, set_policy: Callable[[int], None] | None = None) -> None:
        self._turns = 0         # since the last choice, as are `_events`
        self._events = 0
        self._policy = os.SCHED_OTHER
        self._set_policy = _set_policy if set_policy is None else set_policy

    def count(self, events: int) -> None:
        """A turn had so much to do: sockets, requests or texts. Chooses anew now and then."""
        self._turns += 1
        self._events += events
        if self._turns == TURNS:
            self._choose()

    def _choose(self) -> None:
        bound = BUSY if self._policy == os.SCHED_OTHER else CALM
        wanted = os.SCHED_BATCH if self._events > bound * TURNS else os.SCHED_OTHER
        self._turns = self._events = 0
        if wanted != self._policy:
            try:
                self._set_policy(wanted)
            except OSError:         # a sandbox forbids it: nothing is lost but speed
                return
            self._policy = wanted


def _set_policy(policy: int) -> None:
    os.sched_setscheduler(0, policy, os.sched_param(0))     # niceness stays
