"""Who shares an answer: texts that are in the cache, and texts that are in flight twice (pure).

Twins are jobs of one text that are in flight together, of whichever fronts. Each of them waits in
its own turn, with its own class and deadline; the first whose turn comes runs, and its batch
answers all. So nobody waits longer for having joined, and a twin that goes away (cancelled, late,
its front dead) takes nothing with it: those that are left are in the queue themselves, or wait for
a batch that runs on.

Suspects are kept apart. A job that comes as one joins nobody. When the batch of twins breaks an
engine all of them are suspects, for their text ran while they waited for it, and one that comes
later is one too; each counts only the faults that it waited through. A suspect's answer is never
kept, nor is one that is not finite. All is of one model: a generation has its own dispatcher.
"""

import math
from array import array
from collections.abc import Iterable

from server.cache import Cache, key_of
from server.messages import CACHE, RESULT_OK, Group, Result
from server.turns import JOINED, RUNNING, Entry, Twins


class Sharing:
    """The cache and the twins of one dispatcher; without a byte of cache nobody shares, and it is
    not asked: `is_on` is false.

    `counts` are jobs by how they came to their answer: ["hit", "join", "miss"].
    """

    def __init__(self, limit_bytes: int) -> None:
        self.counts = [0, 0, 0]
        self.is_on = limit_bytes > 0
        self._cache = Cache(limit_bytes)
        self._twins: dict[bytes, Twins] = {}

    def take_hits(self, group: Group) -> list[Result]:
        """Answers that are known already; their jobs leave the group."""
        found, left = [], []
        for job in group.jobs:
            logits = self._cache.get(key_of(job))
            if logits is None:
                left.append(job)
            else:
                found.append(Result(job.job, RESULT_OK, CACHE, 0, 0, 0, 0, logits))
        group.jobs = left
        return found

    def adds_work(self, group: Group) -> bool:
        """Whether a group asks for more than is computed anyway."""
        return not self.is_on or any(key_of(job) not in self._twins for job in group.jobs)

    def enter(self, entry: Entry) -> None:
        """A job that was admitted, before it is queued, finds its twins."""
        if entry.is_alone:
            self.counts[2] += 1
            return
        key = key_of(entry)
        twins = self._twins.get(key)
        if twins is None:
            self.counts[2] += 1
            twins = self._twins[key] = Twins(key, {})
        else:
            self.counts[1] += 1
            like = twins.runner or next(iter(twins.jobs))
            entry.ids, entry.is_alone, entry.is_for_cpu = like.ids, like.is_alone, like.is_for_cpu
        entry.twins = twins
        twins.jobs[entry] = None

    def leave(self, entry: Entry) -> None:
        """A job that has twins is over, answered or not."""
        entry.twins.jobs.pop(entry, None)
        self._forget_if_over(entry.twins)

    def computed(self, entry: Entry, logits: bytes) -> None:
        """The batch of a job that has twins is done, and they are answered with these logits,
        float32 [C]."""
        entry.twins.runner = None
        self._forget_if_over(entry.twins)
        # The sum of float32 in double precision is finite where each of them is.
        if not (entry.is_alone or entry.is_for_cpu) and math.isfinite(sum(array("f", logits))):
            self._cache.put(entry.twins.key, logits)

    def interrupted(self, ran: Iterable[Entry]) -> list[Entry]:
        """The jobs that wait for what a batch was to compute and does not; they are all free."""
        found = []
        for entry in ran:
            twins = entry.twins
            if twins is not None:
                twins.runner = None
                found += [job for job in twins.jobs if job.where in (RUNNING, JOINED)]
                self._forget_if_over(twins)
            elif entry.where == RUNNING:
                found.append(entry)
        return found

    def _forget_if_over(self, twins: Twins) -> None:
        if not twins.jobs and twins.runner is None:
            self._twins.pop(twins.key, None)


def waiting_for(entry: Entry) -> list[Entry]:
    """The jobs that the answer to a job of a batch is for."""
    if entry.twins is not None:
        return list(entry.twins.jobs)
    return [entry] if entry.where == RUNNING else []
