"""How much waits in sockets before a front reads it, how long, and for whom that is too much.

Nobody counts what a front has not read: it is in no backlog, and no class goes first in it. Where
fronts get too little of the cores it grows until clients have no connections left, though the
dispatcher would let everybody in. The kernel gives out ready sockets in the order in which they
became ready; so a note to oneself, sent in a turn that has as much to do as it may, comes back
after as many others, and as late, as a request that came at the same time.
"""

import os
import select

from server.messages import HIGH, LOW

# A front is behind for a class where so many are ready at a time: with a full queue in the
# dispatcher its connections would last for three times as many of all classes.
MOST_READY = {HIGH: 3000, LOW: 1000}
# So long it must have been, for a front that stood still for a moment catches up.
PATIENCE_S = 0.1


class Unread:
    """The notes of one front, whose sockets `poll` watches; times are monotonic seconds.

    `behind` are the classes that the front is behind for: too many are ready, or what is ready
    waits longer, with what the dispatcher has, than `max_wait_ms`. `number` is the descriptor that
    is ready when a note comes back. From a crowded turn to one that is not, it `is_watching`.
    """

    def __init__(self, poll: select.epoll, max_wait_ms: float) -> None:
        self.number = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        poll.register(self.number, select.EPOLLIN)
        self.is_watching = False
        self.behind: tuple[int, ...] = ()
        self._max_wait_ms = max_wait_ms
        self._waits_ms = (0.0, 0.0)
        self._sent_at = 0.0             # of the note that is out; 0 for none
        self._ready = 0                 # others that came since then
        self._since = dict.fromkeys(MOST_READY, 0.0)

    def turn(self, ready: int, is_crowded: bool, waits_ms: tuple[float, float],
             now: float) -> tuple[int, ...]:
        """A turn begins that has so many ready: as many as it may where it `is_crowded`, so that
        there may be more, else all. `waits_ms` is the dispatcher's backlog of HIGH and LOW. Gives
        `behind`."""
        self.is_watching = is_crowded
        if not is_crowded:
            self._take_back()
            self._since, self.behind = dict.fromkeys(MOST_READY, 0.0), ()
            return ()
        if not self._sent_at:
            os.eventfd_write(self.number, 1)
            self._sent_at, self._ready = now, 0
        self._ready += ready
        self._waits_ms = waits_ms
        self._judge(now)
        return self.behind

    def came(self, now: float) -> None:
        """The note is back, unless it was taken back already."""
        if self._sent_at:
            for priority, since in self._since.items():
                if since and not self._is_much(priority, now):
                    self._since[priority] = 0.0
            self._judge(now)
            self._take_back()

    def _take_back(self) -> None:
        if self._sent_at:
            os.eventfd_read(self.number)
            self._sent_at = 0.0

    def _is_much(self, priority: int, now: float) -> bool:
        """By the note that is out, so far."""
        age_ms = (now - self._sent_at) * 1e3
        return self._ready > MOST_READY[priority] \
            or self._waits_ms[priority] + age_ms > self._max_wait_ms

    def _judge(self, now: float) -> None:
        behind = []
        for priority, since in self._since.items():
            if not since and self._is_much(priority, now):
                self._since[priority] = since = now
            if since and now - since >= PATIENCE_S:
                behind.append(priority)
        self.behind = tuple(behind)
