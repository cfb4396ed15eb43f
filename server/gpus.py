"""The master's part in GPUs: the watch's readings in, engines started, told, killed and reaped.

What should be is decided by one server/pressure.py a device. A GPU engine's death is no fault of
anyone's: its batches run again on CPU engines, and it comes back when its device has room. The
server is ready without any of this, and stays so.
"""

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from loader.prepare import ModelFiles
from model.device.script import parse
from server import gpu_start, gpu_watch, log
from server.device_source import may_have
from server.errors import OperatorError
from server.metrics import ALIVE_UNTIL, PID, Page, Registry
from server.metrics_schema import GPUS, MAX_GPUS
from server.pressure import (CRITICAL, SERVING, STATES, DeviceReading, Entered, Leave, Pressure,
                             Start, Tighten)
from server.processes import ChildSpec, Control, fork
from server.settings import Settings

# Above the numbers of the supervisor's, so that no life has the number of another.
FIRST_INCARNATION = 1 << 40
START_LEASE_S = 300.0
# What an engine that was told to leave may take to finish what it has begun.
LEAVE_S = 10.0
# After so long a killed process will not die: its driver holds it.
UNKILLABLE_S = 10.0
FIRST_BACK_OFF_S, LONGEST_BACK_OFF_S = 0.5, 60.0
LATE_S = 1.0
# What a context takes beside the weights, as long as no engine has told what it took.
CONTEXT_BYTES = 1 << 30
PUBLISH_S = 1.0
# What an engine tells of itself for /info.
FACTS = ("precision", "precision_why", "operators", "graphs", "shapes")


@dataclass(slots=True, eq=False)
class _Child:
    """A process of ours; `said` is the reason that it gave for its end and `why` its words,
    `must_end_at` when it is killed for not having left."""

    role: str
    index: int
    incarnation: int
    generation: int
    control: Control
    page: Page
    pid: int
    said: str = ""
    why: str = ""
    killed_at: float = 0.0
    must_end_at: float = float("inf")


@dataclass(slots=True, eq=False)
class _Gpu:
    """A device: its state, its engine, and what that has told of itself."""

    index: int
    uuid: str
    name: str
    pressure: Pressure
    child: _Child | None = None
    cuts: int = 0
    facts: dict = field(default_factory=dict)


class Held(Protocol):
    """What the master holds for a generation. `files` may be replaced: they are asked for anew."""

    dispatcher_name: str
    files: ModelFiles


class Others(Protocol):
    """The master's other children. `strays` are wait statuses that it reaped and had no place for,
    by pid."""

    strays: dict[int, int]

    def tell(self, role: str, generation: int | None, message: dict) -> None:
        """Sends a message to each of a role and generation."""


@dataclass(frozen=True, slots=True)
class _Model:
    generation: int
    held: Held


class Gpus:
    """See the module's docstring. `page` and `others` are the master's own."""

    def __init__(self, settings: Settings, registry: Registry, page: Page,
                 others: Others) -> None:
        self.settings, self.registry, self.page, self.others = settings, registry, page, others
        self.gpus: dict[str, _Gpu] = {}
        self.watch: _Child | None = None
        self._children: list[_Child] = []
        self._is_wanted = settings.device != "cpu"
        self._model: _Model | None = None
        self._next_incarnation = FIRST_INCARNATION
        self._watch_back_off_s, self._watch_at = 0.0, 0.0
        self._turned_at = time.monotonic()
        if settings.faults:
            _check_script(settings.faults)
        self._published_at = 0.0
        self._is_changed = True

    def serve(self, generation: int, held: Held) -> None:
        """The model that engines should serve from now on; those of another one leave."""
        is_new = self._model is not None and self._model.generation != generation
        self._model = _Model(generation, held)
        for gpu in self.gpus.values():
            if not is_new or gpu.child is None or gpu.pressure.state == CRITICAL:
                continue
            gpu.child.said = "reload"
            if gpu.pressure.state in SERVING:
                self._tell_to_leave(gpu.child, "reload")
            else:       # it loads the old model still, and hears nothing meanwhile
                self._kill(gpu.child, time.monotonic(), "its model was replaced")

    def may_come(self) -> bool:
        """False where no GPU engine will ever be started."""
        return self._is_wanted and may_have(self.settings.device)

    def turn(self) -> None:
        """Hears, reaps, judges and obeys; before the master reaps what is not ours."""
        now = time.monotonic()
        late_s, self._turned_at = now - self._turned_at, now
        for child in list(self._children):
            if late_s > LATE_S:         # this machine stood still, and they with it
                child.page.promise(child.page.get(ALIVE_UNTIL) + late_s)
            self._hear(child, now)
        for child in list(self._children):
            self._reap(child, now)
        for child in self._children:
            self._check_lease(child, now)
        if self._is_wanted and self.watch is None and now >= self._watch_at:
            self._start_watch(now)
        for gpu in self.gpus.values():
            if self._model is not None:
                gpu.pressure.tick(now)
            for action in gpu.pressure.take_actions():
                self._obey(gpu, action, now)
        if self._is_changed or now - self._published_at > PUBLISH_S:
            self._publish(now)
        for child in self._children:
            child.control.flush()

    def pids(self) -> list[int]:
        return [child.pid for child in self._children]

    def controls(self) -> list[Control]:
        """What the master should wait on beside its own."""
        return [child.control for child in self._children]

    # ---- in -----------------------------------------------------------------------------------

    def _hear(self, child: _Child, now: float) -> None:
        for message, _ in child.control.receive():
            kind = message["type"]
            if kind == "devices":
                self._know(message["devices"])
            elif kind == "no_devices":
                self._is_wanted = False
                log.event("no_gpu", why=message["why"])
            elif kind == "reading":
                self._watch_back_off_s = 0.0
                gpu = self.gpus.get(message["uuid"])        # none of a device beyond MAX_GPUS
                if gpu is not None:
                    gpu.pressure.read(DeviceReading(
                        message["at"], message["total"], message["free"]), now)
            elif kind == "device_lost":
                log.event("device_lost", device=message["uuid"], why=message["why"])
                gpu = self.gpus.get(message["uuid"])
                if gpu is not None:
                    gpu.pressure.lost("device_lost", now)
            elif kind == "serving":
                gpu = self._gpu_of(child)
                gpu.facts = {key: message[key] for key in FACTS}
                gpu.pressure.serves(message["footprint"], now)
            elif kind == "fallen":
                child.said, child.why = message["reason"], message["why"]
                if child.said == "allocation":
                    self._gpu_of(child).pressure.allocation_failed(now)

    def _know(self, devices: list[dict]) -> None:
        """The watch has named the devices; those of an earlier watch keep their places."""
        limits, settings = gpu_start.limits_of(self.settings), self.settings
        for device in devices[:MAX_GPUS]:
            if device["uuid"] not in self.gpus:
                context = 0 if settings.device == "recorder" else CONTEXT_BYTES
                gpu = _Gpu(len(self.gpus), device["uuid"], device["name"],
                           Pressure(limits, context))
                self.gpus[gpu.uuid] = gpu
                log.event("device_found", device=gpu.uuid, index=gpu.index,
                          name=device["name"] or None)

    def _gpu_of(self, child: _Child) -> _Gpu:
        return next(gpu for gpu in self.gpus.values() if gpu.index == child.index)

    def _reap(self, child: _Child, now: float) -> None:
        try:
            pid, status = os.waitpid(child.pid, os.WNOHANG)
        except ChildProcessError:       # the master's own reaping met it
            pid, status = child.pid, self.others.strays.pop(child.pid, 0)
        if not pid:
            return
        self._hear(child, now)          # what it had sent counts, before its death does
        self._children.remove(child)
        child.page.end()
        child.control.close()
        reason = _reason(child, status)
        if child.role == "gpu_watch":
            self._bury_watch(child, reason, now)
            return
        gpu = self._gpu_of(child)
        gpu.child, gpu.facts = None, {"why": child.why} if child.why else {}
        log.event("process_died", role=child.role, index=child.index, pid=child.pid, cause=reason)
        if gpu.pressure.state in SERVING and reason != "reload":
            self.page.counter("restarts_total", role="gpu_engine", cause=_cause(status)).add()
        gpu.cuts += reason == "capture"
        gpu.pressure.ended(reason, now)

    def _bury_watch(self, child: _Child, reason: str, now: float) -> None:
        self.watch = None
        if not self._is_wanted:
            return
        self._watch_back_off_s = min(max(2 * self._watch_back_off_s, FIRST_BACK_OFF_S),
                                     LONGEST_BACK_OFF_S)
        self._watch_at = now + self._watch_back_off_s
        log.event("process_died", role=child.role, index=0, pid=child.pid, cause=reason)
        self.page.counter("restarts_total", role="gpu_watch", cause="signal").add()

    def _check_lease(self, child: _Child, now: float) -> None:
        if child.killed_at:
            if child.role == "gpu_engine" and now - child.killed_at > UNKILLABLE_S:
                self._gpu_of(child).pressure.lost("unkillable", now)
        elif now > min(child.page.get(ALIVE_UNTIL), child.must_end_at):
            self._kill(child, now, "gave no sign of life in time"
                       if now <= child.must_end_at else "did not leave when told to")

    # ---- out ----------------------------------------------------------------------------------

    def _obey(self, gpu: _Gpu, action: object, now: float) -> None:
        if isinstance(action, Start):
            self._start_engine(gpu, now)
        elif isinstance(action, Leave):
            if gpu.child is not None:
                self._tell_to_leave(gpu.child, action.reason)
        elif isinstance(action, Tighten):
            if gpu.child is not None:
                gpu.child.control.send({"type": "tighten"})
        elif isinstance(action, Entered):
            log.event("device_state", device=gpu.uuid, state=action.state, reason=action.reason)
            self.page.counter("device_transitions_total", device=GPUS[gpu.index],
                              state=action.state, reason=action.reason).add()
            self._is_changed = True

    def _tell_to_leave(self, child: _Child, reason: str) -> None:
        # The dispatcher first: the engine itself may sit in its driver and hear nothing.
        self.others.tell("dispatcher", child.generation, {
            "type": "leaving", "index": child.index, "incarnation": child.incarnation})
        child.must_end_at = min(child.must_end_at, time.monotonic() + LEAVE_S)
        child.control.send({"type": "leave", "reason": reason})

    def _start_watch(self, now: float) -> None:
        self.watch = self._start("gpu_watch", 0, gpu_watch.run, now)
        if self.watch is None:
            self._watch_at = now + FIRST_BACK_OFF_S

    def _start_engine(self, gpu: _Gpu, now: float) -> None:
        gpu.child = self._start(
            "gpu_engine", gpu.index, lambda spec: gpu_start.run(spec, gpu.uuid, gpu.cuts), now)
        if gpu.child is None:
            gpu.pressure.ended("died", now)
        else:
            card_fd, _, *image_fds = self._model.held.files.descriptors
            gpu.child.control.send({"type": "model"}, (card_fd, *image_fds))

    def _start(self, role: str, index: int, entry: Callable[[ChildSpec], None],
               now: float) -> _Child | None:
        """A new process in its place; None where none can be had now."""
        incarnation, self._next_incarnation = self._next_incarnation, self._next_incarnation + 1
        generation = self._model.generation if self._model is not None else 1
        name = self._model.held.dispatcher_name if self._model is not None else ""
        page = self.registry.page(role, index, generation)
        page.begin(0, incarnation, generation, now, START_LEASE_S)
        ours, theirs = Control.pair()
        try:
            pid = fork(entry, ChildSpec(role, index, incarnation, generation, self.settings,
                                        theirs, page, self.registry, name, os.getpid()))
        except OSError as error:
            log.event("process_not_started", role=role, index=index, why=error.strerror)
            page.end()
            ours.close()
            return None
        finally:
            theirs.close()
        page.values[PID] = pid
        child = _Child(role, index, incarnation, generation, ours, page, pid)
        self._children.append(child)
        log.event("process_started", role=role, index=index, pid=pid)
        return child

    def _kill(self, child: _Child, now: float, why: str) -> None:
        log.event("process_killed", role=child.role, index=child.index, pid=child.pid, why=why)
        child.killed_at = now
        os.kill(child.pid, signal.SIGKILL)

    def end(self) -> None:
        """Ends all of them; the master reaps."""
        for child in self._children:
            os.kill(child.pid, signal.SIGKILL)
            child.control.close()
        self._children.clear()

    def _publish(self, now: float) -> None:
        """Metrics and what /info shows."""
        shown = []
        for gpu in self.gpus.values():
            pressure, device = gpu.pressure, GPUS[gpu.index]
            reading = pressure.reading
            for state in STATES:
                self.page.gauge("device_state", device=device, state=state).set(
                    float(state == pressure.state))
            engine = pressure.footprint if pressure.state in SERVING else 0
            for kind, value in (("total", reading.total if reading else 0),
                                ("free", reading.free if reading else 0), ("engine", engine)):
                self.page.gauge("device_memory_bytes", device=device, kind=kind).set(float(value))
            shown.append({"uuid": gpu.uuid, "name": gpu.name, "engine": device,
                          "state": pressure.state, "reason": pressure.reason, **gpu.facts})
        self.registry.board.write(json.dumps(shown))
        self._published_at, self._is_changed = now, False


def _check_script(path: str) -> None:
    """Raises OperatorError for a script of faults that cannot be read."""
    try:
        with open(path, encoding="utf-8") as file:
            parse(file.read())
    except (OSError, ValueError) as error:
        raise OperatorError(f"--faults {path}: {error}") from None


def _reason(child: _Child, status: int) -> str:
    """Why a process ended, as server/pressure.py has it."""
    if child.said:
        return child.said
    if child.killed_at:
        return "hang"
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGKILL, signal.SIGTERM):
        return "killed"
    return "died"


def _cause(status: int) -> str:
    """The wait status as restarts_total has it."""
    if os.WIFSIGNALED(status):
        return {signal.SIGKILL: "sigkill", signal.SIGTERM: "sigterm", signal.SIGSEGV: "sigsegv",
                signal.SIGABRT: "sigabrt"}.get(os.WTERMSIG(status), "signal")
    return "exit"
