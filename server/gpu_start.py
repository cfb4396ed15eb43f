"""A GPU engine's first moments: a fork of the master that becomes a fresh interpreter.

Exec'd, not forked from anything that may have touched a device, and with one device visible: CUDA
then calls it 0 whatever it is called elsewhere. Nothing here imports torch.
"""

import json
import os
import signal
import socket
import sys
from dataclasses import asdict
from pathlib import Path

from server.metrics import Registry
from server.pressure import Limits
from server.processes import ChildSpec, Control, arm
from server.settings import Settings

ROOT = Path(__file__).resolve().parent.parent


def limits_of(settings: Settings) -> Limits:
    """The operator's thresholds and times."""
    return Limits(
        settings.gpu_tight_mb << 20, settings.gpu_tight_share, settings.gpu_critical_mb << 20,
        settings.gpu_critical_share, settings.gpu_hold_s, settings.gpu_back_off_s,
        settings.gpu_longest_back_off_s)


def run(spec: ChildSpec, uuid: str, cuts: int) -> None:
    """Becomes `python -m server.gpu_engine`; what it must know travels as one argument."""
    metrics_fd = spec.registry.descriptor
    arm(spec, (metrics_fd,))
    told = {"index": spec.index, "incarnation": spec.incarnation, "generation": spec.generation,
            "settings": asdict(spec.settings), "dispatcher_name": spec.dispatcher_name,
            "master_pid": spec.master_pid, "control_fd": spec.control.fileno(),
            "metrics_fd": metrics_fd, "places": spec.registry.places, "uuid": uuid, "cuts": cuts}
    for descriptor in (spec.control.fileno(), metrics_fd):
        os.set_inheritable(descriptor, True)
    # Its handler is gone after the exec: until there is a new one the signal must not kill.
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    os.execve(sys.executable, [sys.executable, "-m", "server.gpu_engine", json.dumps(told)],
              {**os.environ, "PYTHONPATH": path, "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
               "CUDA_VISIBLE_DEVICES": uuid})


def receive(argument: str) -> tuple[ChildSpec, str, int]:
    """(what the process is given, the device's UUID, failed captures so far), on the other side
    of the exec."""
    told = json.loads(argument)
    settings = {name: tuple(value) if isinstance(value, list) else value
                for name, value in told["settings"].items()}
    registry = Registry.attach(told["metrics_fd"], [tuple(place) for place in told["places"]])
    spec = ChildSpec("gpu_engine", told["index"], told["incarnation"], told["generation"],
                     Settings(**settings), Control(socket.socket(fileno=told["control_fd"])),
                     registry.page("gpu_engine", told["index"], told["generation"]), registry,
                     told["dispatcher_name"], told["master_pid"])
    return spec, told["uuid"], told["cuts"]
