"""What a front keeps of its requests in flight, how long and how much of it: a group and its jobs,
or a lone text in one object.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from server.actions import Outcome
from server.messages import Group, Job, Result

MOST_SENDS = 255            # that a job is told of


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a front; `max_jobs` and `max_bytes` are those of the dispatcher's queue.

    With a cache, of `cache_bytes` in this front, the dispatcher is asked even while its queue is
    full, for a text may have its answer there; then a front holds up to twice as much.
    """

    max_wait_ms: float = 2000.0
    max_age_s: float = 60.0
    outage_s: float = 10.0
    max_jobs: int = 10_000
    max_bytes: int = 64 << 20
    cache_bytes: int = 0

    def refusal(self, wait_ms: float, is_full: bool, jobs: int, size: int) -> Outcome | None:
        """Why no request is taken by a front that holds so many jobs, of `size` bytes, while the
        dispatcher says that one would wait so long, or that its queue is full."""
        times = 2
        if not self.cache_bytes:
            times = 1
            if wait_ms > self.max_wait_ms:
                return Outcome("refused", reason="wait",
                               retry_ms=int(wait_ms - self.max_wait_ms) + 1)
            if is_full:
                return Outcome("refused", reason="full", retry_ms=int(wait_ms) + 1)
        if jobs and (jobs >= times * self.max_jobs or size >= times * self.max_bytes):
            return Outcome("refused", reason="full", retry_ms=int(wait_ms) + 1)
        return None


@dataclass(slots=True, eq=False)
class HeldGroup(Group):
    """A group as it travels at first, `jobs` those that no cache knew, and what is kept of it."""

    partial: bool
    opened_at: float
    results: list[Result | None]
    remaining: int


@dataclass(slots=True, eq=False)
class HeldJob(Job):
    held: HeldGroup
    index: int
    dispatcher_faults: int = 0


# A lone text as long as all goes well: (group, when it was opened, its head as it travels, ids).
# Most of them are answered before anybody asks for more, which a Lone has.
Packed = tuple[int, float, bytes, bytes]


class Lone:
    """A group of one job, and the job, as most requests are; read like either of them. It is made
    of what is Packed, by server/codec.py, which sets every field but the last two."""

    __slots__ = ("group", "connection", "priority", "deadline", "job", "tokens", "split", "ids",
                 "sends", "deaths", "dispatcher_faults", "opened_at")

    count = 1
    index = 0
    partial = False

    @property
    def jobs(self) -> tuple["Lone"]:
        """Of the group."""
        return self,

    @property
    def held(self) -> "Lone":
        """The job's group."""
        return self


def message_of(held: HeldGroup | Lone, jobs: Sequence[HeldJob | Lone]) -> Group:
    """A part of the group as it travels; `count` is that of the jobs that travel now."""
    for job in jobs:
        job.sends = min(job.sends + 1, MOST_SENDS)
    return Group(held.group, held.connection, held.priority, held.deadline, len(jobs), jobs)


def opened_at(held: HeldGroup | Lone | Packed) -> float:
    return held[1] if type(held) is tuple else held.opened_at
