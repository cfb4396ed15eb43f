"""The faults: kill -9 by role, stops, and damage to the model's folder, in a seeded order."""

import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.chaos.clients import Crowd
from tests.house import House, is_alive, parent_of, send_signal, wait_until

# Shorter than the lease of a loop (5 s), so that nobody may be killed for being stopped.
LONGEST_STOP_S = 1.5
STOP_CHANCE = 0.04
STOP_ALL_CHANCE = 0.01


class Faults:
    """Plays `kills` (role → how many) against a house in a random order."""

    def __init__(self, house: House, crowd: Crowd, kills: dict[str, int], seed: int,
                 folder: Path | None) -> None:
        self.house, self.crowd, self.folder = house, crowd, folder
        self.rng = random.Random(seed)
        self.plan = [role for role, count in kills.items() for _ in range(count)]
        self.rng.shuffle(self.plan)
        self.done: Counter[str] = Counter()

    def play(self, progress: Callable[[int, int], None]) -> None:
        damages = self._damages() if self.folder else {}
        for number, role in enumerate(self.plan):
            progress(number, len(self.plan))
            if number in damages:
                damages[number]()
            chance = self.rng.random()
            if chance < STOP_ALL_CHANCE:
                self._stop_all()
            elif chance < STOP_ALL_CHANCE + STOP_CHANCE:
                self._stop_one()
            self._kill(role)
            time.sleep(self.rng.uniform(0.0, 0.08))
        progress(len(self.plan), len(self.plan))

    def _kill(self, role: str) -> None:
        def victim() -> int:
            pids = self.house.pids(role)
            return self.rng.choice(pids) if pids else 0

        while True:
            pid = wait_until(f"a {role} to kill", victim)
            if role == "front":
                # Stopped first, so that its connections cannot change while they are listed.
                send_signal(pid, signal.SIGSTOP)
                try:
                    self.crowd.doom(self.house.connections_of(pid))
                except OSError:
                    continue
            # A number that the kernel has given to someone else by now must not be hit.
            if parent_of(pid) == self.house.pid and send_signal(pid, signal.SIGKILL):
                self.done[role] += 1
                return

    def _stop_one(self) -> None:
        pid = self.rng.choice([self.house.pid, *self.house.children()])
        if send_signal(pid, signal.SIGSTOP):
            time.sleep(self.rng.uniform(0.02, LONGEST_STOP_S))
            send_signal(pid, signal.SIGCONT)
            self.done["stop"] += 1

    def _stop_all(self) -> None:
        """A frozen machine: everyone stops, for longer than some timers, and wakes in any order."""
        everyone = [self.house.pid, *self.house.children()]
        for pid in everyone:
            send_signal(pid, signal.SIGSTOP)
        time.sleep(self.rng.uniform(0.5, 7.0))
        self.rng.shuffle(everyone)
        for pid in everyone:
            send_signal(pid, signal.SIGCONT)
        self.done["stop of all"] += 1

    def _damages(self) -> dict[int, Callable[[], None]]:
        """Number of the kill before which the folder is overwritten, truncated, deleted."""
        quarter = len(self.plan) // 4
        return {quarter: self._overwrite, 2 * quarter: self._truncate, 3 * quarter: self._delete}

    def _overwrite(self) -> None:
        for path in self.folder.iterdir():
            with open(path, "r+b") as file:
                file.write(b"\xff" * min(os.path.getsize(path), 1 << 20))
        self.done["folder overwritten"] += 1

    def _truncate(self) -> None:
        for path in self.folder.iterdir():
            os.truncate(path, 0)
        self.done["folder truncated"] += 1

    def _delete(self) -> None:
        shutil.rmtree(self.folder)
        self.done["folder deleted"] += 1


def kill_master(house: House) -> float:
    """kill -9 of the master; seconds until the port is free and every process is gone."""
    everyone = house.children()
    started = time.monotonic()
    os.kill(house.pid, signal.SIGKILL)
    house.process.wait()
    wait_until("port free and every process gone",
               lambda: house.port_is_free() and not any(map(is_alive, everyone)), 30)
    return time.monotonic() - started
