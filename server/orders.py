"""What the supervisor is told of the house, and what it orders the master to do (pure)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plan:
    """What there should be in a generation, and the operator's times in seconds."""

    fronts: int
    engines: int
    give_up_s: float = 120.0
    lame_duck_s: float = 2.0
    drain_s: float = 25.0


@dataclass(frozen=True, slots=True)
class Reading:
    """A page's header: alive until (monotonic s), CPU seconds promised and used (0: no bound),
    whether it is up and whether it has worked."""

    alive_until: float
    cpu_until: float
    cpu_used: float
    is_up: bool
    has_worked: bool


@dataclass(frozen=True, slots=True)
class Begin:
    """A generation is about to be started, with the checkpoint of that folder."""

    generation: int
    model: str


@dataclass(frozen=True, slots=True)
class Spawn:
    role: str
    index: int
    incarnation: int
    generation: int


@dataclass(frozen=True, slots=True)
class Kill:
    """For a broken lease."""

    role: str
    index: int
    incarnation: int
    why: str


@dataclass(frozen=True, slots=True)
class ReportDeath:
    """To be told to the generation's dispatcher (an engine's) or fronts (the dispatcher's)."""

    role: str
    index: int
    incarnation: int
    is_fault: bool
    generation: int


@dataclass(frozen=True, slots=True)
class EnterPhase:
    """To be told to the generation's fronts, successors too: "rehearsal" (nobody is let in yet),
    "serving", "lame_duck", "replaced" (another generation lets clients in), "draining", "stop"."""

    phase: str
    generation: int


@dataclass(frozen=True, slots=True)
class CloseDoors:
    """The server has begun to end: it lets nobody in any more, whatever the generation."""


@dataclass(frozen=True, slots=True)
class Dismiss:
    """Every process of the generation is to end now: it holds nothing any more, or never did."""

    generation: int


@dataclass(frozen=True, slots=True)
class Retire:
    """The generation's last process is gone, and with it the need for its files."""

    generation: int


@dataclass(frozen=True, slots=True)
class TellReload:
    """The reload that was asked for under these tickets has ended: it serves, or nothing has
    changed, and why."""

    tickets: tuple[int, ...]
    is_ok: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class AnnounceReady:
    pass


@dataclass(frozen=True, slots=True)
class CountRestart:
    role: str
    cause: str


@dataclass(frozen=True, slots=True)
class Exit:
    code: int
    sentence: str = ""
