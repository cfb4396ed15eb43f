"""Another process that fills the device, and lets go."""

from __future__ import annotations

import subprocess
import sys
import time

from model.device.port import OutOfMemory, Port
from model.device.script import write
from tools.gpucheck.report import ROOT
from tools.gpucheck.rig import Rig, opener

TAKEN = "taken"
TOTAL_MIB = 65536
LETS_GO_S = 10.0
SMALLEST = 1 << 20


class Filler:
    """Takes all but `left_bytes` of a real device; `release` gives it back."""

    def __init__(self, rig: Rig) -> None:
        self._left = rig.sizes.left_bytes
        self._process: subprocess.Popen[str] | None = None

    def take(self) -> None:
        """Returns when the device is full. Raises RuntimeError where that fails."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tools.gpucheck.filling", str(self._left)], cwd=ROOT,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self._process.stdout.readline().strip() != TAKEN:
            raise RuntimeError("the process that should fill the device did not")

    def release(self) -> None:
        """Returns when the process is gone; its memory is the driver's again."""
        if self._process is None:
            return
        self._process.stdin.close()
        try:
            self._process.wait(LETS_GO_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._process = None


class ScriptedFiller:
    """The same of a recorded device: its script says so. `faults` are lines that come with it."""

    def __init__(self, rig: Rig, faults: str = "") -> None:
        self._path, self._left, self._faults = rig.faults, rig.sizes.left_bytes, faults
        with open(self._path, encoding="utf-8") as file:
            self._before = file.read()

    def take(self) -> None:
        write(self._path, f"{self._before}memory {TOTAL_MIB} {self._left >> 20}\n{self._faults}")

    def release(self) -> None:
        write(self._path, self._before)


def filler(rig: Rig, faults: str = "") -> Filler | ScriptedFiller:
    """Whatever fills a device of this kind; `faults` as ScriptedFiller has them."""
    return ScriptedFiller(rig, faults) if rig.kind == "recorder" else Filler(rig)


def fill(port: Port, left: int) -> list[object]:
    """Takes memory until at most `left` bytes are free or nothing more can be had; what is
    returned holds it."""
    held: list[object] = []
    import torch
    piece = port.memory()[0]
    while piece >= SMALLEST:
        free = port.memory()[0]
        if free <= left:
            break
        piece = min(piece, max(free - left, SMALLEST))
        try:
            held.append(port.empty((piece,), torch.uint8))
        except OutOfMemory:
            piece //= 2
    return held


def main() -> None:
    """Fills, says so, and ends when its parent closes the pipe."""
    held = fill(opener("cuda", "")(), int(sys.argv[1]))
    print(TAKEN, flush=True)
    sys.stdin.read()
    del held


def wait_for_room(port: Port, free: int, patience_s: float) -> bool:
    """Whether so many bytes are free within that time."""
    deadline = time.monotonic() + patience_s
    while port.memory()[0] < free:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


if __name__ == "__main__":
    main()
