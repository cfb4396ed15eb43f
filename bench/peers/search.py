"""The search for the setup in which a peer serves most, and where what it found is kept."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from bench.client import drive
from bench.figures import median
from bench.front import ENGINE_CONNECTIONS
from bench.peers.contender import PeerError
from bench.peers.settings import FOUND, STARTS, Settings, as_facts, tune
from bench.peers.standing import Standing, Under

TRIALS, TRIAL_S, WARMING_S = 3, 1.0, 1.0


def known_settings(store: Path, model: str, peer: str, traffic: str) -> Settings:
    """What a search found on this machine and kept in the file `store`, else what one found for
    this model elsewhere, else what such searches begin with."""
    kept = _read(store).get(f"{peer} {traffic}")
    if kept:
        return Settings(**kept)
    return FOUND.get((model, peer, traffic), STARTS[peer][0])


def search(standing: Standing, store: Path, peer: str, traffic: str, texts: Path) -> Settings:
    """The setup with the most requests/s, kept in `store`. Each is measured against the first in
    the same seconds, because the machine's speed drifts more than setups differ."""
    start, axes = STARTS[peer]
    first = standing.all_up({peer: start})[peer]
    drive(first.url, texts, ENGINE_CONNECTIONS, WARMING_S)

    def rate(tried: Settings) -> float:
        if tried == start:
            return 1.0
        try:
            with standing.trial(tried) as server:
                under = Under(server.url, server.pid, tried.describe())
                drive(under.url, texts, ENGINE_CONNECTIONS, WARMING_S)
                ratio = median([_rate(under, texts) / max(_rate(first, texts), 1e-3)
                                for _ in range(TRIALS)])
        except PeerError as error:
            print(error, file=sys.stderr)
            return 0.0
        print(f"{traffic} {peer}: {under.setup}: {ratio:.2f} of {first.setup}", file=sys.stderr)
        return ratio

    best = tune(start, axes, rate)
    store.write_text(json.dumps(_read(store) | {f"{peer} {traffic}": as_facts(best)}, indent=1))
    return best


def _rate(under: Under, texts: Path) -> float:
    return under.round(texts, ENGINE_CONNECTIONS, TRIAL_S).load.served_per_s


def _read(store: Path) -> dict:
    return json.loads(store.read_text("utf-8")) if store.is_file() else {}
