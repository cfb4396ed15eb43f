"""The servers that a team would otherwise run, beside ours, on the same cores.

    python -m bench.peers [--short] [--model DIR ...] [--texts FILE] [--traffic short profile]
        [--peer fastapi-ort mosec-ort mosec-ct2] [--peer-python PATH]

fastapi-ort   FastAPI under uvicorn with ONNX Runtime INT8, one process a core
mosec-ort     mosec with dynamic batching and ONNX Runtime INT8, one worker a core
mosec-ct2     mosec with dynamic batching and CTranslate2 INT8, one worker a core

Peers run in a scratch environment (bench/peers/venv.py) with the Rust tokenizers and one thread a
process, set up as serves most: before it measures, the benchmark tries each in several setups and
keeps the best for next time; --short takes what was found before, here or elsewhere. As peers get
files that were exported and quantised for them, ours serves the bundle that tools.build makes of a
plain checkpoint, in the precision that it takes by itself; --texts, labelled, are what its gate
judges by. All servers are up, and wrk asks one after another, round by round. One JSON line a
figure; `server` is ours or a peer, `setup` how it serves, values are medians of rounds, ratios are
taken within a round.

peers.requests_per_s  at 32 connections, texts of --texts (traffic short) or of mixed lengths with
                      long ones joined of several (profile)
peers.ratio           how many times the peer's rate ours is
peers.p50_ms, p99_ms  whole round trips at that load
peers.cpu_ms          processor time of all of the server's processes a request; unlike rates it
                      hardly depends on what else the machine does
peers.alone_p50_ms    round trips of a single connection
peers.change          the largest |Δlogit| of a text between alone and in company; `flipped` counts
                      answers with another label
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.client import Load, drive, read_texts
from bench.figures import ROOT, emit, median
from bench.front import ENGINE_CONNECTIONS, TEXTS
from bench.load_plan import assemble, read_bands
from bench.ours import Model
from bench.peers.bundle import served_folder
from bench.peers.company import change_in_company
from bench.peers.contender import PeerContender, PeerError
from bench.peers.search import known_settings, search
from bench.peers.settings import STARTS, Settings
from bench.peers.standing import OURS, Round, Standing, Under
from bench.peers.venv import FOLDER, environment, files_of, missing
from server.cores import usable_cores

MODEL = ROOT / "models" / "sms-spam"
PROFILE = ROOT / "bench" / "traffic.json"
PROFILE_TEXTS = 1000
SEED = 7919
SHORT = "short"
TRAFFICS = (SHORT, "profile")
ROUNDS, ROUND_S = 9, 8.0
ROUNDS_SHORT, ROUND_SHORT_S = 3, 2.0
WARMING_S, ALONE_S = 1.0, 2.0
COMPANY_TEXTS, COMPANY_ROUNDS = 125, 4


class Bench:
    """One model: what its peers need, and what is measured."""

    def __init__(self, folder: str, python: str, options: argparse.Namespace) -> None:
        self.folder, self.python, self.options = folder, python, options
        self.name = Path(folder).resolve().name
        self.cache = files_of(self.name, Model(folder).card["version"])
        self.rounds, self.seconds = (ROUNDS_SHORT, ROUND_SHORT_S) if options.short \
            else (ROUNDS, ROUND_S)

    def prepare(self) -> list[str]:
        """Makes the engines' files; the peers that can serve this model."""
        usable: dict[str, bool] = {}
        for peer in self.options.peer:
            start, axes = STARTS[peer]
            tried = () if self.options.short else axes.get("engine", ())
            for engine in dict.fromkeys((start.engine, *tried)):
                if engine in usable:
                    continue
                try:
                    with PeerContender(self.python, engine, self.folder, self.cache, []):
                        usable[engine] = True
                except PeerError as error:
                    print(f"{engine} is left out: {error}", file=sys.stderr)
                    usable[engine] = False
        return [peer for peer in self.options.peer if usable[STARTS[peer][0].engine]]

    def measure(self, peers: Sequence[str], mixed: Path) -> None:
        """Everything about one model; `mixed` are the texts of the profile. What is measured in
        turn is up together, and nothing starts twice."""
        folder, kind = served_folder(self.folder, self.options.texts, self.cache)
        facts = {"model": self.name, "texts": self.options.texts.name}
        with Standing(self.python, self.folder, self.cache, usable_cores()) as standing:
            standing.serve_ours(folder, kind)
            for traffic in self.options.traffic:
                texts = self.options.texts if traffic == SHORT else mixed
                self.measure_traffic(standing, {
                    peer: self.settings(standing, peer, traffic, texts) for peer in peers},
                    texts, facts | {"traffic": traffic})

    def settings(self, standing: Standing, peer: str, traffic: str, texts: Path) -> Settings:
        """The best settings: searched for, or in a short run those of the last search."""
        store = self.cache / "settings.json"
        if self.options.short:
            return known_settings(store, self.name, peer, traffic)
        return search(standing, store, peer, traffic, texts)

    def measure_traffic(self, standing: Standing, chosen: Mapping[str, Settings], texts: Path,
                        facts: Mapping[str, str]) -> None:
        """Everything about one kind of traffic."""
        servers = standing.all_up(chosen)
        report(self.in_turn(servers, texts, ENGINE_CONNECTIONS, self.seconds), servers, facts)
        if facts["traffic"] != SHORT:
            return
        self.report_company(servers, facts)
        servers = standing.all_up({peer: one.alone() for peer, one in chosen.items()})
        rounds = self.in_turn(servers, texts, 1, min(ALONE_S, self.seconds / 2))
        for server, found in rounds.items():
            runs = [one.load.p50_ms for one in found]
            emit("peers.alone_p50_ms", median(runs), "ms", runs, server=server, connections=1,
                 client=found[0].load.client, setup=servers[server].setup, **facts)

    def in_turn(self, servers: Mapping[str, Under], texts: Path, connections: int,
                seconds: float) -> dict[str, list[Round]]:
        """Rounds of each server, in an order that moves on by one from round to round."""
        for server in servers.values():
            drive(server.url, texts, connections, WARMING_S)
        rounds: dict[str, list[Round]] = {name: [] for name in servers}
        order = list(servers)
        for number in range(self.rounds):
            for place in range(len(order)):
                name = order[(place + number) % len(order)]
                rounds[name].append(servers[name].round(texts, connections, seconds))
        return rounds

    def report_company(self, servers: Mapping[str, Under], facts: Mapping[str, str]) -> None:
        """What company changes in the answers of each server."""
        texts = random.Random(SEED).sample(read_texts(self.options.texts), COMPANY_TEXTS)
        for name, server in servers.items():
            host, port = server.url.removeprefix("http://").split(":")
            change = change_in_company(host, int(port), texts, COMPANY_ROUNDS)
            emit("peers.change", change.largest, "logit", server=name, flipped=change.flipped,
                 answers=change.answers, setup=server.setup, **facts)


def report(rounds: Mapping[str, Sequence[Round]], servers: Mapping[str, Under],
           facts: Mapping[str, str]) -> None:
    """The figures of servers under load; ratios are ours to the peer's of the same round."""
    for name, found in rounds.items():
        loads = [one.load for one in found]
        more = dict(server=name, connections=ENGINE_CONNECTIONS, client=loads[0].client,
                    setup=servers[name].setup, **facts)
        rates = [load.served_per_s for load in loads]
        emit("peers.requests_per_s", median(rates), "1/s", rates, others=_others(loads),
             socket_errors=sum(load.socket_errors for load in loads), **more)
        for figure, runs in (("p50_ms", [load.p50_ms for load in loads]),
                             ("p99_ms", [load.p99_ms for load in loads]),
                             ("cpu_ms", [one.cpu_ms for one in found])):
            emit(f"peers.{figure}", median(runs), "ms", runs, **more)
        if name != OURS:
            ratios = [ours.load.served_per_s / max(theirs.load.served_per_s, 1e-3)
                      for ours, theirs in zip(rounds[OURS], found)]
            emit("peers.ratio", median(ratios), "x", ratios, **more)


def _others(loads: Sequence[Load]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for load in loads:
        for status, count in load.others.items():
            counts[status] = counts.get(status, 0) + count
    return counts


def profile_texts(source: Path, folder: Path) -> Path:
    """A file of texts whose lengths are the profile's, made of those in `source`."""
    _, bands = read_bands(json.loads(PROFILE.read_text("utf-8")))
    made = assemble(read_texts(source), bands, PROFILE_TEXTS, random.Random(SEED))
    path = folder / "profile.txt"
    path.write_text("".join(f"{text}\n" for text in made), "utf-8")
    return path


def parse() -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    parser = argparse.ArgumentParser(prog="python -m bench.peers")
    parser.add_argument("--short", action="store_true",
                        help=f"{ROUNDS_SHORT} rounds of {ROUND_SHORT_S:g} s and no search for "
                             f"setups, else {ROUNDS} of {ROUND_S:g} s")
    parser.add_argument("--model", nargs="+", default=[str(MODEL)],
                        help="checkpoint folders, or bundles of BERT's family")
    parser.add_argument("--texts", type=Path, default=TEXTS, help="one text a line, last column")
    parser.add_argument("--traffic", nargs="+", choices=TRAFFICS, default=TRAFFICS)
    parser.add_argument("--peer", nargs="+", choices=list(STARTS), default=list(STARTS))
    parser.add_argument("--peer-python", help="a Python that has the peers, else .bench-venv")
    return parser, parser.parse_args()


def main() -> None:
    # Ended from outside it still ends the servers.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    parser, options = parse()
    for needed in [options.texts, *(Path(folder) / "config.json" for folder in options.model)]:
        if not needed.is_file():
            parser.exit(2, f"there is no {needed}\n")
    try:
        python = options.peer_python or environment(FOLDER, options.peer)
    except PeerError as error:
        parser.exit(2, f"{error}\n")
    for problem in filter(None, (missing(python, peer) for peer in options.peer)):
        print(problem, file=sys.stderr)
    options.peer = [peer for peer in options.peer if not missing(python, peer)]
    with tempfile.TemporaryDirectory(prefix="firebrick-peers-") as scratch:
        mixed = profile_texts(options.texts, Path(scratch))
        for folder in options.model:
            bench = Bench(folder, python, options)
            peers = bench.prepare()
            bench.measure(peers, mixed)


if __name__ == "__main__":
    main()
