"""The acts: a crowd under kills, trap texts, and the death of the master; each makes claims."""

import http.client
import signal
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.clients import Crowd, Expected, ask, essence
from tests.chaos.faults import Faults, kill_master
from tests.house import House, send_signal, wait_until

ROLES = {"master": 1, "front": 2, "dispatcher": 1, "forkserver": 1, "engine": 2}
FLAGS = ("--fronts", "2", "--engines", "2", "--max-wait-ms", "60000")


class Claims:
    """What was shown and what was not; prints each claim once, with its figure."""

    def __init__(self) -> None:
        self.broken = 0
        self.total = 0

    def hold(self, what: str, holds: bool, figure: object) -> None:
        self.total += 1
        self.broken += not holds
        print(f"{'ok  ' if holds else 'FAIL'} {what}: {figure}", flush=True)

    def summary(self) -> int:
        print(f"{self.total - self.broken} passed, {self.broken} failed", flush=True)
        return 1 if self.broken else 0


def crowd_act(claims: Claims, name: str, folder: Path, texts: Sequence[str], clients: int,
              kills: dict[str, int], seed: int, damage: bool) -> None:
    """Clients with verified answers while processes are killed, stopped, and the folder broken."""
    with House(["--model", str(folder), *FLAGS]) as house:
        expected = Expected(house.port, texts)
        settled = house.footprint()
        crowd = Crowd(house.port, expected, clients, seed)
        faults = Faults(house, crowd, kills, seed, folder if damage else None)
        try:
            faults.play(lambda done, total: show(name, done, total, crowd))
        finally:
            crowd.stop()
        print(f"     {name}: {dict(faults.done)}, seed {seed}", flush=True)
        claims.hold(f"{name}: wrong answers", not crowd.wrong, f"{len(crowd.wrong)} of "
                    f"{crowd.answered} answered, slowest {crowd.slowest_s:.2f} s")
        claims.hold(f"{name}: failures not on a killed front's connections", not crowd.failed,
                    f"{len(crowd.failed)} {crowd.failed[:3]} (cut with their front: "
                    f"{crowd.cut_by_kill})")
        hold_counters(claims, name, house, crowd, len(expected.answers), kills)
        hold_standing(claims, name, house, settled)


def show(name: str, done: int, total: int, crowd: Crowd) -> None:
    if done % 50 == 0 or done == total:
        print(f"     {name}: {done}/{total} kills, {crowd.answered} answers, "
              f"{len(crowd.wrong)} wrong, {len(crowd.failed)} failed", file=sys.stderr, flush=True)


def hold_counters(claims: Claims, name: str, house: House, crowd: Crowd, before: int,
                   kills: dict[str, int]) -> None:
    """Counted ≥ seen by clients; equal where no front died; every restart is one of our kills."""
    counters = house.counters()
    counted = sum(value for (metric, labels), value in counters.items()
                  if metric == "firebrick_requests_total" and 'route="/infer"' in labels
                  and 'code="200"' in labels)
    seen = crowd.codes[200] + before
    exact = not kills.get("front")
    claims.hold(f"{name}: answers counted against seen",
                counted == seen if exact else counted >= seen, f"{counted:.0f} and {seen}")
    others = {labels: value for (metric, labels), value in counters.items()
              if metric == "firebrick_restarts_total" and value and 'cause="sigkill"' not in labels}
    claims.hold(f"{name}: processes that died of anything but our kills", not others, others or 0)
    words = [line.decode("utf-8", "replace") for line in house.log if b" event=" not in line]
    claims.hold(f"{name}: last words on stderr", not words, "".join(words[-40:]) or 0)


def hold_standing(claims: Claims, name: str, house: House,
                   settled: dict[int, tuple[str, int, int]]) -> None:
    """All roles up again, no orphan, and each role as large as before the faults."""
    try:
        wait_until("all roles up", lambda: house.roles() == ROLES, 30)
    except AssertionError:
        claims.hold(f"{name}: all roles stand", False, house.roles())
        return
    claims.hold(f"{name}: all roles stand", True, house.roles())
    known = {row["pid"] for row in house.info()["processes"]}
    orphans = [pid for pid in house.children() if pid not in known]
    claims.hold(f"{name}: orphans", not orphans, len(orphans))
    before, after = _largest(settled), _largest(house.footprint())
    grown = {role: (before[role], after[role]) for role in after
             if role in before and after[role][0] > before[role][0] + 3}
    claims.hold(f"{name}: descriptors by role, then and now", not grown,
                {role: (before[role][0], after[role][0]) for role in sorted(after)})
    # A longer life leaves a few more arenas in the allocator; a leak would be one a kill.
    mapped = {role: (before[role][1], after[role][1]) for role in after if role in before
              and after[role][1] > before[role][1] + 60}
    claims.hold(f"{name}: mappings by role, then and now", not mapped,
                {role: (before[role][1], after[role][1]) for role in sorted(after)})


def _largest(footprint: dict[int, tuple[str, int, int]]) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for role, held, maps in footprint.values():
        was = found.get(role, (0, 0))
        found[role] = (max(was[0], held), max(was[1], maps))
    return found


def trap_act(claims: Claims, folder: Path) -> None:
    """Texts that break an engine get 500 after three faults, their neighbours are answered;
    a text whose engine is killed from outside is answered all the same."""
    with House(["--model", str(folder), *FLAGS]) as house:
        texts = ["win a free phone now", "see you at six", "ok"]
        expected = Expected(house.port, texts)
        for trap in ("trapexit", "trapsegv"):
            crowd = Crowd(house.port, expected, 4, 5)
            connection = http.client.HTTPConnection("127.0.0.1", house.port, timeout=60)
            status, answer = ask(connection, {"text": f"see {trap} now"})
            crowd.stop()
            claims.hold(f"{trap}: 500 failed after three faults",
                        status == 500 and answer["error"]["code"] == "failed", (status, answer))
            claims.hold(f"{trap}: neighbours answered", not crowd.wrong and not crowd.failed,
                        f"{crowd.answered} right, {len(crowd.failed)} failed")
            status, answer = ask(connection, {"text": texts[0], "logits": True})
            claims.hold(f"{trap}: its connection goes on", status == 200
                        and essence(answer) == expected.answers[0][1], status)
            connection.close()
        _hold_outside_kills(claims, house)


def _hold_outside_kills(claims: Claims, house: House) -> None:
    outcome: list[tuple[int, dict]] = []

    def slow_request() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", house.port, timeout=60)
        outcome.append(ask(connection, {"text": "see traplate now"}))
        connection.close()

    thread = threading.Thread(target=slow_request)
    thread.start()
    killed = 0
    while killed < 8:
        for pid in house.pids("engine"):
            killed += send_signal(pid, signal.SIGKILL)
        time.sleep(0.05)
    thread.join(90)
    claims.hold("outside kills make no 500", bool(outcome) and outcome[0][0] == 200,
                f"{killed} kills, {outcome[0][0] if outcome else 'unanswered'}")


def master_act(claims: Claims, folder: Path) -> None:
    """kill -9 of the master, with everyone running and with a child stopped."""
    took = []
    for stopped in (False, True, True):
        with House(["--model", str(folder), *FLAGS]) as house:
            if stopped:
                for pid in house.children():
                    send_signal(pid, signal.SIGSTOP)
            took.append(kill_master(house))
    claims.hold("kill -9 of the master: port free and every process gone within 1 s",
                max(took) <= 1.0, f"median {statistics.median(took):.3f} s, "
                f"longest {max(took):.3f} s")
