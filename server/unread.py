"""How long what comes waits in its socket before a front reads it, and for whom that is too long.

Nobody counts what a front has not read: it is in no backlog, and no class goes first in it. Where
fronts get too little of the cores it grows until clients have no connections left, though the
dispatcher would let everybody in. The kernel gives out ready sockets in the order in which they
became ready; so a note to oneself, sent in a turn that has as much to do as it may, comes back as
late as a request that came at the same time.
"""

import os
import select

from server.messages import HIGH, LOW

# A front is behind for a class where notes come back later than this, and none sooner for
# PATIENCE_S: one that stood still for a moment has as much to read, but catches up.
LATE_S = {HIGH: 0.2, LOW: 0.05}
PATIENCE_S = 0.1


class Unread:
    """The notes of one front, whose sockets `poll` watches; times are monotonic seconds.

    `behind` are the classes that the front is behind for, `number` is the descriptor that is ready
    when a note comes back. From a crowded turn to one that is not, it `is_watching`.
    """

    def __init__(self, poll: select.epoll) -> None:
        self.number = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        poll.register(self.number, select.EPOLLIN)
        self.is_watching = False
        self.behind: tuple[int, ...] = ()
        self._sent_at = 0.0             # of the note that is out; 0 for none
        self._late_since = dict.fromkeys(LATE_S, 0.0)

    def turn(self, is_crowded: bool, now: float) -> None:
        """A turn begins: with as much to do as it may have, so that more may be ready, or with all
        that is."""
        if is_crowded:
            if not self._sent_at:
                os.eventfd_write(self.number, 1)
                self._sent_at = now
            self._judge(now)
        else:
            self._take_back()
            self.behind, self._late_since = (), dict.fromkeys(LATE_S, 0.0)
        self.is_watching = is_crowded

    def came(self, now: float) -> None:
        """The note is back, unless it was taken back already."""
        if not self._sent_at:
            return
        for priority, late_s in LATE_S.items():
            if now - self._sent_at <= late_s:
                self._late_since[priority] = 0.0
        self._judge(now)
        self._take_back()

    def _take_back(self) -> None:
        if self._sent_at:
            os.eventfd_read(self.number)
            self._sent_at = 0.0

    def _judge(self, now: float) -> None:
        """A note that is out is late as soon as it could not come in time any more."""
        since = self._late_since
        for priority, late_s in LATE_S.items():
            if now - self._sent_at > late_s and not since[priority]:
                since[priority] = now
        self.behind = tuple(priority for priority, late_at in since.items()
                            if late_at and now - late_at >= PATIENCE_S)
