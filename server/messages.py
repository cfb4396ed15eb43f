"""What messages between fronts, dispatcher and engines say; server/codec.py has their bytes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

VERSION = 4
LIMIT_BYTES = 65536
# Room for headers beside the largest row; the loader caps max_tokens and labels by it.
ROW_LIMIT_BYTES = 60_000
ENGINE_KINDS = ("cpu", "gpu")
CPU, GPU, CACHE = range(3)         # who answered; the last is no engine
HIGH, LOW = 0, 1
RESULT_OK, RESULT_FAILED = 0, 1
# What fronts and dispatcher must agree on: faults until a job is answered for, and how often one
# is sent before it is suspected and runs alone.
FAULTS_TO_BLAME = 3
SENDS_BEFORE_ALONE = 5
NO_BATCH = 0


class MessageError(Exception):
    """Bytes that are no message of this protocol version; the link they came on is closed."""


class Type(IntEnum):
    """The header's first field."""

    FRONT_HELLO = 1
    ENGINE_HELLO = 2
    JOBS = 3
    CANCEL = 4
    RESULTS = 5
    REFUSED = 6
    NOTE = 7
    STATE = 8
    BATCH = 9
    DONE = 10
    FAILED = 11
    LONE = 12


class Reason(IntEnum):
    """Why the dispatcher refused a group."""

    WAIT = 1
    DEADLINE = 2
    FULL = 3


@dataclass(slots=True)
class Job:
    """One text: `ids` its token ids as they go to the engine (u16 or u32), `split` how many of
    them are of the first segment, `deaths` faults it is blamed for, `sends` how often it was
    sent."""

    job: int
    tokens: int
    split: int
    deaths: int
    sends: int
    ids: bytes


@dataclass(slots=True)
class Group:
    """The jobs of one request, or a part of them; `count` is that of all parts together and
    `deadline` is CLOCK_MONOTONIC seconds, infinity for none."""

    group: int
    connection: int
    priority: int
    deadline: float
    count: int
    jobs: list[Job]


@dataclass(slots=True)
class Jobs:
    groups: list[Group]


@dataclass(slots=True)
class LoneJobs:
    """Groups of one job each, column by column; `ids` of all one after the other, `sizes` their
    bytes."""

    groups: Sequence[int]
    connections: Sequence[int]
    deadlines: Sequence[float]
    priorities: Sequence[int]
    jobs: Sequence[int]
    tokens: Sequence[int]
    splits: Sequence[int]
    sizes: Sequence[int]
    deaths: Sequence[int]
    sends: Sequence[int]
    ids: bytes

    def is_plain(self) -> bool:
        """Whether nothing but their texts and where they come from distinguishes them: all are low,
        have no deadline, and are sent for the first time."""
        count = len(self.jobs)
        return self.priorities.count(LOW) == self.deadlines.count(math.inf) \
            == self.sends.count(1) == self.deaths.count(0) == count

    def as_groups(self) -> list[Group]:
        """The same as groups."""
        groups, at = [], 0
        for (group, connection, deadline, priority, job, tokens, split, size, deaths, sends) in zip(
                self.groups, self.connections, self.deadlines, self.priorities, self.jobs,
                self.tokens, self.splits, self.sizes, self.deaths, self.sends):
            groups.append(Group(group, connection, priority, deadline, 1, [
                Job(job, tokens, split, deaths, sends, self.ids[at:at + size])]))
            at += size
        return groups

    def cut(self, count: int) -> tuple["LoneJobs", "LoneJobs"]:
        """The first `count` groups, and the others."""
        columns = (self.groups, self.connections, self.deadlines, self.priorities, self.jobs,
                   self.tokens, self.splits, self.sizes, self.deaths, self.sends)
        at = sum(self.sizes[:count])
        return (LoneJobs(*[column[:count] for column in columns], self.ids[:at]),
                LoneJobs(*[column[count:] for column in columns], self.ids[at:]))


@dataclass(slots=True)
class Cancel:
    jobs: list[int]


@dataclass(slots=True)
class Result:
    """An answer: `logits` float32 [C] as bytes (none where `status` is RESULT_FAILED); `kind` is
    CACHE where no engine computed it, or that of `engine`."""

    job: int
    status: int
    kind: int
    engine: int
    batch_size: int
    queue_us: int
    infer_us: int
    logits: bytes


@dataclass(slots=True)
class Results:
    results: list[Result]


@dataclass(slots=True)
class Refusal:
    group: int
    reason: int
    retry_ms: int


@dataclass(slots=True)
class Refused:
    refusals: list[Refusal]


@dataclass(slots=True)
class Note:
    """How many faults a job is blamed for, told to the front that holds it."""

    job: int
    deaths: int


@dataclass(slots=True)
class Notes:
    notes: list[Note]


class State(NamedTuple):
    """What a front must know of the dispatcher: whether the model answers, how many engines are
    linked, the estimated wait of each class in ms, and whether the queue takes nobody."""

    ready: bool
    engines: int
    incarnation: int
    backlog_high_ms: float
    backlog_low_ms: float
    is_full: bool = False


@dataclass(slots=True)
class FrontHello:
    front: int
    incarnation: int
    generation: int


@dataclass(slots=True)
class EngineHello:
    """`costs` are measured points (texts, tokens, ms); `classes` is C."""

    kind: int
    index: int
    incarnation: int
    generation: int
    classes: int
    costs: list[tuple[int, int, float]]


@dataclass(slots=True)
class Row:
    tokens: int
    split: int
    ids: bytes


@dataclass(slots=True)
class Batch:
    """Rows to run together, or what else has their fields. `priority` is HIGH where one of them is:
    GPU engines have a lane for each class, and get rows of one class only."""

    batch: int
    priority: int
    rows: list[Row]


@dataclass(slots=True)
class PackedBatch:
    """A Batch as engines read it: `ids` of all rows one after the other, `sizes` their bytes."""

    batch: int
    priority: int
    sizes: list[int]
    splits: list[int]
    ids: bytes


@dataclass(slots=True)
class Done:
    """`logits` float32 [B, C] as bytes, rows in the order of the batch; `padding` counts tokens
    that were computed to fill a shape."""

    batch: int
    infer_us: int
    classes: int
    logits: bytes
    padding: int = 0


@dataclass(slots=True)
class Failed:
    """`fatal`: the engine is leaving and takes no more; nothing speaks against the batch, whose
    number may be NO_BATCH."""

    batch: int
    fatal: bool
    reason: str
