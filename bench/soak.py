"""Minutes at saturation: does memory grow, and does it come back after a burst of long texts?

    python -m bench.soak [--minutes 20] [--model DIR] [--engines N]

Texts of mixed lengths (those of bench/traffic.json) in a closed loop; memory is that of all
processes of the server, shared pages counted once (PSS). One JSON line a figure:

soak.growth         of memory over the second half, by a line through its samples; a share. The line
                    takes the median of each two samples' slopes, which a few that a front's or an
                    engine's moment has moved do not change. `of_rss` is the same of the sum of
                    resident sizes: pages that an engine writes to and shared before count there
                    from the start
soak.errors         answers that were not 2xx, and socket errors
soak.back_s         after a burst of requests of 32 texts of the model's full length at once: from
                    the last answer until memory is again within 2 % of what it was before
"""

import argparse
import contextlib
import itertools
import json
import random
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import psutil

from bench.client import Driver, read_answer
from bench.figures import ROOT, emit, median
from bench.load import traffic
from bench.neighbours import LONG_TEXT
from bench.running import Server

MODEL = ROOT / "models" / "sms-spam"
PROFILE = ROOT / "bench" / "traffic.json"
CONNECTIONS = 64
SAMPLES = 120       # over all the time, but no closer than
SAMPLE_S = 1.0
BURST_TEXTS, BURSTS = 32, 4
NEAR = 1.02
BACK_LIMIT_S = 120.0
LOOK_S = 0.05
SEED = 32452843
IDLE_S = 3.0        # after load, until engines have given back what they do not need


class Memory(NamedTuple):
    """Of the server's first process and all that descend from it, in MB."""

    pss: float
    rss: float


def memory_mb(server: Server) -> Memory:
    """What the server has now."""
    first = psutil.Process(server.process.pid)
    pss = rss = 0
    for process in (first, *first.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):  # one that ended meanwhile
            found = process.memory_full_info()
            pss, rss = pss + found.pss, rss + found.rss
    return Memory(pss / 1e6, rss / 1e6)


def growth_of_second_half(samples: Sequence[tuple[float, float]]) -> float:
    """By how much of its median memory grew over the second half of the samples (seconds, MB).

    Example: 100, 100, 101, 102, 103 and 104 MB, a second apart, give 2 / 103.
    """
    half = samples[len(samples) // 2:]
    slopes = [(later[1] - one[1]) / (later[0] - one[0])
              for one, later in itertools.combinations(half, 2)]
    return median(slopes) * (half[-1][0] - half[0][0]) / median([size for _, size in half])


def measure_growth(server: Server, texts: Path, minutes: float, **facts: object) -> None:
    """Load for so long, with a sample of memory every few seconds."""
    samples: list[tuple[float, Memory]] = []
    begun = time.perf_counter()
    driver = Driver(server.url, texts, CONNECTIONS, 60 * minutes)
    with contextlib.closing(driver):
        while driver.is_running():
            time.sleep(max(SAMPLE_S, 60 * minutes / SAMPLES))
            samples.append((time.perf_counter() - begun, memory_mb(server)))
            print(f"\r{samples[-1][0]:.0f} s: {samples[-1][1].pss:.1f} MB", end="",
                  file=sys.stderr)
        print(file=sys.stderr)
        load = driver.finish()
    # The last sample may be of the time after the load.
    samples = samples[:-1]
    growth = growth_of_second_half([(at_s, memory.pss) for at_s, memory in samples])
    of_rss = growth_of_second_half([(at_s, memory.rss) for at_s, memory in samples])
    first, middle, last = (samples[at][1].pss for at in (0, len(samples) // 2, -1))
    emit("soak.growth", growth, "of memory", minutes=minutes, of_rss=round(of_rss, 5),
         first_mb=round(first, 1), middle_mb=round(middle, 1), last_mb=round(last, 1),
         samples=len(samples), requests_per_s=load.requests_per_s, **facts)
    emit("soak.errors", load.socket_errors + sum(load.others.values()), "answers",
         others=load.others, socket_errors=load.socket_errors, **facts)


def measure_burst(server: Server, **facts: object) -> None:
    """Long texts at once, and how long memory takes to come back."""
    time.sleep(IDLE_S)
    before = memory_mb(server).pss
    peak = before
    with ThreadPoolExecutor(BURSTS) as clients:
        bursts = [clients.submit(ask_long_texts, server) for _ in range(BURSTS)]
        while not all(burst.done() for burst in bursts):
            time.sleep(LOOK_S)
            peak = max(peak, memory_mb(server).pss)
    begun, now = time.perf_counter(), memory_mb(server).pss
    while now > NEAR * before and time.perf_counter() - begun < BACK_LIMIT_S:
        time.sleep(LOOK_S)
        now = memory_mb(server).pss
    emit("soak.back_s", time.perf_counter() - begun, "s", before_mb=round(before, 1),
         peak_mb=round(peak, 1), then_mb=round(now, 1),
         statuses=[burst.result() for burst in bursts], **facts)


def ask_long_texts(server: Server) -> int:
    """The status of one request of BURST_TEXTS texts of the model's full length."""
    body = json.dumps({"texts": [LONG_TEXT] * BURST_TEXTS}).encode()
    head = b"POST /infer HTTP/1.1\r\nHost: bench\r\nContent-Length: %d\r\n\r\n" % len(body)
    with socket.create_connection((server.host, server.port), BACK_LIMIT_S) as connection:
        connection.sendall(head + body)
        return read_answer(connection)[0]


def main() -> None:
    # Ended from outside it still ends the server.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    parser = argparse.ArgumentParser(prog="python -m bench.soak")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--model", default=str(MODEL), help="checkpoint folder")
    parser.add_argument("--engines", type=int, default=2)
    options = parser.parse_args()
    facts = {"model": Path(options.model).name}
    with tempfile.TemporaryDirectory() as folder, \
            Server(["--model", options.model, "--engines", str(options.engines)]) as server:
        texts = Path(folder) / "texts"
        texts.write_text("\n".join(traffic(PROFILE, random.Random(SEED))), encoding="utf-8")
        measure_growth(server, texts, options.minutes, **facts)
        measure_burst(server, **facts)


if __name__ == "__main__":
    main()
