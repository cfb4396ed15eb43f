"""A GPU engine's process: one device, one thread, batches through the graphs of one program.

It speaks as CPU engines do, and takes a batch ahead while the device runs another. It ends when it
is told to leave, after what it has begun; and at once, with the reason told to the master, when
the device fails: nothing is repaired inside a process whose device is in doubt. What it had not
answered its dispatcher gives to the CPU engines.
"""

import faulthandler
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import NoReturn

import numpy as np

from loader.prepare import map_file, open_card
from model.device.port import CaptureFailed, DeviceBroken, OutOfMemory, Port
from model.programs.graphs import CheckFailed
from model.programs.lanes import LanePrograms
from model.programs.on_device import NoNetwork, Options, build
from server import codec, gpu_start, link, log
from server.engine import ID_TYPES, LONGEST_WAIT_MS, RECONNECT_MS, texts_of
from server.messages import (ENGINE_KINDS, HIGH, Done, EngineHello, Failed, MessageError,
                             PackedBatch)
from server.metrics import LOOP_LEASE_S, UP
from server.processes import STDERR, ChildSpec

# Torch, the context, the weights and all graphs.
START_LEASE_S = 300.0
# The master kills a little after this process would have ended itself.
KILL_MARGIN_S = 1.0
# Of what a launch still takes, the part that is slept in one piece.
SLEPT_SHARE = 0.8
# So shortly before and after the time when it is usually done nobody sleeps: the kernel makes 0.16
# ms of 0.1, and the device has nothing to do meanwhile.
SPUN_S = 0.0003
# Between two looks at a device that takes longer.
POLL_S = 0.0001
FELL_STATUS = 76
RECORDER_NICE = 19


class Unusable(Exception):
    """This device cannot serve in this process or any other; the message says why."""


def main() -> None:
    """What gpu_start becomes."""
    spec, uuid, cuts = gpu_start.receive(sys.argv[1])
    faulthandler.register(signal.SIGUSR2, file=STDERR, all_threads=True)
    if os.getppid() != spec.master_pid:
        return
    spec.page.promise(time.monotonic() + START_LEASE_S)
    fall = _falls(spec)
    try:
        card, port, program = _load(spec, cuts)
    except (NoNetwork, Unusable) as error:
        fall("unusable", error)
    except CaptureFailed as error:
        fall("capture", error)
    except CheckFailed as error:
        fall("check", error)
    except OutOfMemory as error:
        fall("allocation", error)
    except DeviceBroken as error:
        fall("cuda_error", error)
    choice = program.choice
    spec.control.send({"type": "serving", "footprint": port.taken(), "graphs": program.captured,
                       "shapes": len(program.shapes), "precision": choice.precision,
                       "precision_why": choice.why, "operators": choice.operators})
    log.event("gpu_engine_ready", index=spec.index, device=uuid, graphs=program.captured,
              shapes=len(program.shapes), tokens=program.token_cap,
              precision=choice.precision, why=choice.why, operators="; ".join(choice.operators)
              or None, taken_mb=port.taken() >> 20)
    if port.kind == "recorder":
        # It computes on a core, which a device does not: what it has begun when CPU engines take
        # over must not hold those up.
        os.setpriority(os.PRIO_PROCESS, 0, RECORDER_NICE)
    GpuEngine(spec, card, program, fall).serve()


def _load(spec: ChildSpec, cuts: int) -> tuple[dict, Port, LanePrograms]:
    select.select((spec.control,), (), ())
    ((_, (card_fd, *image_fds)),) = spec.control.receive()
    card, images = open_card(card_fd), [map_file(fd) for fd in image_fds]
    for descriptor in (card_fd, *image_fds):
        os.close(descriptor)
    settings = spec.settings
    port = _open(settings)
    return card, port, build(card, images, port, Options(
        settings.gpu_tokens, settings.gpu_graph_mb << 20, cuts, settings.precision))


def _open(settings) -> Port:
    if settings.device == "recorder":
        from model.device.recorder import Recorder
        from model.device.script import Script
        os.setpriority(os.PRIO_PROCESS, 0, max(settings.engine_nice, 0))    # it is a CPU engine
        return Recorder(Script(settings.faults))
    from model.device import cuda
    try:
        return cuda.Cuda(gpu_start.limits_of(settings).tight)
    except cuda.Unusable as error:
        raise Unusable(str(error)) from None


def _falls(spec: ChildSpec) -> Callable[[str, object], NoReturn]:
    """A function that tells the master why this process ends, and ends it without finalisers,
    which would call a device that may not answer."""
    def fall(reason: str, words: object) -> NoReturn:
        log.event("gpu_engine_fell", index=spec.index, reason=reason, why=words)
        spec.control.send({"type": "fallen", "reason": reason, "why": str(words)})
        os._exit(FELL_STATUS)
    return fall


class GpuEngine:
    """The loop around the program. `fall` ends the process."""

    def __init__(self, spec: ChildSpec, card: dict, program: LanePrograms,
                 fall: Callable[[str, object], NoReturn]) -> None:
        self.spec, self.page, self.program, self.fall = spec, spec.page, program, fall
        self.id_type = ID_TYPES[card["id_bytes"]]
        self.classes = len(card["labels"])
        self.hello = codec.encode_engine_hello(EngineHello(
            ENGINE_KINDS.index("gpu"), spec.index, spec.incarnation, spec.generation,
            self.classes, program.costs()))
        self.link: link.Link | None = None
        self.open: set[int] = set()             # batches that this dispatcher awaits
        self.is_leaving = False
        self.must_trim = False
        device = f"gpu-{spec.index}"
        self.replays = self.page.counter("graph_replays_total", device=device)
        self.eager = self.page.counter("graph_eager_total", device=device)
        self.retries = self.page.counter("graph_retries_total", device=device)

    def serve(self) -> None:
        """Until the process is told to leave and has nothing begun, or the master ends."""
        try:
            while not (self.is_leaving and not self.program.is_busy):
                self._turn()
        except DeviceBroken as error:
            self.fall("cuda_error", error)
        except OutOfMemory as error:
            self._refuse_open("the device has no memory left")
            self.fall("allocation", error)
        self._drain_link()

    def _turn(self) -> None:
        now = time.monotonic()
        due = self.program.due()
        if now > due:
            self.fall("hang", f"a launch is {now - due:.3f} s past its due")
        self.page.promise(max(now + LOOP_LEASE_S, due + KILL_MARGIN_S if self.program.is_busy
                              else now))
        if self.link is None and not self.is_leaving:
            self._connect()
        self._wait()
        for finished in self.program.poll():
            self._answer(finished)
        self._count()
        if self.must_trim and not self.program.is_busy:
            self.program.port.trim()
            self.must_trim = False

    def _connect(self) -> None:
        self.link = link.connect(self.spec.dispatcher_name)
        if self.link is not None:
            self.link.send(self.hello)
            self.page.set_state(UP)

    def _wait(self) -> None:
        watched = [self.spec.control] + ([self.link] if self.link is not None else [])
        room = [self.link] if self.link is not None and self.link.waiting else []
        readable, writable, _ = select.select(watched, room, (), self._patience_s())
        if writable:
            self.link.flush()
        if self.spec.control in readable:
            self._obey()
        if self.link is not None and self.link in readable:
            self._read()

    def _patience_s(self) -> float:
        if self.program.is_busy:
            remaining_s = self.program.remaining_s()
            if remaining_s > SPUN_S:
                return SLEPT_SHARE * remaining_s
            return 0.0 if remaining_s > -SPUN_S else POLL_S
        return (RECONNECT_MS if self.link is None else LONGEST_WAIT_MS) / 1e3

    def _obey(self) -> None:
        messages, has_ended = self.spec.control.receive_all()
        if has_ended:
            os._exit(0)
        for message, _ in messages:
            if message["type"] == "leave" and not self.is_leaving:
                self.is_leaving = True
                if self.link is not None:
                    self.link.send(codec.encode_failed(Failed(0, True, message["reason"])))
            elif message["type"] == "tighten":
                self.must_trim = True

    def _read(self) -> None:
        messages, has_ended = self.link.receive()
        batches: list[PackedBatch] = []
        for data in messages:
            if has_ended:
                break       # of a dispatcher that is gone nobody awaits an answer
            try:
                batch = codec.decode(data)
            except MessageError as error:
                log.event("link_closed", engine=self.spec.index, why=error)
                has_ended = True
                continue
            has_ended = not isinstance(batch, PackedBatch)
            if not has_ended:
                batches.append(batch)
        for batch in sorted(batches, key=lambda batch: batch.priority):     # high ones first
            self._take(batch)
        if has_ended:
            self.link.close()
            self.link = None
            self.open.clear()

    def _take(self, batch: PackedBatch) -> None:
        if self.is_leaving:
            self.link.send(codec.encode_failed(Failed(batch.batch, True, "leaving")))
            return
        self.open.add(batch.batch)
        try:
            self.program.submit(batch.batch, list(texts_of(batch, self.id_type)),
                                batch.priority == HIGH)
        except ValueError as error:
            self._say(batch.batch, codec.encode_failed(Failed(batch.batch, False, str(error))))

    def _answer(self, finished) -> None:
        if not np.isfinite(finished.logits).all():
            message = codec.encode_failed(Failed(finished.number, False,
                                                 "logits that are not finite"))
        else:
            message = codec.encode_done(
                Done(finished.number, int(finished.device_ms * 1e3), self.classes,
                     finished.logits.astype("<f4", copy=False).tobytes(), finished.padding),
                len(finished.logits))
        self._say(finished.number, message)
        self.page.set_worked()

    def _say(self, batch: int, message: bytes) -> None:
        """To the dispatcher that gave the batch; of an older one nobody awaits it."""
        if batch in self.open:
            self.open.discard(batch)
            self.link.send(message)

    def _refuse_open(self, why: str) -> None:
        for batch in sorted(self.open):
            self._say(batch, codec.encode_failed(Failed(batch, True, why)))
        self._drain_link()

    def _drain_link(self) -> None:
        """Sends what still waits, as long as somebody reads."""
        deadline = time.monotonic() + KILL_MARGIN_S
        while self.link is not None and self.link.waiting and time.monotonic() < deadline:
            select.select((), (self.link,), (), KILL_MARGIN_S)
            self.link.flush()

    def _count(self) -> None:
        counts = self.program.take_counts()
        for counter, value in ((self.replays, counts.replays), (self.eager, counts.eager),
                               (self.retries, counts.retries)):
            if value:
                counter.add(value)


if __name__ == "__main__":
    main()
