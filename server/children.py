"""The master's children: who there is, what each says and has come to, killed by number alone.

A child is reaped here and nowhere else, and only an unreaped one is ever killed, so never a
stranger with a recycled number. Engines are forked by their forkserver and say their own number; a
death that comes earlier is kept until the number is known.
"""

import os
import selectors
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass

from server import log
from server.metrics import (ALIVE_UNTIL, CPU_UNTIL, PID, STATE, UP, WORKED, Page, Registry)
from server.orders import Reading, Spawn
from server.processes import Control

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
# A fork takes milliseconds; an engine that says nothing for longer never came to be.
START_LEASE_S = 10.0
LAST_WAIT_S = 2.0


@dataclass(slots=True, eq=False)
class Process:
    """A child that was started; `pid` is 0 for an engine that has not said its own yet."""

    role: str
    index: int
    incarnation: int
    generation: int
    control: Control
    page: Page
    pid: int = 0
    is_dismissed: bool = False


class Children:
    """All of them, by incarnation; their control sockets are in `selector`, each with its Process
    as data. `strays` are wait statuses of children that are not known by number (yet)."""

    def __init__(self, selector: selectors.BaseSelector, registry: Registry) -> None:
        self.by_incarnation: dict[int, Process] = {}
        self._selector = selector
        self._registry = registry
        self.strays: dict[int, int] = {}

    def __iter__(self) -> Iterator[Process]:
        return iter(list(self.by_incarnation.values()))

    def of(self, role: str, generation: int) -> list[Process]:
        """Those of a role in a generation."""
        return [process for process in self
                if process.role == role and process.generation == generation]

    def expect(self, order: Spawn) -> tuple[Process, Control]:
        """(a process to be started in that place, its end of the control socket)."""
        ours, theirs = Control.pair()
        page = self._registry.page(order.role, order.index, order.generation)
        page.begin(0, order.incarnation, order.generation, time.monotonic(), START_LEASE_S)
        process = Process(order.role, order.index, order.incarnation, order.generation, ours, page)
        self.by_incarnation[order.incarnation] = process
        self._selector.register(ours, selectors.EVENT_READ, process)
        return process, theirs

    def named(self, process: Process, pid: int) -> int | None:
        """A process's number is known now; its wait status where it is dead already."""
        process.pid = pid
        process.page.values[PID] = pid
        return self.strays.pop(pid, None)

    def reap(self) -> Iterator[tuple[Process, int]]:
        """(process, wait status) of each that has ended since."""
        if all(process.pid for process in self):
            self.strays.clear()        # nobody is awaited whose number could be among them
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            process = next((one for one in self if one.pid == pid), None)
            if process is None:
                # An engine may die before its own number has been read here.
                self.strays[pid] = status
            else:
                yield process, status

    def is_heard(self, process: Process) -> bool:
        """Whether its control socket has not ended yet."""
        return process.control in self._selector.get_map()

    def unheard(self, process: Process) -> None:
        """Its control socket has ended."""
        self._selector.unregister(process.control)

    def forget(self, process: Process) -> bool:
        """Empties a process's place; False where it is forgotten already."""
        if self.by_incarnation.get(process.incarnation) is not process:
            return False
        del self.by_incarnation[process.incarnation]
        process.page.end()
        if self.is_heard(process):
            self.unheard(process)
        process.control.close()
        return True

    def readings(self) -> dict[int, Reading]:
        """What each page says, by incarnation."""
        found = {}
        for process in self:
            page = process.page
            cpu_until = page.get(CPU_UNTIL)
            found[process.incarnation] = Reading(
                page.get(ALIVE_UNTIL), cpu_until,
                _cpu_seconds(process.pid) if cpu_until else 0.0,
                page.get(STATE) == UP, bool(page.get(WORKED)))
        return found

    def tell(self, role: str, generation: int | None, message: dict) -> None:
        """Sends a message to each process of a role; of all generations for None."""
        for process in self:
            if process.role == role and generation in (None, process.generation):
                process.control.send(message)

    def flush(self) -> None:
        """Sends what could not be sent at once."""
        for process in self:
            process.control.flush()

    def end_all(self) -> None:
        """Kills everyone and waits until they are gone."""
        for process in self:
            if process.pid:
                os.kill(process.pid, signal.SIGKILL)
            process.control.close()     # an engine whose number is not known ends with it
        deadline = time.monotonic() + LAST_WAIT_S
        while time.monotonic() < deadline:
            try:
                if not os.waitpid(-1, os.WNOHANG)[0]:
                    time.sleep(0.002)
            except ChildProcessError:
                return

    def kill(self, process: Process, why: str) -> bool:
        """Kills one, and says why unless it was dismissed; False where its number is not known,
        so that it never came as far as anyone knows."""
        if not process.is_dismissed:
            log.event("process_killed", role=process.role, index=process.index, pid=process.pid,
                      generation=process.generation, why=why)
        if process.pid:
            os.kill(process.pid, signal.SIGKILL)
        return bool(process.pid)


def cause_of(status: int) -> tuple[str, str]:
    """(cause, words) of a wait status: "exit-3", "sigsegv", "signal-40" (it has no name)."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = f"signal-{number}"
        return name.lower(), f"killed by {name}"
    code = os.WEXITSTATUS(status)
    return f"exit-{code}", f"it ended with status {code}"


def _cpu_seconds(pid: int) -> float:
    """CPU time that a process has used (proc(5): utime, stime)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS
