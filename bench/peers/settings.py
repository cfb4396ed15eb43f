"""How a peer is set up to serve, and the search for the setup that serves most (pure)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Settings:
    """`server` is fastapi or mosec; `engine` a contender's key, ort-int8; `mode` how a batch is cut
    into calls (bench.peers.calls); `batch` the most texts of one; `wait_ms` mosec's wait for more.
    """

    server: str
    engine: str
    mode: str
    batch: int
    wait_ms: int

    @property
    def peer(self) -> str:
        """fastapi-ort, mosec-ort or mosec-ct2."""
        return f"{self.server}-{self.engine.split('-')[0]}"

    def describe(self) -> str:
        """For readers: `ort-int8, batches to 16 within 1 ms, calls of 256 tokens`."""
        if self.batch == 1:
            return f"{self.engine}, one by one"
        how = {"alone": "computed one by one", "whole": "padded to the longest"}.get(
            self.mode, f"calls of {self.mode} tokens")
        wait = f" within {self.wait_ms} ms" if self.server == "mosec" else ""
        return f"{self.engine}, batches to {self.batch}{wait}, {how}"

    def alone(self) -> Settings:
        """The same for one client that waits for each answer: nothing gathers, nothing waits."""
        return replace(self, batch=1, mode="alone", wait_ms=0)


Axes = Mapping[str, Sequence[Any]]
"""What is tried for each field, one field after another, from the setting found so far."""

BATCHED = {"mode": ("alone", "128", "256", "whole"), "batch": (8, 16, 32), "wait_ms": (1, 5, 10)}
ORT_ENGINES = ("ort-int8", "ort-int8-fused")
STARTS: dict[str, tuple[Settings, Axes]] = {
    "fastapi-ort": (Settings("fastapi", "ort-int8", "128", 8, 0),
                    {"engine": ORT_ENGINES, "mode": BATCHED["mode"], "batch": (1, 8, 16)}),
    "mosec-ort": (Settings("mosec", "ort-int8", "128", 16, 1),
                  {"engine": ORT_ENGINES, **BATCHED}),
    "mosec-ct2": (Settings("mosec", "ct2-int8", "256", 16, 1), BATCHED)}
"""By peer where the search begins, which is what short runs serve with, and what it tries."""

FOUND = {("sms-spam", "mosec-ct2", "short"): Settings("mosec", "ct2-int8", "alone", 16, 1)}
"""By model, peer and traffic what `python -m bench.peers` found on 2 cores of a Xeon with AMX on
2026-11-30, for short runs where no search was made: there 1.05 times as fast as the start."""


def tune(start: Settings, axes: Axes, rate: Callable[[Settings], float]) -> Settings:
    """The best settings found by trying each axis in turn; `rate` measures one, more is better."""
    best, rates = start, {start: rate(start)}
    for name, values in axes.items():
        for tried in [replace(best, **{name: value}) for value in values]:
            if tried not in rates:
                rates[tried] = rate(tried)
            if rates[tried] > rates[best]:
                best = tried
    return best


def as_facts(settings: Settings) -> dict[str, Any]:
    """What Settings(**facts) reads again."""
    return asdict(settings)
