"""What a front keeps of its requests in flight: a group and its jobs, or a lone text in one object.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from server.messages import Group, Job, Result

MOST_SENDS = 255            # that a job is told of


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


class Lone:
    """A group of one job, and the job, as most requests are; read like either of them.

    Without __init__, so whoever makes it sets every field: from a class through C to Python and
    back, as a dataclass is made, takes twice as long, and every request would pay for it twice.
    """

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
