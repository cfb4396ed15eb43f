"""What the scheduler tells its dispatcher to do, and what it was told by the operator (pure)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from server.messages import Batch, Note, PackedBatch, Refusal, Result, State

Source = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Policy:
    """What the operator set, and how many engines there should be."""

    engines: int
    max_wait_ms: float = 2000.0
    high_share: float = 0.8
    max_jobs: int = 10_000
    max_bytes: int = 64 << 20
    cache_bytes: int = 0
    max_age_s: float = 60.0


class RunBatch(NamedTuple):
    engine: int
    incarnation: int
    batch: Batch | PackedBatch


class SendResults(NamedTuple):
    source: Source
    results: list[Result]


class Answered(NamedTuple):
    """Results of jobs of one source that came and ran together; `queue_us` is each one's, `logits`
    float32 [jobs, C] as bytes, `width` of them for each job."""

    source: Source
    jobs: Sequence[int]
    kind: int
    engine: int
    batch_size: int
    queue_us: int
    infer_us: int
    width: int
    logits: bytes


class SendRefused(NamedTuple):
    source: Source
    refusal: Refusal


class SendNotes(NamedTuple):
    source: Source
    notes: list[Note]


class SendState(NamedTuple):
    state: State


class Measured(NamedTuple):
    """A finished batch, for the metrics; `queued_s` is how long jobs were in the queue, by
    class, as (seconds, jobs); `padding` tokens were computed beside `tokens`."""

    kind: int
    size: int
    tokens: int
    infer_s: float
    queued_s: tuple[list[tuple[float, int]], list[tuple[float, int]]]
    padding: int
