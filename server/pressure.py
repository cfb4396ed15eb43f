"""Whether a GPU should serve, by its memory and by how its engine fared: one machine a GPU (pure).

                    low in 3 readings          very low in 2 readings, or a failed allocation
                 ┌───────────────────► TIGHT ──────────────┐
    serves ──► OK ◄────────────────────┘                   ▼
      ▲         └──────────────────────────────────────► CRITICAL      the engine is told to leave
      │                twice the level, for the hold       │
      │                                                    ▼ it has ended, or died of anything
      └── engine started ◄── RECOVERING ◄──────────────────┘
                             room for all of it, for the hold, after the back-off
    any state ──► LOST: the device is gone or cannot be used; final in this life of the server

In OK and TIGHT the GPU takes all work and CPU engines are parked; in the others they take it. Low
memory is other tenants' doing, for a GPU engine allocates nothing while it serves: TIGHT keeps it
from growing, CRITICAL gives its memory to the neighbours before one of them fails. Thresholds are
bytes and a share of the device, whichever is more: a share alone is 7 GB on a large card, bytes
alone are nothing there. The way back asks for the room that the engine had plus twice the TIGHT
level: compared with bare free memory it would flap, since its own leaving raised that.

A reading says when it was made. One that is older than `stale_s` is no reading: the state stays as
it is and nobody is promoted. Times are monotonic seconds, sizes bytes.
"""

import math
from dataclasses import dataclass

OK, TIGHT, CRITICAL, RECOVERING, LOST = "ok", "tight", "critical", "recovering", "lost"
STATES = (OK, TIGHT, CRITICAL, RECOVERING, LOST)
SERVING = (OK, TIGHT)

# Why a state was entered, in logs, metrics and /info.
REASONS = ("start", "memory_low", "memory_back", "pressure", "allocation", "capture", "check",
           "cuda_error", "hang", "killed", "died", "served", "reload", "unusable", "unkillable",
           "device_lost")

# A spike of one reading is somebody's short-lived buffer.
TIGHT_READINGS, CRITICAL_READINGS = 3, 2
# How much above the TIGHT level counts as room again: one level would be left at once.
ROOM = 2.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds in bytes and shares of the device, and times in seconds."""

    tight_bytes: int = 512 << 20
    tight_share: float = 0.02
    critical_bytes: int = 192 << 20
    critical_share: float = 0.005
    hold_s: float = 30.0
    back_off_s: float = 30.0
    longest_back_off_s: float = 600.0
    good_s: float = 600.0
    stale_s: float = 3.0

    def tight(self, total: int) -> float:
        return max(self.tight_bytes, self.tight_share * total)

    def critical(self, total: int) -> float:
        """Never above the TIGHT level, whatever was set."""
        return min(max(self.critical_bytes, self.critical_share * total), self.tight(total))


@dataclass(frozen=True, slots=True)
class DeviceReading:
    """Memory of one device, made `at`."""

    at: float
    total: int
    free: int


@dataclass(frozen=True, slots=True)
class Start:
    """An engine should be started for this GPU."""


@dataclass(frozen=True, slots=True)
class Leave:
    """The engine should finish what it has begun and end."""

    reason: str


@dataclass(frozen=True, slots=True)
class Tighten:
    """The engine should give back what it can, when idle, and capture nothing new."""


@dataclass(frozen=True, slots=True)
class Entered:
    """A state was entered, for the log, the metrics and /info."""

    state: str
    reason: str
    since: float


class Pressure:
    """One GPU's state. `footprint` is what its engine takes, in bytes: an estimate until an
    engine has told its own."""

    def __init__(self, limits: Limits, footprint: int) -> None:
        self.limits = limits
        self.footprint = footprint
        self.state, self.reason, self.since = RECOVERING, "start", 0.0
        self.reading: DeviceReading | None = None
        self.has_engine = False
        self.back_off_s = limits.back_off_s
        self._retry_at = -math.inf
        self._has_ever_started = False
        self._low = self._very_low = 0
        self._room_since: float | None = None
        self._served_since: float | None = None
        self._actions: list[object] = []

    # ---- events ---------------------------------------------------------------------------

    def read(self, reading: DeviceReading, now: float) -> None:
        """A reading has come; one that was seen already, or is too old, changes nothing."""
        previous = self.reading
        if previous is not None and reading.at <= previous.at:
            return
        self.reading = reading
        if now - reading.at > self.limits.stale_s:
            self._room_since = None
            return
        if previous is None or reading.at - previous.at > self.limits.stale_s:
            self._low = self._very_low = 0      # nobody knows what was in between
            self._room_since = None
        self._low = self._low + 1 if reading.free < self.limits.tight(reading.total) else 0
        self._very_low = \
            self._very_low + 1 if reading.free < self.limits.critical(reading.total) else 0
        if reading.free < self._wanted(reading.total):
            self._room_since = None
        elif self._room_since is None:
            self._room_since = reading.at
        self._judge(now)

    def serves(self, footprint: int, now: float) -> None:
        """The engine is ready, and takes so much memory."""
        if not self.has_engine or self.state in (CRITICAL, LOST):
            return
        self.footprint = footprint
        self._served_since = now
        self._room_since = None
        self._enter(OK, "served", now)

    def allocation_failed(self, now: float) -> None:
        """The engine could not allocate: whoever else is on the device has what it needs."""
        if self.has_engine and self.state not in (CRITICAL, LOST):
            self._leave("allocation", now)

    def ended(self, reason: str, now: float) -> None:
        """The engine's process is gone; `reason` (one of REASONS) says of what, where nothing had
        been asked of it. "reload": it made room for the next model's, which starts at once."""
        if not self.has_engine:
            return
        self.has_engine = False
        if reason == "reload":
            self._has_ever_started = False      # the room that it had is there for its successor
            self._retry_at, self._served_since, self._room_since = now, None, None
            self._enter(RECOVERING, reason, now)
            return
        if self._served_since is not None and now - self._served_since >= self.limits.good_s:
            self.back_off_s = self.limits.back_off_s
        self._served_since = self._room_since = None
        self._retry_at = now + self.back_off_s
        self.back_off_s = min(2 * self.back_off_s, self.limits.longest_back_off_s)
        if self.state == LOST:
            return
        if reason == "unusable":
            self.lost(reason, now)
        else:
            self._enter(RECOVERING, self.reason if self.state == CRITICAL else reason, now)

    def lost(self, reason: str, now: float) -> None:
        """The device is gone for good: no engine runs on it again."""
        if self.state == LOST:
            return
        if self.has_engine:
            self._actions.append(Leave(reason))
        self._enter(LOST, reason, now)

    def tick(self, now: float) -> None:
        """Timers; after the readings that have come."""
        if self.state != RECOVERING or self.has_engine or not self._may_return(now):
            return
        self.has_engine = self._has_ever_started = True
        self._low = self._very_low = 0
        self._actions.append(Start())

    def take_actions(self) -> list[object]:
        actions, self._actions = self._actions, []
        return actions

    # ---- judgement ------------------------------------------------------------------------

    def _judge(self, now: float) -> None:
        if not self.has_engine or self.state in (CRITICAL, LOST):
            return
        if self._very_low >= CRITICAL_READINGS:
            self._leave("pressure", now)
        elif self.state == OK and self._low >= TIGHT_READINGS:
            self._enter(TIGHT, "memory_low", now)
            self._actions.append(Tighten())
        elif self.state == TIGHT and self._room_since is not None \
                and now - self._room_since >= self.limits.hold_s:
            self._enter(OK, "memory_back", now)

    def _wanted(self, total: int) -> float:
        """The free memory that the next step up needs."""
        room = ROOM * self.limits.tight(total)
        return room if self.has_engine else room + self.footprint

    def _may_return(self, now: float) -> bool:
        reading = self.reading
        if reading is None or now - reading.at > self.limits.stale_s or now < self._retry_at:
            return False
        if self._room_since is None:
            return False
        return not self._has_ever_started or now - self._room_since >= self.limits.hold_s

    def _leave(self, reason: str, now: float) -> None:
        self._enter(CRITICAL, reason, now)
        self._actions.append(Leave(reason))

    def _enter(self, state: str, reason: str, now: float) -> None:
        self.state, self.reason, self.since = state, reason, now
        self._actions.append(Entered(state, reason, now))
