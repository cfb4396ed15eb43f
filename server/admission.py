"""Whether a request is let into the queue: by the wait that it would meet, and by bounds (pure).

The wait is that of the request's own connection. One that has nothing waiting finds one job of each
other connection ahead of it, however many those have asked for, so a client that wants too much is
refused itself and makes nobody else 429. A group is refused as well where its last text would be
done so late that it may be past --max-age-s: to begin it would be work for nothing.
"""

import math
from dataclasses import dataclass

from server.blocks import Block
from server.dispatch import Policy, Source
from server.jobqueue import JobQueue
from server.messages import CPU, Group, Reason, Refusal
from server.pool import Pool

# Of the queue's places one connection may have no more than this share.
CONNECTION_SHARE = 0.5
# Of --max-age-s a group may take so much by the estimate: newcomers take turns with it meanwhile.
AGE_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Work:
    """What a group asks for: `cost_ms` of its jobs, `alone_ms` how long they take if nothing else
    runs, and `drain`, the milliseconds that pass for each of queued work."""

    cost_ms: float
    alone_ms: float
    drain: float


def work_of(pool: Pool, group: Group) -> Work:
    """What a group asks of these engines."""
    return Work(sum(pool.costs[CPU].share_ms(job.tokens) for job in group.jobs),
                pool.alone_ms(len(group.jobs), sum(job.tokens for job in group.jobs)), pool.drain)


def refusal(queue: JobQueue, policy: Policy, source: Source, group: Group, now: float,
            work: Work) -> Refusal | None:
    """Why a group is not let in now; None where it is. An empty queue takes any group, unless its
    deadline is too near."""
    who = group.priority, source, group.connection
    wait_ms = queue.ahead_ms(*who) * work.drain
    if queue.count:
        if _is_full(queue, policy, group, queue.waiting(*who)):
            return Refusal(group.group, Reason.FULL, int(wait_ms) + 1)
        late_ms = wait_ms - policy.max_wait_ms
        if len(group.jobs) > 1:
            ends_ms = queue.ahead_ms(*who, work.cost_ms) * work.drain + work.alone_ms
            late_ms = max(late_ms, ends_ms - AGE_SHARE * policy.max_age_s * 1e3)
        if late_ms > 0:
            return Refusal(group.group, Reason.WAIT, int(late_ms) + 1)
    if now + (wait_ms + work.alone_ms) / 1e3 > group.deadline:
        return Refusal(group.group, Reason.DEADLINE, int(wait_ms) + 1)
    return None


def is_let_in(queue: JobQueue, policy: Policy, group: Group, drain: float) -> bool:
    """Whether `refusal` surely lets a group in, whoever has what waiting: seen at a glance, because
    nearly all that come to a server with room are one text without a deadline. One that was sent
    before was let in then."""
    jobs, (high_ms, low_ms) = group.jobs, queue.backlog_ms
    return len(jobs) == 1 and group.deadline == math.inf \
        and (high_ms + low_ms) * drain <= policy.max_wait_ms \
        and queue.count + 1 <= CONNECTION_SHARE * policy.max_jobs \
        and queue.size_bytes + len(jobs[0].ids) <= policy.max_bytes \
        or any(job.sends > 1 for job in jobs)


def are_let_in(queue: JobQueue, policy: Policy, block: Block, drain: float) -> bool:
    """Whether `is_let_in` holds for each job of a block, surely."""
    high_ms, low_ms = queue.backlog_ms
    return (high_ms + low_ms + block.cost_ms) * drain <= policy.max_wait_ms \
        and queue.count + len(block.jobs) <= CONNECTION_SHARE * policy.max_jobs \
        and queue.size_bytes + len(block.lone.ids) <= policy.max_bytes


def _is_full(queue: JobQueue, policy: Policy, group: Group, waiting: int) -> bool:
    texts, size = len(group.jobs), sum(len(job.ids) for job in group.jobs)
    return queue.count + texts > policy.max_jobs or queue.size_bytes + size > policy.max_bytes \
        or waiting > 0 and waiting + texts > CONNECTION_SHARE * policy.max_jobs
