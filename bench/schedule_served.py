"""A trace as a server served it: latencies, and the batches that answers tell of (pure)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bench.load_report import Outcome
from bench.schedule_play import Ran
from bench.schedule_trace import Trace

_TIMING = re.compile(rb"(?i)\r\nserver-timing: *tokenize;dur=([\d.]+), *queue;dur=([\d.]+), *"
                     rb"infer;dur=([\d.]+)")
_ENGINE = re.compile(rb"(?i)\r\nx-engine: *(\S+)")
_BATCH = re.compile(rb"(?i)\r\nx-batch: *(\d+)")


class Answer(NamedTuple):
    """An answered request of one text; `ended_s` counts from the trace's begin, `outside_ms` is
    what it waited for beside queue and engine, from the planned time on."""

    ended_s: float
    tokens: int
    engine: bytes
    batch: int
    tokenize_ms: float
    infer_ms: float
    outside_ms: float


@dataclass(frozen=True)
class Served:
    """A trace whose requests have one text each, and what came of each, in the same order.
    `host_s` is the processor time of fronts, dispatcher and client meanwhile, and `strangers` the
    share of all cores' time that programs took which are no part of this."""

    trace: Trace
    outcomes: Sequence[Outcome]
    host_s: float
    strangers: float = 0.0

    @property
    def good_ms(self) -> list[float]:
        """Latencies of what was answered and not refused, from the planned time."""
        return [one.latency_ms for one in self.outcomes if one.is_good]

    @property
    def goodput_rps(self) -> float:
        """Answers a second until the last one."""
        took_s = max(one.ended for one in self.outcomes) - self._begin()
        return len(self.good_ms) / max(took_s, self.trace.duration_s)

    @property
    def answers(self) -> list[Answer]:
        """Those whose head tells of an engine."""
        begin, found = self._begin(), []
        for asked, one in zip(self.trace.requests, self.outcomes):
            timing, engine, batch = (pattern.search(one.head)
                                     for pattern in (_TIMING, _ENGINE, _BATCH))
            if one.is_good and timing and engine and batch:
                tokenize_ms, queue_ms, infer_ms = map(float, timing.groups())
                found.append(Answer(
                    one.ended - begin, asked.tokens[0], engine.group(1), int(batch.group(1)),
                    tokenize_ms, infer_ms, one.latency_ms - queue_ms - infer_ms))
        return found

    def _begin(self) -> float:
        return self.outcomes[0].planned - self.trace.requests[0].at_s


def batches(answers: Sequence[Answer]) -> list[Ran]:
    """The batches that these were in, in order of time; each began by its time of computing before
    its first answer, a little later than in truth.

    Answers of one batch agree in engine, size and µs; where two batches do, the earlier answers
    are the one's.
    """
    alike: dict[tuple[bytes, int, float], list[Answer]] = {}
    for one in sorted(answers):
        alike.setdefault((one.engine, one.batch, one.infer_ms), []).append(one)
    found = []
    for (_, size, infer_ms), members in alike.items():
        for place in range(0, len(members), size):
            lengths = [one.tokens for one in members[place:place + size]]
            tokens = sum(lengths)
            found.append(Ran(members[place].ended_s - infer_ms / 1e3, len(lengths), tokens, tokens,
                             sum(length ** 2 for length in lengths), infer_ms))
    return sorted(found)
