"""The master's process: starts, tells and kills as the supervisor decides; holds what outlives
its children: the listening sockets, and each generation's sealed model.

It has one thread, no torch and no request. It is the parent of every process (a subreaper, so that
engines whose forkserver died stay its children) and knows every exit status.
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
from dataclasses import dataclass, field, replace

from loader.prepare import ModelFiles, open_card
from server import dispatcher, forkserver, front, link, log, preparer
from server.announcement import announcement
from server.auth import load_keys
from server.children import Children, Process, cause_of
from server.command_socket import CommandSocket
from server.cores import usable_cores
from server.errors import OperatorError
from server.gpus import Gpus
from server.leases import is_fault
from server.listeners import (begin_listening, close_unix_path, open_listeners,
                              open_unix_listener, take_over)
from server.metrics import GENERATION, UP, WORKED, Registry
from server.metrics_schema import CAUSES
from server.notify import Notifier
from server.orders import (AnnounceReady, Begin, CloseDoors, CountRestart, Dismiss, EnterPhase,
                           Exit, Kill, Plan, ReportDeath, Retire, Spawn, TellReload)
from server.processes import PR_SET_CHILD_SUBREAPER, STDERR, ChildSpec, Control, fork, \
    set_process_option
from server.settings import Settings
from server.signals import Signals
from server.supervise import Supervisor

ENTRIES: dict[str, Callable[[ChildSpec], None]] = {
    "front": front.run, "dispatcher": dispatcher.run, "preparer": preparer.run,
    "forkserver": forkserver.run,
}


@dataclass(slots=True)
class Holding:
    """What a generation's processes need for as long as one of them lives; `dispatcher_name` is
    where its own dispatcher listens."""

    model: str
    dispatcher_name: str = field(default_factory=lambda: f"firebrick-{secrets.token_hex(16)}")
    dispatcher_listener: socket.socket = field(init=False)
    files: ModelFiles | None = None
    has_card: bool = False  # as the forkserver completed it
    phase: str = ""
    serving_since: float = 0.0

    def __post_init__(self) -> None:
        self.dispatcher_listener = link.listen(self.dispatcher_name)

    def close(self) -> None:
        self.dispatcher_listener.close()
        if self.files is not None:
            self.files.close()


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
        self.listeners: list[socket.socket] = []
        self.port: int | None = None
        if settings.port is not None:
            self.listeners = open_listeners(settings.host, settings.port, settings.fronts,
                                            settings.share_port)
            self.port = self.listeners[0].getsockname()[1]
        self.shared_listeners = [open_unix_listener(settings.uds, settings.share_port)] \
            if settings.uds else []
        self.registry = Registry(settings.fronts, settings.engines)
        self.page = self.registry.page("master", 0)
        self.held: dict[int, Holding] = {}
        self.last_reload: dict | None = None
        self.exit_code: int | None = None
        self.selector = selectors.DefaultSelector()
        self.children = Children(self.selector, self.registry)
        self.gpus = Gpus(settings, self.registry, self.page, self.children,
                         lambda sentence: self._exit(Exit(2, sentence)))
        self.signals = Signals()
        self.notifier = Notifier(os.environ)
        self.commands = CommandSocket(settings.socket, self.selector, self._ask_reload)
        self.supervisor = Supervisor(
            Plan(settings.fronts, settings.engines, settings.give_up_s, settings.lame_duck_s,
                 settings.drain_s), time.monotonic())

    def serve(self) -> int:
        set_process_option(PR_SET_CHILD_SUBREAPER, 1)
        self.signals.start()
        self.selector.register(self.signals, selectors.EVENT_READ, lambda: None)
        now = time.monotonic()
        self.page.begin(os.getpid(), 0, 1, now)
        self.page.set_state(UP)
        self.supervisor.start(self.settings.model, now)
        self._obey()
        while self.exit_code is None:
            self._turn()
        self._close()
        return self.exit_code

    def _close(self) -> None:
        self.gpus.end()
        self.children.end_all()
        self.commands.close()
        if self.settings.uds:
            for listener in self.shared_listeners:
                listener.close()
            close_unix_path(self.settings.uds)

    def _turn(self) -> None:
        now = time.monotonic()
        for key, _ in self.selector.select(max(self.supervisor.next_timer(now) - now, 0.0)):
            if not isinstance(key.data, Process):
                key.data()
            elif self.children.is_heard(key.data):
                self._listen_to(key.data)
        self.gpus.turn()
        for process, status in self.children.reap():
            # What a dead child had sent counts, before its death does.
            if process.role != "engine" and self.children.is_heard(process):
                self._listen_to(process)
            self._buried(process, status, time.monotonic())
        now = time.monotonic()
        for number in self.signals.take():
            self._on_signal(number, now)
        self.supervisor.tick(self.children.readings(), now)
        self._obey()
        self.children.flush()
        self.commands.flush()
        self.notifier.pulse(now)

    # ---- in -----------------------------------------------------------------------------

    def _on_signal(self, number: int, now: float) -> None:
        if number in (signal.SIGTERM, signal.SIGINT):
            name = "TERM" if number == signal.SIGTERM else "INT"
            log.event("signal", name=name)
            self.supervisor.signal(name, now)
        elif number == signal.SIGHUP:
            log.event("signal", name="HUP")
            self._ask_reload("")
        elif number == signal.SIGUSR2:
            faulthandler.dump_traceback(file=STDERR, all_threads=True)
            pids = [process.pid for process in self.children if process.pid]
            for pid in pids + self.gpus.pids():
                os.kill(pid, signal.SIGUSR2)

    def _ask_reload(self, model: str) -> int:
        ticket = self.supervisor.reload(model, time.monotonic())
        log.event("reload_asked", ticket=ticket, model=model or None)
        return ticket

    def _listen_to(self, process: Process) -> None:
        messages, has_ended = process.control.receive_all()
        now, incarnation, supervisor = time.monotonic(), process.incarnation, self.supervisor
        for message, descriptors in messages:
            kind = message["type"]
            if kind == "up":
                status = self.children.named(process, message["pid"])
                if status is not None:
                    self._buried(process, status, now)
                    return
            elif kind == "prepared":
                self._hold_model(process.generation, ModelFiles(*descriptors))
                supervisor.prepared(incarnation, now)
            elif kind == "refused":
                supervisor.refused(process.role, incarnation, message["message"], now)
            elif kind == "ready" and process.role == "forkserver":
                self._take_card(process.generation, *descriptors)
                supervisor.forkserver_ready(incarnation, now)
            elif kind == "ready":
                supervisor.engine_serves(incarnation, now)
            elif kind == "tested":
                supervisor.tested(incarnation, process.index, message["fault"], now)
            elif kind == "opened":
                supervisor.opened(incarnation, process.index, now)
            elif kind == "drained":
                supervisor.drained(incarnation, process.index, now)
        if has_ended:
            self.children.unheard(process)
            if not process.pid:
                self._never_came(process, "its forkserver died", now)

    def _hold_model(self, generation: int, files: ModelFiles) -> None:
        self.held[generation].files = files
        for process in self.children.of("front", generation):
            self._send_model(process)

    def _take_card(self, generation: int, card_fd: int) -> None:
        """The card as the forkserver completed it: the precision that is served, and with what."""
        held = self.held[generation]
        if held.has_card:  # a successor's, who built the twin of what this one tells of
            return os.close(card_fd)
        held.has_card = True
        held.files = held.files.completed(
            card_fd, self.gpus.may_come() or open_card(card_fd)["precision"] != "int8")
        for process in self.children.of("front", generation):
            process.control.send({"type": "card"}, (card_fd,))

    def _send_model(self, process: Process) -> None:
        card_fd, tokenizer_fd, *image_fds = self.held[process.generation].files.descriptors
        process.control.send({"type": "model"}, (card_fd, tokenizer_fd)
                             if process.role == "front" else (card_fd, *image_fds))

    def _buried(self, process: Process, status: int, now: float) -> None:
        """A child has ended with a wait status."""
        if not self.children.forget(process):
            return
        cause, words = cause_of(status)
        if not process.is_dismissed and (process.role != "preparer" or cause != "exit-0"):
            log.event("process_died", role=process.role, index=process.index, pid=process.pid,
                      generation=process.generation, cause=cause)
        self.supervisor.exited(process.role, process.index, process.incarnation,
                               "exit" if cause.startswith("exit") else cause, is_fault(cause),
                               bool(process.page.get(WORKED)), now, words)

    def _never_came(self, process: Process, why: str, now: float) -> None:
        """A child that was ordered is not there, and never was as far as anyone knows."""
        if self.children.forget(process):
            if not process.is_dismissed:
                log.event("process_not_started", role=process.role, index=process.index,
                          generation=process.generation, why=why)
            self.supervisor.never_came(process.role, process.index, process.incarnation, now, why)

    # ---- out ----------------------------------------------------------------------------

    def _obey(self) -> None:
        actions = self.supervisor.take_actions()
        while actions:
            for action in actions:
                OBEY[type(action)](self, action)
            actions = self.supervisor.take_actions()

    def _begin(self, action: Begin) -> None:
        held = self.held[action.generation] = Holding(action.model)
        if self.settings.share_port and not self.supervisor.is_ready:
            held.phase = "waiting"      # nobody is let in beside a predecessor that can answer
        self.registry.begin_model(action.generation)
        log.event("generation_started", generation=action.generation, model=action.model)
        if self.supervisor.is_ready:
            self.notifier.reloading()

    def _spawn(self, action: Spawn) -> None:
        process, theirs = self.children.expect(action)
        if action.role == "engine":
            self._order_engine(process, theirs)
        else:
            self._fork(process, theirs)
        theirs.close()

    def _order_engine(self, process: Process, theirs: Control) -> None:
        """The forkserver may have died since this was decided, or die with the order unread: the
        kernel then drops the descriptor, and the end of its control socket tells."""
        for forker in self.children.of("forkserver", process.generation):
            forker.control.send({"type": "spawn", "index": process.index,
                                 "incarnation": process.incarnation}, (theirs.fileno(),))

    def _fork(self, process: Process, theirs: Control) -> None:
        # Before the fork, so that it is the first thing that the child reads.
        held = self.held[process.generation]
        if held.files is not None and process.role in ("front", "forkserver"):
            self._send_model(process)
        if process.role == "front":
            if self.last_reload is not None:
                process.control.send({"type": "reload", "last": self.last_reload})
            if held.phase:
                process.control.send({"type": "phase", "phase": held.phase})
        try:
            pid = fork(ENTRIES[process.role], self._spec(process, theirs))
        except OSError as error:        # a limit on processes or memory, for now
            self._never_came(process, error.strerror, time.monotonic())
            return
        self.children.named(process, pid)
        log.event("process_started", role=process.role, index=process.index, pid=process.pid,
                  generation=process.generation)

    def _spec(self, process: Process, control: Control) -> ChildSpec:
        is_front, held = process.role == "front", self.held[process.generation]
        return ChildSpec(
            process.role, process.index, process.incarnation, process.generation,
            replace(self.settings, model=held.model), control, process.page, self.registry,
            held.dispatcher_name, os.getpid(), tuple(self.listeners) if is_front else (),
            tuple(self.shared_listeners) if is_front else (),
            held.dispatcher_listener if process.role == "dispatcher" else None, self.keys)

    def _kill(self, action: Kill) -> None:
        process = self.children.by_incarnation.get(action.incarnation)
        if process is not None and not self.children.kill(process, action.why):
            self._never_came(process, action.why, time.monotonic())

    def _dismiss(self, action: Dismiss) -> None:
        for process in self.children:
            if process.generation == action.generation:
                process.is_dismissed = True
                if not self.children.kill(process, ""):
                    self._never_came(process, "", time.monotonic())

    def _retire(self, action: Retire) -> None:
        self.held.pop(action.generation).close()
        log.event("generation_ended", generation=action.generation)

    def _report_death(self, action: ReportDeath) -> None:
        self.children.tell(
            "dispatcher" if action.role == "engine" else "front", action.generation,
            {"type": "death", "role": action.role, "index": action.index,
             "incarnation": action.incarnation, "fault": action.is_fault})

    def _enter(self, action: EnterPhase) -> None:
        held = self.held[action.generation]
        held.phase = action.phase
        if action.phase == "serving":
            held.serving_since = time.monotonic()
            self.page.values[GENERATION] = action.generation
            if self.settings.share_port:
                self._join_port()
            self.gpus.serve(action.generation, held)
        log.event("phase", name=action.phase, generation=action.generation)
        self.children.tell("front", action.generation, {"type": "phase", "phase": action.phase})

    def _close_doors(self, _: CloseDoors) -> None:
        # The kernel lets clients in until the last copy is closed, which is a front's.
        for listener in (*self.listeners, *self.shared_listeners):
            listener.close()
        self.notifier.stopping()

    def _join_port(self) -> None:
        begin_listening(self.listeners)
        if self.settings.uds:
            take_over(self.settings.uds)

    def _tell_reload(self, action: TellReload) -> None:
        served = max(held.serving_since for held in self.held.values())
        switch_ms = 1e3 * (time.monotonic() - served) if action.is_ok else None
        log.event("reload", tickets=",".join(map(str, action.tickets)), ok=action.is_ok,
                  reason=action.reason or None, switch_ms=switch_ms)
        self.last_reload = {"ok": action.is_ok, "reason": action.reason,
                            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        # Before the outcome is told, so that /info agrees with it.
        self.children.tell("front", None, {"type": "reload", "last": self.last_reload})
        self.commands.tell(action.tickets, action.is_ok, action.reason)
        self._tell_manager()

    def _tell_manager(self) -> None:
        serving = [held for held in self.held.values() if held.phase == "serving"]
        if serving:
            card = open_card(serving[-1].files.card_fd)
            self.notifier.ready(f"serving {card['name']} {card['version']}")

    def _announce(self, _: AnnounceReady) -> None:
        (held,) = self.held.values()
        text = announcement(self.settings.host, self.port, self.settings.uds,
                            open_card(held.files.card_fd), self.settings.engines,
                            self.settings.api_keys, self.commands.path)
        try:
            os.write(1, text)
        except OSError as error:
            log.event("stdout_failed", why=error.strerror)
        self._tell_manager()

    def _count_restart(self, action: CountRestart) -> None:
        cause = action.cause if action.cause in CAUSES else "signal"
        self.page.counter("restarts_total", role=action.role, cause=cause).add()

    def _exit(self, action: Exit) -> None:
        if action.sentence:
            print(action.sentence, file=sys.stderr, flush=True)
        if self.exit_code is None:
            self.exit_code = action.code


OBEY: dict[type, Callable] = {
    Begin: Master._begin, Spawn: Master._spawn, Kill: Master._kill, Dismiss: Master._dismiss,
    Retire: Master._retire, ReportDeath: Master._report_death, EnterPhase: Master._enter,
    CloseDoors: Master._close_doors, TellReload: Master._tell_reload,
    AnnounceReady: Master._announce, CountRestart: Master._count_restart, Exit: Master._exit,
}
