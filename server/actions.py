"""What requests in flight come to, and what a front is told to do about them."""

from collections.abc import Sequence
from dataclasses import dataclass

from server.messages import Cancel, FrontHello, Group, Result

# (job, status, kind, engine, batch size, queue µs, infer µs, classes, logits) of one text, in the
# order of its bytes (server/codec.py): a Result costs five times as much as a tuple.
Answer = tuple[int, int, int, int, int, int, int, int, bytes]


@dataclass(slots=True)      # every request makes one, and a frozen one takes four times as long
class Outcome:
    """How a group ended: "ok", "refused", "failed", "deadline", "aged", "outage", "not_ready".

    `results` stands in row order for "ok", with None for a row that failed in a partial group;
    `retry_ms` says when to come back after "refused", "outage" and "not_ready".
    """

    kind: str
    results: Sequence[Result | None] = ()
    reason: str = ""
    retry_ms: int = 0


@dataclass(frozen=True, slots=True)
class SendHello:
    hello: FrontHello


@dataclass(slots=True)      # as an Outcome
class SendGroups:
    groups: list[Group]


@dataclass(frozen=True, slots=True)
class SendCancel:
    cancel: Cancel


@dataclass(slots=True)      # as an Outcome
class Finish:
    group: int
    outcome: Outcome


@dataclass(slots=True)
class Answers:
    """The ends of requests that were opened as lone ones and are answered, by group."""

    answered: list[tuple[int, Answer]]
