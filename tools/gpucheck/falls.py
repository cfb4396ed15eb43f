"""A GPU engine leaves its device under load, and comes back, with no request failed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Protocol

from server.self_test import TOLERANCES
from tools.gpucheck.filling import filler
from tools.gpucheck.load import Load
from tools.gpucheck.networks import shipped_logits
from tools.gpucheck.rig import Rig
from tools.gpucheck.served import NotServed, Served, wait_for

TEXTS = ("Where is Paris?", "WINNER!! Claim your free prize now, call 09061701461",
         "I'll be home at six, see you", "How many people live in Chile and in Peru?",
         "URGENT! Your mobile number has won a 2000 pound award. Text YES to 80086 and claim it")
# In logits, for arithmetic that server.self_test does not know.
COARSEST = 1.0


class House(Protocol):
    """A running server, as Served is one."""

    def device(self) -> dict: ...

    def gpu_pids(self) -> list[int]: ...

    def connect(self) -> HTTPConnection: ...


@dataclass(frozen=True)
class Fall:
    """`begin` drives the engine off its device, `is_seen` tells that the server knows, `end` lets
    it come back; it is called whatever happens."""

    begin: Callable[[], None]
    is_seen: Callable[[], bool]
    end: Callable[[], None]


def pressure(rig: Rig) -> None:
    """Another process fills the device and lets go."""
    with Served(rig) as served:
        full = filler(rig)
        watch(rig, served, Fall(full.take, lambda: served.device().get("state") == "critical",
                                full.release))


def kill(rig: Rig) -> None:
    """kill -9."""
    with Served(rig) as served:
        watch(rig, served, killing(served))


def killing(served: House) -> Fall:
    """The fall of a killed engine."""
    victims: list[int] = []

    def begin() -> None:
        victims.extend(served.gpu_pids()[:1])
        os.kill(victims[0], signal.SIGKILL)

    return Fall(begin, lambda: not set(victims) & set(served.gpu_pids()), lambda: None)


def watch(rig: Rig, served: House, fall: Fall) -> None:
    """Plays the fall under load: a claim for each step, then for all requests and answers."""
    labels, right = shipped_logits(TEXTS)
    load = Load(served.connect, TEXTS, labels, right, rig.sizes.load_threads,
                rig.sizes.load_pause_s)
    precision = ["fp32"]
    try:
        with load:
            try:
                _play(rig, served, fall, load, precision)
            finally:
                fall.end()
    except NotServed as error:
        rig.report.claim(str(error.args[1]), False, str(error.args[0]))
    _judge(rig, load, precision[-1])


def _play(rig: Rig, served: House, fall: Fall, load: Load, precision: list[str]) -> None:
    def step(name: str, what: str, condition: Callable[[], bool]) -> None:
        try:
            took_s = wait_for(what, condition, rig.sizes.patience_s)
        except NotServed as error:
            raise NotServed(str(error), name) from None
        rig.report.figure(name, took_s, "s")
        rig.report.claim(name, True, f"{what}, after {took_s:.2f} s")

    def answers(kind: str) -> Callable[[], bool]:
        before = load.by[kind]
        return lambda: load.by[kind] > before

    step("gpu_serves", "the GPU engine answers", answers("gpu"))
    device = served.device()
    precision.append(device.get("precision", precision[0]))
    rig.report.device = device.get("name") or rig.report.device
    fall.begin()
    step("fall_is_seen", "the server knows that the engine is off its device", fall.is_seen)
    step("cpu_serves", "CPU engines answer", answers("cpu"))
    fall.end()
    step("gpu_returns", "the GPU engine answers again", answers("gpu"))


def _judge(rig: Rig, load: Load, precision: str) -> None:
    count = sum(load.by.values())
    rig.report.figure("longest_wait", load.longest_s, "s", requests=count)
    rig.report.claim("no_request_failed", not load.failures and count > 0,
                     f"{load.failures} of {count + load.failures} requests failed"
                     + "".join(f"; {words}" for words in load.failed))
    allowed = {"cpu": TOLERANCES["fp32"], "gpu": TOLERANCES.get(precision, COARSEST)}
    rig.report.claim("answers_are_right", not load.mislabelled and all(
        worst <= allowed.get(kind, 0.0) for kind, worst in load.worst.items()),
        f"answers by {dict(load.by)}; largest difference from the CPU's logits "
        + ", ".join(f"{worst:.2g} by {kind}" for kind, worst in sorted(load.worst.items()))
        + f"; {load.mislabelled} wrong labels; GPU in {precision}")
