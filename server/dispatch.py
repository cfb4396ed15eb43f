"""What the scheduler tells its dispatcher to do, and what it was told by the operator (pure)."""

from dataclasses import dataclass

from server.messages import Batch, Note, Refusal, Result, State

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


@dataclass(frozen=True, slots=True)
class RunBatch:
    engine: int
    incarnation: int
    batch: Batch


@dataclass(frozen=True, slots=True)
class SendResults:
    source: Source
    results: list[Result]


@dataclass(frozen=True, slots=True)
class SendRefused:
    source: Source
    refusal: Refusal


@dataclass(frozen=True, slots=True)
class SendNotes:
    source: Source
    notes: list[Note]


@dataclass(frozen=True, slots=True)
class SendState:
    state: State


@dataclass(frozen=True, slots=True)
class Measured:
    """A finished batch, for the metrics; `queued_s` is each job's (class, seconds queued),
    `padding` tokens were computed beside `tokens`."""

    kind: int
    size: int
    tokens: int
    infer_s: float
    queued_s: list[tuple[int, float]]
    padding: int
