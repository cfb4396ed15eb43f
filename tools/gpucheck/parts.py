"""The parts in the order in which they run, and the time that each may take."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# All limits together, so that a run ends in time even if every part hangs.
TOTAL_S = 360
# A recorded device is a CPU core, perhaps one that others use too.
DRY_FACTOR = 6
# The key of a part's last line.
ENDED = "ended"


@dataclass(frozen=True)
class Part:
    """`function` is called with a Rig in a process of its own, which is killed after `limit_s`."""

    name: str
    limit_s: int
    function: str
    shows: str

    def load(self) -> Callable[[Any], None]:
        """The function; its module is imported only now."""
        module, _, name = self.function.partition(":")
        return getattr(importlib.import_module(f"tools.gpucheck.{module}"), name)


PARTS = {part.name: part for part in (
    Part("first", 40, "first:run", "the most telling of the parts below, in some 20 s"),
    Part("probes", 15, "probes:run", "operations and attention, in every arithmetic"),
    Part("equality", 40, "equality:run", "every graph = the same function as it is = the CPU"),
    Part("eight-bits", 40, "eight_bits:run", "programs of 8 bits against fp32, and their time"),
    Part("latency", 30, "latency:run", "one text: replay, TorchScript, eager"),
    Part("rates", 45, "rates:run", "texts a second, alone and through the engine's loop"),
    Part("memory", 20, "memory:run", "what a graph takes, and that replays take nothing"),
    Part("lanes", 20, "lanes:run", "high priority under low load"),
    Part("shortage", 30, "shortage:run", "a full device under a program"),
    Part("pressure", 45, "falls:pressure", "a full device under a server: CPU, and back"),
    Part("kill", 35, "falls:kill", "kill -9 of a GPU engine under load"),
)}
