"""Whether this process, when something comes for it, interrupts the one that works on its core.

It does by default (sched(7), SCHED_OTHER), which is best for a single client: its request waits for
nobody. Where many come at once it is not: processes that work for each other interrupt each other
in the middle of their turns, each finds less to do a turn, and caches are filled anew each time. A
front with so much to do lets others finish first (SCHED_BATCH), and gets some 9 % more done with a
small model on two cores; what it then has to wait for is their turn, or a tick of the kernel's.
"""

import os
from collections.abc import Callable

BUSY, CALM = 2.0, 1.4       # events a turn, on average
FEWEST_TURNS = 20           # that an average is taken of


class Wakeups:
    """The policy of one process, by how much its turns had to do; `set_policy` is told of changes
    and may raise OSError, after which the policy stays as it is."""

    def __init__(self, set_policy: Callable[[int], None] | None = None) -> None:
        self.turns = 0          # since the last choice, as are `events`
        self.events = 0
        self._policy = os.SCHED_OTHER
        self._set_policy = _set_policy if set_policy is None else set_policy

    def look(self) -> None:
        """Chooses for the next while; ten times a second is enough."""
        turns, events = self.turns, self.events
        if turns < FEWEST_TURNS:
            return
        self.turns = self.events = 0
        bound = BUSY if self._policy == os.SCHED_OTHER else CALM
        wanted = os.SCHED_BATCH if events > bound * turns else os.SCHED_OTHER
        if wanted != self._policy:
            try:
                self._set_policy(wanted)
            except OSError:         # a sandbox forbids it: nothing is lost but speed
                return
            self._policy = wanted


def _set_policy(policy: int) -> None:
    os.sched_setscheduler(0, policy, os.sched_param(0))     # niceness stays
