"""The master's process: forks, reaps and kills as the supervisor decides; holds what outlives them.

It has one thread, no torch and no request. It is the parent of every process (a subreaper, so that
engines whose forkserver died stay its children), knows every exit status, and kills only children
that it has not reaped yet, so never a stranger with a recycled number.
"""

import faulthandler
import os
import secrets
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from loader.prepare import ModelFiles, open_card
from server import dispatcher, forkserver, front, link, log, preparer
from server.announcement import announcement
from server.auth import load_keys
from server.cores import usable_cores
from server.errors import OperatorError
from server.listeners import open_listeners
from server.metrics import ALIVE_UNTIL, CPU_UNTIL, PID, STATE, UP, WORKED, Page, Registry
from server.metrics_schema import CAUSES
from server.processes import (PR_SET_CHILD_SUBREAPER, STDERR, ChildSpec, Control, fork,
                              set_process_option)
from server.settings import Settings
from server.supervise import (AnnounceReady, CountRestart, EnterPhase, Exit, Kill, Plan, Reading,
                              ReportDeath, Spawn, Supervisor, is_fault)

GENERATION = 1
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2, signal.SIGCHLD)
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
START_LEASE_S = 10.0  # a fork takes milliseconds; who says nothing for longer never came to be
ENTRIES: dict[str, Callable[[ChildSpec], None]] = {
    "front": front.run, "dispatcher": dispatcher.run, "preparer": preparer.run,
    "forkserver": forkserver.run,
}


@dataclass(slots=True, eq=False)
class _Process:
    """A child that was started; `pid` is 0 for an engine that has not said its own yet."""

    role: str
    index: int
    incarnation: int
    control: Control
    page: Page
    pid: int = 0


def run(settings: Settings) -> int:
    """Serves until it is told to end; the exit code. Raises OperatorError before it serves."""
    return Master(settings).serve()


class Master:
    """The shell around server/supervise.py."""

    def __init__(self, settings: Settings) -> None:
        cores = usable_cores()
        self.settings = settings = replace(
            settings, engines=settings.engines or cores,
            fronts=settings.fronts or max(2, cores // 8))
        self.keys = load_keys(settings.api_keys) if settings.api_keys else ()
        if settings.records and not os.path.isdir(settings.records):
            raise OperatorError(f"--records {settings.records}: no such folder")
        self.listeners = open_listeners(settings.host, settings.port, settings.fronts,
                                        settings.share_port)
        self.port = self.listeners[0].getsockname()[1]
        self.dispatcher_name = f"firebrick-{secrets.token_hex(16)}"
        self.dispatcher_listener = link.listen(self.dispatcher_name)
        self.registry = Registry(settings.fronts, settings.engines)
        self.page = self.registry.page("master", 0)
        self.files: ModelFiles | None = None
        self.processes: dict[tuple[str, int], _Process] = {}
        self.strays: dict[int, int] = {}
        self.signals: list[int] = []
        self.phase = ""
        self.exit_code: int | None = None
        self.selector = selectors.DefaultSelector()
        self.supervisor = Supervisor(
            Plan(settings.fronts, settings.engines, settings.give_up_s, settings.lame_duck_s,
                 settings.drain_s), time.monotonic())

    def serve(self) -> int:
        set_process_option(PR_SET_CHILD_SUBREAPER, 1)
        self._take_signals()
        now = time.monotonic()
        self.page.begin(os.getpid(), 0, GENERATION, now)
        self.page.set_state(UP)
        self.supervisor.start(now)
        self._obey()
        while self.exit_code is None:
            self._turn()
        self._end_all()
        return self.exit_code

    def _turn(self) -> None:
        now = time.monotonic()
        for key, _ in self.selector.select(max(self.supervisor.next_timer(now) - now, 0.0)):
            if key.data is None:
                self._drain_wakeups()
            else:
                self._listen_to(key.data)
        self._reap()
        now = time.monotonic()
        while self.signals:
            self._on_signal(self.signals.pop(0), now)
        self.supervisor.tick(self._readings(), now)
        self._obey()
        for process in self.processes.values():
            process.control.flush()

    # ---- in -----------------------------------------------------------------------------

    def _take_signals(self) -> None:
        """Handlers only record; a byte in the wake-up socket ends the wait."""
        self.wake_reader, self.wake_writer = socket.socketpair()
        self.wake_reader.setblocking(False)
        self.wake_writer.setblocking(False)
        signal.set_wakeup_fd(self.wake_writer.fileno(), warn_on_full_buffer=False)
        for number in SIGNALS:
            signal.signal(number, lambda number, _: self.signals.append(number))
        self.selector.register(self.wake_reader, selectors.EVENT_READ, None)

    def _drain_wakeups(self) -> None:
        try:
            while self.wake_reader.recv(4096):
                pass
        except BlockingIOError:
            pass

    def _on_signal(self, number: int, now: float) -> None:
        if number in (signal.SIGTERM, signal.SIGINT):
            name = "TERM" if number == signal.SIGTERM else "INT"
            log.event("signal", name=name)
            self.supervisor.signal(name, now)
        elif number == signal.SIGHUP:
            log.event("reload_ignored", why="start a new server beside it with --share-port")
        elif number == signal.SIGUSR2:
            faulthandler.dump_traceback(file=STDERR, all_threads=True)
            for process in self.processes.values():
                if process.pid:
                    os.kill(process.pid, signal.SIGUSR2)

    def _listen_to(self, process: _Process) -> None:
        messages, has_ended = process.control.receive_all()
        now = time.monotonic()
        for message, descriptors in messages:
            kind = message["type"]
            if kind == "up":
                process.pid = message["pid"]
                process.page.values[PID] = process.pid
                if process.pid in self.strays:
                    self._buried(process, self.strays.pop(process.pid), now)
                    return
            elif kind == "prepared":
                self._share_model(ModelFiles(*descriptors), now)
            elif kind == "refused":
                self.supervisor.refused(message["message"])
            elif kind == "ready" and process.role == "forkserver":
                self._take_card(*descriptors)
                self.supervisor.forkserver_ready(process.incarnation, now)
            elif kind == "ready":
                self.supervisor.engine_serves(now)
            elif kind == "drained":
                self.supervisor.drained(process.index, now)
        if has_ended:
            self.selector.unregister(process.control)
            if not process.pid:
                self._never_came(process, "its forkserver died", now)

    def _share_model(self, files: ModelFiles, now: float) -> None:
        self.files = files
        for process in self.processes.values():
            if process.role == "front":
                self._send_model(process)
        self.supervisor.prepared(now)

    def _take_card(self, card_fd: int) -> None:
        """The card as the forkserver completed it: the precision that is served, and with what."""
        os.close(self.files.card_fd)
        self.files = replace(self.files, card_fd=card_fd)
        for process in self.processes.values():
            if process.role == "front":
                process.control.send({"type": "card"}, (card_fd,))

    def _send_model(self, process: _Process) -> None:
        card_fd, tokenizer_fd, *image_fds = self.files.descriptors
        process.control.send(
            {"type": "model", "generation": GENERATION},
            (card_fd, tokenizer_fd) if process.role == "front" else (card_fd, *image_fds))

    def _reap(self) -> None:
        if all(process.pid for process in self.processes.values()):
            self.strays.clear()         # nobody is awaited whose number could be among them
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            process = next((p for p in self.processes.values() if p.pid == pid), None)
            if process is None:
                self.strays[pid] = status   # an engine may die before its own number is read here
                continue
            if process.role in ("preparer", "forkserver", "front", "dispatcher"):
                self._hear_last_words(process)
            self._buried(process, status, time.monotonic())

    def _hear_last_words(self, process: _Process) -> None:
        """What a dead child had sent counts, before its death does."""
        if process.control in self.selector.get_map():
            self._listen_to(process)

    def _buried(self, process: _Process, status: int, now: float) -> None:
        """A child has ended with a wait status."""
        if not self._clear(process):
            return
        cause, words = _cause(status)
        if process.role != "preparer" or cause != "exit-0":
            log.event("process_died", role=process.role, index=process.index, pid=process.pid,
                      cause=cause)
        self.supervisor.exited(process.role, process.index, process.incarnation,
                               "exit" if cause.startswith("exit") else cause, is_fault(cause),
                               bool(process.page.get(WORKED)), now, words)

    def _never_came(self, process: _Process, why: str, now: float) -> None:
        """A child that was ordered is not there, and never was as far as anyone knows."""
        if self._clear(process):
            log.event("process_not_started", role=process.role, index=process.index, why=why)
            self.supervisor.never_came(process.role, process.index, process.incarnation, now, why)

    def _clear(self, process: _Process) -> bool:
        """Empties a process's place; False where it is not the one in it."""
        place = process.role, process.index
        if self.processes.get(place) is not process:
            return False
        del self.processes[place]
        process.page.end()
        if process.control in self.selector.get_map():
            self.selector.unregister(process.control)
        process.control.close()
        return True

    def _readings(self) -> dict[tuple[str, int], Reading]:
        found = {}
        for place, process in self.processes.items():
            page = process.page
            cpu_until = page.get(CPU_UNTIL)
            found[place] = Reading(
                page.get(ALIVE_UNTIL), cpu_until,
                _cpu_seconds(process.pid) if cpu_until else 0.0,
                page.get(STATE) == UP, bool(page.get(WORKED)))
        return found

    # ---- out ----------------------------------------------------------------------------

    def _obey(self) -> None:
        actions = self.supervisor.take_actions()
        while actions:
            for action in actions:
                self._do(action)
            actions = self.supervisor.take_actions()

    def _do(self, action: object) -> None:
        if isinstance(action, Spawn):
            self._spawn(action)
        elif isinstance(action, Kill):
            self._kill(action)
        elif isinstance(action, ReportDeath):
            told = "dispatcher" if action.role == "engine" else "front"
            for process in self.processes.values():
                if process.role == told:
                    process.control.send({"type": "death", "role": action.role,
                                          "index": action.index, "fault": action.is_fault,
                                          "incarnation": action.incarnation})
        elif isinstance(action, EnterPhase):
            self.phase = action.phase
            log.event("phase", name=action.phase)
            for process in self.processes.values():
                if process.role == "front":
                    process.control.send({"type": "phase", "phase": action.phase})
            if action.phase == "draining":
                # The kernel lets clients in until the last copy is closed, which is a front's.
                for listener in self.listeners:
                    listener.close()
        elif isinstance(action, AnnounceReady):
            self._announce()
        elif isinstance(action, CountRestart):
            cause = action.cause if action.cause in CAUSES else "signal"
            self.page.counter("restarts_total", role=action.role, cause=cause).add()
        elif isinstance(action, Exit) and self.exit_code is None:
            if action.sentence:
                print(action.sentence, file=sys.stderr, flush=True)
            self.exit_code = action.code

    def _spawn(self, action: Spawn) -> None:
        ours, theirs = Control.pair()
        page = self.registry.page(action.role, action.index, GENERATION)
        page.begin(0, action.incarnation, GENERATION, time.monotonic(), START_LEASE_S)
        process = _Process(action.role, action.index, action.incarnation, ours, page)
        self.processes[action.role, action.index] = process
        self.selector.register(ours, selectors.EVENT_READ, process)
        if action.role == "engine":
            self._order_engine(process, theirs)
        else:
            self._fork(process, theirs)
        theirs.close()

    def _order_engine(self, process: _Process, theirs: Control) -> None:
        """Where the forkserver is dead, or dies with the order unread, the kernel drops the
        descriptor, and the end of its control socket tells."""
        forker = self.processes.get(("forkserver", 0))
        if forker is not None:
            forker.control.send({"type": "spawn", "index": process.index,
                                 "incarnation": process.incarnation}, (theirs.fileno(),))

    def _fork(self, process: _Process, theirs: Control) -> None:
        # Before the fork, so that it is the first thing that the child reads.
        if self.files is not None and process.role in ("front", "forkserver"):
            self._send_model(process)
        if self.phase and process.role == "front":
            process.control.send({"type": "phase", "phase": self.phase})
        try:
            process.pid = fork(ENTRIES[process.role], self._spec(process, theirs))
        except OSError as error:        # a limit on processes or memory, for now
            self._never_came(process, error.strerror, time.monotonic())
            return
        process.page.values[PID] = process.pid
        log.event("process_started", role=process.role, index=process.index, pid=process.pid)

    def _spec(self, process: _Process, control: Control) -> ChildSpec:
        is_front, is_dispatcher = process.role == "front", process.role == "dispatcher"
        return ChildSpec(
            process.role, process.index, process.incarnation, GENERATION, self.settings, control,
            process.page, self.registry, self.dispatcher_name, os.getpid(),
            tuple(self.listeners) if is_front else (),
            self.dispatcher_listener if is_dispatcher else None, self.keys)

    def _kill(self, action: Kill) -> None:
        process = self.processes.get((action.role, action.index))
        if process is None or process.incarnation != action.incarnation:
            return
        log.event("process_killed", role=action.role, index=action.index, pid=process.pid,
                  why=action.why)
        if process.pid:
            os.kill(process.pid, signal.SIGKILL)
        else:
            self._never_came(process, action.why, time.monotonic())

    def _announce(self) -> None:
        text = announcement(self.settings.host, self.port, open_card(self.files.card_fd),
                            self.settings.engines, self.settings.api_keys)
        try:
            os.write(1, text)
        except OSError as error:
            log.event("stdout_failed", why=error.strerror)

    def _end_all(self) -> None:
        for process in self.processes.values():
            if process.pid:
                os.kill(process.pid, signal.SIGKILL)
            process.control.close()         # an engine whose number is not known ends with it
        deadline = time.monotonic() + 2.0
        while time.monotonic() < deadline:
            try:
                if not os.waitpid(-1, os.WNOHANG)[0]:
                    time.sleep(0.002)
            except ChildProcessError:
                return


def _cause(status: int) -> tuple[str, str]:
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
