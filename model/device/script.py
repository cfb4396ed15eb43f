"""The script of a recorded device: its memory, its speed, and the faults that it should have.

A text file, read again whenever it has changed, one entry a line:

    memory TOTAL FREE          MiB that the watch reads (default 65536 and 60000)
    speed US                   a launch takes so many microseconds a padded token (default 0)
    eager US                   and so many more where it has no graph (default 0)
    arithmetic NAME ...        of fp16 bf16 fp32 fp8 int8 what it computes in, the first tried first
                               (default fp32 fp8 int8)
    once PLACE KIND [NTH]      a fault at the NTH call of PLACE in a process's life (default: next)

    places and kinds:
        allocate   memory          out of memory
        capture    memory, error   a capture that runs out of memory, or breaks
        run        memory          a launch without a graph that runs out of memory
        replay     memory, error, hang, nan, stale, exit
                                   out of memory; an error after which every call fails; never
                                   done; NaN in its outputs; outputs of the replay before; death
        watch      block, lost     readings stop; the device is gone

A fault takes its line out of the file as it fires, so it fires once, whoever runs next.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

MIB = 1 << 20
KINDS = {"allocate": ("memory",), "capture": ("memory", "error"), "run": ("memory",),
         "replay": ("memory", "error", "hang", "nan", "stale", "exit"),
         "watch": ("block", "lost")}
DEFAULT_MEMORY = (65536 * MIB, 60000 * MIB)
ARITHMETIC = ("fp16", "bf16", "fp32", "fp8", "int8")
DEFAULT_ARITHMETIC = ("fp32", "fp8", "int8")


class ScriptError(ValueError):
    """A line that says nothing; the message names it."""


@dataclass(frozen=True)
class Fault:
    """One `once` line."""

    place: str
    kind: str
    nth: int

    @property
    def line(self) -> str:
        return f"once {self.place} {self.kind} {self.nth}" if self.nth else \
            f"once {self.place} {self.kind}"


@dataclass
class Told:
    """Every other line; `memory` is (total, free) in bytes."""

    memory: tuple[int, int] = DEFAULT_MEMORY
    speed_us: float = 0.0
    eager_us: float = 0.0
    arithmetic: tuple[str, ...] = DEFAULT_ARITHMETIC


class Script:
    """A script file as one process sees it; an empty path is a device without faults."""

    def __init__(self, path: str = "") -> None:
        self._path = path
        self._read_state: tuple[int, int] | None = None
        self._told = Told()
        self._faults: list[Fault] = []
        self._calls: dict[str, int] = {}
        self._refresh()

    def memory(self) -> tuple[int, int]:
        """(total, free) in bytes."""
        self._refresh()
        return self._told.memory

    def launch_s(self, tokens: int, is_eager: bool = False) -> float:
        """Seconds that a launch of so many padded tokens takes; 0 tokens are no launch."""
        self._refresh()
        told = self._told
        return (tokens * told.speed_us + is_eager * told.eager_us) / 1e6 if tokens else 0.0

    def arithmetic(self) -> tuple[str, ...]:
        """What it computes in, as /info names precisions."""
        self._refresh()
        return self._told.arithmetic

    def take(self, place: str) -> str | None:
        """Counts a call of `place`; the kind of fault that it should have, or None."""
        self._refresh()
        self._calls[place] = calls = self._calls.get(place, 0) + 1
        for fault in self._faults:
            if fault.place == place and fault.nth in (0, calls):
                self._faults.remove(fault)
                self._strike(fault)
                return fault.kind
        return None

    def _refresh(self) -> None:
        if not self._path:
            return
        try:
            found = os.stat(self._path)
            state = found.st_mtime_ns, found.st_ino
            if state == self._read_state:
                return
            with open(self._path, encoding="utf-8") as file:
                text = file.read()
        except FileNotFoundError:
            return              # being replaced
        self._read_state = state
        self._told, self._faults = parse(text)

    def _strike(self, fault: Fault) -> None:
        """Takes the fault's line out of the file."""
        with open(self._path, encoding="utf-8") as file:
            lines = file.read().splitlines()
        for number, line in enumerate(lines):
            if _words(line) == fault.line.split():
                del lines[number]
                break
        write(self._path, "\n".join(lines) + "\n")


def parse(text: str) -> tuple[Told, list[Fault]]:
    """(what stays, faults) of a script; raises ScriptError."""
    told, faults = Told(), []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            match _words(line):
                case []:
                    pass
                case ["memory", total, free]:
                    told.memory = int(float(total) * MIB), int(float(free) * MIB)
                case ["speed", us]:
                    told.speed_us = float(us)
                case ["eager", us]:
                    told.eager_us = float(us)
                case ["arithmetic", *names] if names and set(names) <= set(ARITHMETIC):
                    told.arithmetic = tuple(names)
                case ["once", place, kind, *nth] if kind in KINDS.get(place, ()) and len(nth) < 2:
                    faults.append(Fault(place, kind, int(nth[0]) if nth else 0))
                case _:
                    raise ValueError
        except ValueError:
            raise ScriptError(f"line {number} of the faults is no entry: {line.strip()!r}; "
                              "model/device/script.py lists them") from None
    return told, faults


def write(path: str, text: str) -> None:
    """Replaces a script as a whole, so that no reader meets half of one."""
    beside = f"{path}.{os.getpid()}"
    with open(beside, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(beside, path)


def _words(line: str) -> list[str]:
    return line.partition("#")[0].split()
