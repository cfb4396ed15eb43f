"""`python -m tests.chaos.reloads`: new models under verifying clients, with kills and without.

    python -m tests.chaos.reloads [--reloads 50] [--kills 200] [--clients 32] [--seed 1]

Two echo models with other labels and vocabularies and the shipped one take turns, by HUP through a
link that moves and by tools.reload; broken checkpoints are offered in between. Each answer is held
against the version that it names, and no connection may see two.
"""

import argparse
import itertools
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from tests.chaos.__main__ import ECHO, WORDS
from tests.chaos.acts import Claims
from tests.chaos.broken_models import broken_models
from tests.chaos.versions import VersionedCrowd, VersionedExpected
from tests.house import ROOT, House, parent_of, send_signal, wait_until

FLAGS = ("--fronts", "2", "--engines", "2", "--max-wait-ms", "60000")
REAL = ROOT / "models" / "sms-spam"
# The leases of a preparer, a forkserver and the rehearsal bound it; a busy machine needs its time.
OUTCOME_WITHIN_S = 500.0
OFFERS = 20
# Kills come in bursts; in the pauses a model that takes its time to load may commit.
BURST_S, PAUSE_S, PAUSE_CHANCE = (0.02, 0.1, 0.3, 1.0), 15.0, 0.05
STANDING = {"master": 1, "front": 2, "dispatcher": 1, "forkserver": 1, "engine": 2}


def make_models(folder: Path) -> list[Path]:
    """Checkpoints that take turns; the second echo has fewer labels and its words shuffled."""
    models = [folder / name for name in ("large", "small", "real")]
    shutil.copytree(ECHO, models[0])
    shutil.copytree(ECHO, models[1])
    shutil.copytree(REAL, models[2])
    config = json.loads((ECHO / "config.json").read_text())
    config["id2label"] = {"0": "no", "1": "yes"}
    (models[1] / "config.json").write_text(json.dumps(config))
    words = (ECHO / "vocab.txt").read_text().splitlines()
    (models[1] / "vocab.txt").write_text("\n".join([*words[:12], *reversed(words[12:])]) + "\n")
    return models


class Operator:
    """Asks for reloads in turn, and notes what came of each."""

    def __init__(self, house: House, models: list[Path], current: Path, command: Path) -> None:
        self.house, self.models, self.current, self.command = house, models, current, command
        self.outcomes: Counter[str] = Counter()
        self.reasons: list[str] = []
        self.windows: list[tuple[float, float]] = []
        self._turn = 0

    def reload(self) -> None:
        """The link moves to the next model, then HUP or tools.reload; waits for the outcome."""
        self._turn += 1
        point(self.current, self.models[self._turn % len(self.models)])
        began = time.monotonic()
        if self._turn % 2:
            before = len(self._told())
            os.kill(self.house.pid, signal.SIGHUP)
            try:
                told = wait_until("a reload's outcome", lambda: self._told()[before:],
                                  OUTCOME_WITHIN_S)
            except AssertionError:
                sys.stderr.write(b"".join(self.house.log[-30:]).decode("utf-8", "replace"))
                raise
            self._note(b"ok=True" in told[0], told[0].decode().partition("ok=")[2])
        else:
            self._note(*self._ask())
        self.windows.append((began, time.monotonic()))

    def offer(self, model: Path) -> str:
        """A broken checkpoint; the reason that comes back, "" where it was served."""
        is_ok, words = self._ask("--model", str(model))
        return "" if is_ok else words

    def settle(self) -> None:
        """Waits until one generation is left, and whole."""
        wait_until("one generation", lambda: len(
            {row["generation"] for row in self.house.info()["processes"]}) == 1, OUTCOME_WITHIN_S)
        wait_until("all roles up", lambda: self.house.roles() == STANDING, OUTCOME_WITHIN_S)

    def _told(self) -> list[bytes]:
        return [line for line in self.house.log if b" event=reload " in line]

    def _note(self, is_ok: bool, words: str) -> None:
        self.outcomes["ok" if is_ok else "failed"] += 1
        if not is_ok:
            self.reasons.append(words)

    def _ask(self, *arguments: str) -> tuple[bool, str]:
        done = subprocess.run(
            [sys.executable, "-m", "tools.reload", "--wait", "--socket", str(self.command),
             *arguments], cwd=ROOT, capture_output=True, text=True, timeout=OUTCOME_WITHIN_S)
        if done.returncode not in (0, 1):
            raise AssertionError(f"tools.reload: {done.stdout}{done.stderr}")
        return done.returncode == 0, (done.stdout + done.stderr).strip()


def point(link: Path, target: Path) -> None:
    """Moves a link in one step."""
    beside = link.with_name("beside")
    beside.symlink_to(target)
    beside.rename(link)


class Killer(threading.Thread):
    """kill -9 of any process of any generation, until `count` are done or it is stopped."""

    def __init__(self, house: House, crowd: VersionedCrowd, seed: int) -> None:
        super().__init__()
        self.house, self.crowd = house, crowd
        self.rng = random.Random(seed)
        self.done: Counter[str] = Counter()
        self.fault = ""
        self._over = threading.Event()

    def run(self) -> None:
        try:
            while not self._over.wait(self.rng.choice(BURST_S) if self.rng.random() > PAUSE_CHANCE
                                      else PAUSE_S):
                self._kill_one()
        except Exception as error:              # told by the claims, not by a lost thread
            self.fault = repr(error)

    def stop(self) -> None:
        self._over.set()
        self.join()

    def _kill_one(self) -> None:
        rows = [row for row in self.house.info()["processes"]
                if row["role"] != "master" and row["pid"]]
        newest = max(row["generation"] for row in rows)
        has_two = any(row["generation"] != newest for row in rows)
        role = self.rng.choice(sorted({row["role"] for row in rows}))
        row = self.rng.choice([row for row in rows if row["role"] == role])
        pid = row["pid"]
        if role == "front":
            # Stopped first, so that its connections cannot change while they are listed.
            send_signal(pid, signal.SIGSTOP)
            try:
                self.crowd.doom(self.house.connections_of(pid))
            except OSError:
                return
        # A number that the kernel has given to someone else by now must not be hit.
        if parent_of(pid) == self.house.pid and send_signal(pid, signal.SIGKILL):
            side = "" if not has_two else " (new)" if row["generation"] == newest else " (old)"
            self.done[role + side] += 1


def memory_mib(house: House) -> float:
    """Proportional memory of all its processes: what they share counts once."""
    total = 0
    for pid in [house.pid, *house.children()]:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        total += next(int(line.split()[1]) for line in text.splitlines()
                      if line.startswith("Pss:"))
    return total / 1024


def play(claims: Claims, name: str, expected: VersionedExpected, models: list[Path],
         folder: Path, options: argparse.Namespace, with_kills: bool) -> None:
    """One house through all reloads; `with_kills` goes on until enough processes were killed."""
    current, command = folder / "current", folder / "command.sock"
    point(current, models[0])
    with House(["--model", str(current), "--socket", str(command), *FLAGS]) as house:
        operator = Operator(house, models, current, command)
        for _ in models:                        # each once, so that what is kept is there
            operator.reload()
        operator.settle()
        before, held = memory_mib(house), house.footprint()[house.pid]
        crowd = VersionedCrowd(house.port, expected, options.clients, options.seed)
        killer = Killer(house, crowd, options.seed)
        if with_kills:
            killer.start()
        operator.outcomes.clear()
        reasons = _reload_all(name, operator, folder, options, killer if with_kills else None)
        if with_kills:
            killer.stop()
        crowd.stop()
        while operator._turn % len(models):     # the model of `before`
            operator.reload()
        operator.settle()
        _claim(claims, name, operator, crowd, killer, reasons, options, with_kills)
        after = memory_mib(house)
        claims.hold(f"{name}: memory after the last drain", after <= 1.05 * before + 8,
                    f"{before:.0f} MiB before, {after:.0f} MiB after")
        now = house.footprint()[house.pid]
        claims.hold(f"{name}: the master's descriptors and mappings",
                    now[1] <= held[1] + 1 and now[2] <= held[2] + 8, f"{held[1:]} then {now[1:]}")


def _reload_all(name: str, operator: Operator, folder: Path, options: argparse.Namespace,
                killer: Killer | None) -> dict[str, str]:
    """Reloads and broken offers in turn; (what is wrong → the reason that came back)."""
    reasons: dict[str, str] = {}
    damaged = folder / name.replace(" ", "-")
    damaged.mkdir()
    offers = broken_models(damaged, ECHO, REAL)
    count = 0
    while count < options.reloads or (
            killer is not None and not killer.fault and killer.done.total() < options.kills):
        operator.reload()
        count += 1
        due = min(count, options.reloads) * OFFERS // options.reloads
        for what, broken in itertools.islice(offers, due - len(reasons)):
            reasons[what] = operator.offer(broken)
        print(f"     {name}: {count} reloads, {dict(operator.outcomes)}, "
              f"{killer.done.total() if killer else 0} kills", file=sys.stderr, flush=True)
    return reasons


def _claim(claims: Claims, name: str, operator: Operator, crowd: VersionedCrowd, killer: Killer,
           reasons: dict[str, str], options: argparse.Namespace, with_kills: bool) -> None:
    if with_kills:
        claims.hold(f"{name}: kills", killer.done.total() >= options.kills and not killer.fault,
                    f"{killer.done.total()} {dict(sorted(killer.done.items()))} {killer.fault}")
    for reason, times in Counter(operator.reasons).items():
        print(f"     {name}: {times} times: {reason.strip()}")
    total = operator.outcomes.total()
    claims.hold(f"{name}: reloads that committed or said why",
                total >= options.reloads and (with_kills or operator.outcomes["ok"] == total),
                dict(operator.outcomes))
    claims.hold(f"{name}: broken checkpoints changed nothing", len(reasons) == OFFERS and all(
        reasons.values()), f"{len(reasons)} offered, {len(set(reasons.values()))} reasons")
    for what, reason in reasons.items() if not with_kills else ():
        print(f"     {what}: {reason}")
    claims.hold(f"{name}: wrong answers, or two versions on a connection", not crowd.wrong,
                f"{len(crowd.wrong)} of {crowd.answered}, {len(crowd.seen)} versions seen, "
                f"slowest {crowd.slowest_s:.2f} s {crowd.wrong[:3]}")
    claims.hold(f"{name}: failures not on a killed front's connections", not crowd.failed,
                f"{len(crowd.failed)} {crowd.failed[:3]} (cut with their front: "
                f"{crowd.cut_by_kill})")
    _tell_delays(name, operator, crowd)
    switches = [float(line.rpartition(b"switch_ms=")[2]) for line in operator._told()
                if b"switch_ms=" in line]
    print(f"     {name}: the switch itself: median {statistics.median(switches):.1f} ms, longest "
          f"{max(switches):.1f} ms of {len(switches)}")


def _tell_delays(name: str, operator: Operator, crowd: VersionedCrowd) -> None:
    during, quiet = [], []
    for ended, took in crowd.spans:
        is_during = any(began <= ended <= over + took for began, over in operator.windows)
        (during if is_during else quiet).append(took)
    if len(during) > 100 and len(quiet) > 100:
        tails = [statistics.quantiles(part, n=100)[98] * 1e3 for part in (quiet, during)]
        print(f"     {name}: p99 {tails[0]:.0f} ms between reloads ({len(quiet)} answers), "
              f"{tails[1]:.0f} ms while one is under way ({len(during)})")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.reloads", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reloads", type=int, default=50, help="in each act (default 50)")
    parser.add_argument("--kills", type=int, default=200, help="in the second act (default 200)")
    parser.add_argument("--clients", type=int, default=32, help="connections (default 32)")
    parser.add_argument("--seed", type=int, default=1, help="order of the kills (default 1)")
    options = parser.parse_args(argv)
    claims = Claims()
    with tempfile.TemporaryDirectory(prefix="firebrick-reloads-") as scratch:
        folder = Path(scratch)
        models = make_models(folder)
        expected = VersionedExpected(models, WORDS, FLAGS)
        play(claims, "reloads", expected, models, folder, options, with_kills=False)
        if options.kills:
            play(claims, "reloads and kills", expected, models, folder, options, with_kills=True)
    return claims.summary()


if __name__ == "__main__":
    sys.exit(main())
