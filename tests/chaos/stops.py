"""`python -m tests.chaos.stops`: told to end while requests are in flight, while it starts, and
while a successor on the same port takes over.

    python -m tests.chaos.stops [--rolls 5]

Nobody is lost when a port changes hands. Who knocks between the last moments of two of the old
server's listeners may wait for a second; how many did is told.
"""

import argparse
import json
import os
import shutil
import signal
import socket
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
from tests.chaos.versions import VersionedCrowd, VersionedExpected
from tests.house import ROOT, House

REAL = ROOT / "models" / "sms-spam"
FLAGS = ("--fronts", "2", "--engines", "2", "--max-wait-ms", "60000")
LAME_DUCK_S, DRAIN_S = 1.0, 25.0
IN_FLIGHT = 64
BODY = b'{"text": "see you at six"}'
REQUEST = b"POST /infer HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" \
    b"Content-Length: %d\r\n\r\n%b" % (len(BODY), BODY)


def ask_raw(port: int) -> str:
    """How one request on a new connection ends: a status, "refused" by the kernel, or "lost"."""
    try:
        client = socket.create_connection(("127.0.0.1", port), timeout=60)
    except ConnectionRefusedError:
        return "refused"
    except OSError:
        return "lost"
    with client:
        try:
            client.sendall(REQUEST)
            head = client.recv(4096)
        except OSError:
            return "lost"
    return head[9:12].decode() or "lost"


def term_act(claims: Claims, model: Path) -> None:
    """64 requests in flight, and clients that keep connecting."""
    outcomes: Counter[str] = Counter()
    lock, over = threading.Lock(), threading.Event()

    def note(how: str) -> None:
        with lock:
            outcomes[how] += 1

    with House(["--model", str(model), *FLAGS, "--lame-duck-s", str(LAME_DUCK_S),
                "--drain-s", str(DRAIN_S)]) as house:
        held = [socket.create_connection(("127.0.0.1", house.port), timeout=60)
                for _ in range(IN_FLIGHT)]
        for client in held:
            client.sendall(REQUEST)

        def knock() -> None:
            while not over.is_set():
                note(ask_raw(house.port))

        threads = [threading.Thread(target=knock) for _ in range(8)]
        for thread in threads:
            thread.start()
        os.kill(house.pid, signal.SIGTERM)
        told_at = time.monotonic()
        statuses = Counter()
        for client in held:
            with client:
                statuses[client.recv(4096)[9:12].decode() or "lost"] += 1
        code = house.process.wait(60)
        took = time.monotonic() - told_at
        over.set()
        for thread in threads:
            thread.join()
    claims.hold("TERM: requests in flight", statuses == {"200": IN_FLIGHT}, dict(statuses))
    claims.hold("TERM: clients that kept connecting, none lost", not outcomes["lost"],
                dict(outcomes))
    claims.hold("TERM: exit 0 within lame duck and drain",
                code == 0 and took <= LAME_DUCK_S + DRAIN_S, f"exit {code} after {took:.2f} s")


def start_act(claims: Claims, model: Path) -> None:
    """TERM at any moment of the start, which takes seconds with this model."""
    took, codes = [], Counter()
    for number in range(12):
        process = subprocess.Popen(
            [sys.executable, "-m", "server", "--port", "0", "--model", str(model), *FLAGS,
             "--lame-duck-s", "0"],     # it may be ready at the last moments
            cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        process.stderr.readline()           # the first event: signals are taken from here on
        time.sleep(0.2 * number)
        process.terminate()
        told_at = time.monotonic()
        codes[process.wait(60)] += 1
        took.append(time.monotonic() - told_at)
        process.stderr.close()
    claims.hold("TERM during start: ends at once with 0", set(codes) == {0} and max(took) < 1.0,
                f"median {statistics.median(took):.3f} s, longest {max(took):.3f} s, "
                f"codes {dict(codes)}")


def roll_act(claims: Claims, model: Path, rolls: int) -> None:
    """Successors with --share-port under keep-alive clients and under ones that reconnect."""
    expected = VersionedExpected([model], WORDS, FLAGS)
    flags = ["--model", str(model), *FLAGS, "--lame-duck-s", str(LAME_DUCK_S), "--share-port"]
    outcomes: Counter[str] = Counter()
    waits_s: list[float] = []
    over = threading.Event()
    house = House(flags)
    port = house.port

    def knock() -> None:
        while not over.is_set():
            asked_at = time.monotonic()
            outcomes[ask_raw(port)] += 1
            waits_s.append(time.monotonic() - asked_at)

    crowd = VersionedCrowd(port, expected, 16, 1)
    thread = threading.Thread(target=knock)
    thread.start()
    codes = []
    try:
        for _ in range(rolls):
            successor = House(flags, port=port)
            os.kill(house.pid, signal.SIGTERM)
            codes.append(house.process.wait(60))
            house.close()
            house = successor
    finally:
        over.set()
        thread.join()
        crowd.stop()
        house.close()
    claims.hold(f"{rolls} rolls on one port: keep-alive clients failed",
                not (crowd.failed or crowd.wrong) and set(codes) == {0},
                f"{len(crowd.failed)} {crowd.failed[:2]} of {crowd.answered}, exits {codes}")
    claims.hold("one connection a request meanwhile, none lost", set(outcomes) == {"200"},
                f"{dict(outcomes)}, {sum(wait > 0.9 for wait in waits_s)} waited a second, "
                f"longest {max(waits_s):.2f} s")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.stops", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rolls", type=int, default=5, help="successors (default 5)")
    options = parser.parse_args(argv)
    claims = Claims()
    with tempfile.TemporaryDirectory(prefix="firebrick-stops-") as scratch:
        slow = Path(scratch) / "slow"
        shutil.copytree(ECHO, slow)
        config = json.loads((slow / "config.json").read_text()) | {"delay_ms": 100.0}
        (slow / "config.json").write_text(json.dumps(config))
        term_act(claims, slow)
        start_act(claims, REAL)
        roll_act(claims, ECHO, options.rolls)
    return claims.summary()


if __name__ == "__main__":
    sys.exit(main())
