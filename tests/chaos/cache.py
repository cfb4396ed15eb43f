"""`python -m tests.chaos.cache`: equal texts in the cache and in flight, under kills and cancels.

    python -m tests.chaos.cache [--kills 200] [--clients 24] [--rounds 5] [--seed 1]

Right answers are those of a server that has no cache. Half of the requests are a herd: everybody
sends the same text at the same time, so that most of them join. Then leaders go away one by one,
each with another's request joined to it; and a flood of texts that fills the caches.
"""

import argparse
import http.client
import json
import os
import random
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from server.cache import share_out
from tests.chaos.__main__ import ECHO
from tests.chaos.acts import Claims, hold_counters, hold_standing, show
from tests.chaos.clients import UNANSWERED_AFTER_S, Crowd, Expected, ask, essence
from tests.chaos.faults import Faults
from tests.house import House, send_signal, wait_until

FLAGS = ("--fronts", "2", "--engines", "2", "--max-wait-ms", "60000")
WORDS = tuple("abcdefghijklmnopqrstuvwxyz")
# More than fit into --cache-mb 1, so that some are forgotten and computed again.
TEXTS = 4000
HERD_S = 0.03                   # how long everybody sends the same text
DELAY_MS = 8                    # of a batch: long enough to be joined
LEAVE_CHANCE = 0.05
FLOOD_MB, FLOOD_TEXTS, AT_ONCE, TIMES = 16, 60_000, 250, 3
# Beside the cache: what a process needs for messages of that size, and the allocator's rest.
SPARE_BYTES = 8 << 20

Leaving = Callable[[House, http.client.HTTPConnection], None]


def number_text(number: int) -> str:
    """A text of known words for each number, no two alike."""
    letters = [WORDS[number // 26 ** place % 26] for place in range(4)]
    return " ".join(letters * (1 + number % 3))


def slow_model(folder: Path) -> Path:
    """The echo model, each of whose batches takes a while."""
    shutil.copytree(ECHO, folder)
    config = json.loads((ECHO / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "delay_ms": DELAY_MS}))
    return folder


def cached(house: House) -> dict[str, float]:
    """`hit`, `join` and `miss` as the server counts them."""
    return {labels.partition('"')[2].rstrip('"'): value for (name, labels), value
            in house.counters().items() if name == "firebrick_cache_total"}


class SharingCrowd(Crowd):
    """A crowd of which half sends the same text at the same time, and some leave unanswered."""

    def __init__(self, port: int, expected: Expected, clients: int, seed: int) -> None:
        self.known = self.left = 0
        super().__init__(port, expected, clients, seed)

    def _ask_once(self, connection: http.client.HTTPConnection, rng: random.Random) -> None:
        chance = random.Random(int(time.monotonic() / HERD_S)) if rng.random() < 0.5 else rng
        answers = self.expected.answers
        text, right = answers[int(chance.random() ** 3 * len(answers))]
        fields = {"Content-Type": "application/json", "X-Priority": rng.choice(("high", "low"))}
        started = time.monotonic()
        connection.request("POST", "/infer", json.dumps({"text": text, "logits": True}), fields)
        if rng.random() < LEAVE_CHANCE:
            time.sleep(rng.uniform(0.0, DELAY_MS / 1e3))
            connection.close()
            with self._lock:
                self.left += 1
            return
        response = connection.getresponse()
        answer = json.loads(response.read())
        with self._lock:
            self.codes[response.status] += 1
            self.slowest_s = max(self.slowest_s, time.monotonic() - started)
            self.known += response.getheader("X-Engine") == "cache"
            if response.status != 200:
                self.failed.append(f"{response.status}: {answer['error']['message']}")
            elif essence(answer) != right:
                self.wrong.append(text)


def crowd_act(claims: Claims, model: Path, clients: int, kills: int, seed: int) -> None:
    """Clients with verified answers while processes of every role are killed."""
    with House(["--model", str(model), *FLAGS]) as house:
        expected = Expected(house.port, [number_text(17 * number) for number in range(TEXTS)])
    shares = {"engine": 0.4, "front": 0.3, "dispatcher": 0.2, "forkserver": 0.1}
    plan = {role: round(kills * share) for role, share in shares.items()}
    with House(["--model", str(model), *FLAGS, "--cache-mb", "1"]) as house:
        house.get("/info")
        settled = house.footprint()
        crowd = SharingCrowd(house.port, expected, clients, seed)
        faults = Faults(house, crowd, plan, seed, None)
        try:
            faults.play(lambda done, total: show("cache", done, total, crowd))
        finally:
            crowd.stop()
        print(f"     cache: {dict(faults.done)}, seed {seed}", flush=True)
        claims.hold("cache: answers unlike those without a cache", not crowd.wrong,
                    f"{len(crowd.wrong)} of {crowd.answered} answered, {crowd.known} from the "
                    f"cache, slowest {crowd.slowest_s:.2f} s")
        claims.hold("cache: failures not on a killed front's connections", not crowd.failed,
                    f"{len(crowd.failed)} {crowd.failed[:3]} (cut with their front: "
                    f"{crowd.cut_by_kill}, left by themselves: {crowd.left})")
        counts = cached(house)
        claims.hold("cache: texts were known, were joined and were computed",
                    min(counts.values()) > 0 and counts["hit"] >= crowd.known, counts)
        hold_counters(claims, "cache", house, crowd, 0, plan)
        hold_standing(claims, "cache", house, settled)


def leader_act(claims: Claims, rounds: int) -> None:
    """One asks for a slow text, another joins, and the first or what works for both goes away."""
    with House(["--model", str(ECHO), *FLAGS]) as house:
        texts = [f"traplate {number_text(number)}" for number in range(rounds * len(LEAVING))]
        answers = Expected(house.port, texts).answers
    with House(["--model", str(ECHO), *FLAGS, "--cache-mb", "1"]) as house:
        for place, (name, leave) in enumerate(LEAVING.items()):
            right = sum(_lose_leader(house, leave, *answers[place * rounds + number])
                        for number in range(rounds))
            claims.hold(f"leader: joined answers right after {name}", right == rounds,
                        f"{right} of {rounds}")


def _lose_leader(house: House, leave: Leaving, text: str, right: object) -> bool:
    """Whether the one that joined gets the right answer."""
    wait_until("all stand", lambda: house.roles().get("engine") == 2
               and house.roles().get("front") == 2)
    leader, follower = _on_two_fronts(house)
    body = json.dumps({"text": text, "logits": True})
    before = cached(house)
    leader.request("POST", "/infer", body, {"Content-Type": "application/json"})
    wait_until("the leader's text in flight", lambda: cached(house)["miss"] > before["miss"])
    got: list[tuple[int, dict]] = []
    thread = threading.Thread(target=lambda: got.append(
        ask(follower, {"text": text, "logits": True})))
    thread.start()
    wait_until("the other joined", lambda: cached(house)["join"] > before["join"])
    leave(house, leader)
    thread.join(UNANSWERED_AFTER_S)
    leader.close()
    follower.close()
    return bool(got) and got[0][0] == 200 and essence(got[0][1]) == right


def _on_two_fronts(house: House) -> tuple[http.client.HTTPConnection, http.client.HTTPConnection]:
    """Connections that different fronts hold."""
    first = _connect(house)
    while True:
        second = _connect(house)
        if _front_of(house, second) != _front_of(house, first):
            return first, second
        second.close()


def _connect(house: House) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection("127.0.0.1", house.port, timeout=UNANSWERED_AFTER_S)
    connection.connect()
    connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _front_of(house: House, connection: http.client.HTTPConnection) -> int:
    port = connection.sock.getsockname()[1]
    return wait_until("its front", lambda: next(
        (pid for pid in house.pids("front") if port in house.connections_of(pid)), 0))


def _kill(role: str) -> Leaving:
    def kill(house: House, leader: http.client.HTTPConnection) -> None:
        pids = [_front_of(house, leader)] if role == "front" else house.pids(role)
        for pid in pids:
            send_signal(pid, signal.SIGKILL)
    return kill


LEAVING = {
    "its leader's cancel": lambda house, leader: leader.close(),
    "its leader's front was killed": _kill("front"),
    "every engine was killed": _kill("engine"),
    "the dispatcher was killed": _kill("dispatcher"),
}


def flood_act(claims: Claims) -> None:
    """Texts that come a few times and never again: caches fill, no process grows beyond its own."""
    with House(["--model", str(ECHO), *FLAGS, "--cache-mb", str(FLOOD_MB)]) as house:
        connection = _connect(house)
        sizes = []
        for first in range(0, FLOOD_TEXTS, AT_ONCE):
            if first % (FLOOD_TEXTS // 4) == 0:
                sizes.append(_resident(house))
            texts = [number_text(number) for number in range(first, first + AT_ONCE)]
            for _ in range(TIMES):      # the second time into the dispatcher's, then the front's
                status, _ = ask(connection, {"texts": texts})
                if status != 200:
                    raise AssertionError(f"a flood's request is answered {status}")
        sizes.append(_resident(house))
        connection.close()
        for role, share in zip(("dispatcher", "front"), share_out(FLOOD_MB, 2)):
            limit = share + SPARE_BYTES
            grown = [size[role] - sizes[0][role] for size in sizes]
            claims.hold(f"flood: a {role} grows by no more than {limit >> 20} MiB",
                        max(grown) <= limit, f"MiB after each quarter of {FLOOD_TEXTS} texts: "
                        + ", ".join(f"{size / 2**20:.1f}" for size in grown[1:]))
        counts = cached(house)
        claims.hold("flood: each text was computed once", counts["miss"] == FLOOD_TEXTS
                    and counts["hit"] == (TIMES - 1) * FLOOD_TEXTS, counts)


def _resident(house: House) -> dict[str, int]:
    """role → resident bytes of its largest process."""
    found: dict[str, int] = {}
    for role in ("dispatcher", "front"):
        found[role] = max(int(Path(f"/proc/{pid}/statm").read_text().split()[1])
                          for pid in house.pids(role)) * os.sysconf("SC_PAGE_SIZE")
    return found


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.cache", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="kill -9 in all (default 200)")
    parser.add_argument("--clients", type=int, default=24, help="connections (default 24)")
    parser.add_argument("--rounds", type=int, default=5, help="leaders lost a way (default 5)")
    parser.add_argument("--seed", type=int, default=1, help="order of the faults (default 1)")
    options = parser.parse_args(argv)
    claims = Claims()
    with tempfile.TemporaryDirectory(prefix="firebrick-chaos-") as scratch:
        model = slow_model(Path(scratch) / "echo")
        crowd_act(claims, model, options.clients, options.kills, options.seed)
    leader_act(claims, options.rounds)
    flood_act(claims)
    return claims.summary()


if __name__ == "__main__":
    sys.exit(main())
