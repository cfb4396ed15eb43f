"""When fronts are told the dispatcher's State: what changed, and at once who is turned away (pure).

Fronts refuse by the last State, before they read a body; what they let through and the dispatcher
refuses has cost nearly as much as an answer. So the first refusal of one whom a front would still
let in is news that does not wait, and so is it when half of what was too much is done: then the
fronts of a server that lets nobody wait for long do not refuse while its engines idle.
"""

import math
from collections.abc import Callable

from server.dispatch import Policy
from server.messages import HIGH, LOW, State

# Between two States, unless the second one cannot wait.
INTERVAL_S = 0.05
ROOM_AGAIN = 0.5


def is_closed(state: State, policy: Policy, priority: int) -> bool:
    """Whether a front with this State refuses every request of a class."""
    wait_ms = state.backlog_high_ms if priority == HIGH else state.backlog_low_ms
    return state.is_full or wait_ms > policy.max_wait_ms


class News:
    """What fronts were told last, and when they are told again; times are monotonic seconds."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.forget()

    def forget(self) -> None:
        """A front has come that knows nothing yet."""
        self._told: State | None = None
        self._due = -math.inf
        self._may_differ = True
        self._closed: list[int] = []        # the classes that fronts refuse
        self._has_refused = False           # though fronts let in whom they could

    def due_at(self, now: float) -> float:
        """When `take` may have something though nothing happens; inf for never."""
        return max(now, self._due) if self._may_differ else math.inf

    def refused(self, priority: int) -> None:
        """A request of a class was refused; perhaps because it alone asks for too much."""
        self._has_refused = self._has_refused or priority not in self._closed

    def take(self, look: Callable[[], State], now: float) -> State | None:
        """The state that `look` gives, where it is time that fronts know it."""
        self._may_differ = True
        is_due, has_refused = now >= self._due, self._has_refused
        if not (is_due or has_refused or self._closed):
            return None
        self._has_refused = False
        state = look()
        if not (is_due or has_refused and self._closes(state) or self._has_room(state)):
            return None
        self._may_differ = False
        if state == self._told:
            return None
        self._told, self._due = state, now + INTERVAL_S
        self._closed = [priority for priority in (HIGH, LOW)
                        if is_closed(state, self._policy, priority)]
        return state

    def _closes(self, state: State) -> bool:
        return any(is_closed(state, self._policy, priority) and priority not in self._closed
                   for priority in (HIGH, LOW))

    def _has_room(self, state: State) -> bool:
        """Whether so much is done of what fronts still refuse for. A queue that was full is not
        empty before the next state."""
        most_ms = ROOM_AGAIN * self._policy.max_wait_ms
        return any((state.backlog_high_ms if priority == HIGH else state.backlog_low_ms) <= most_ms
                   for priority in self._closed) and not self._told.is_full
