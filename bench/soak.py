"""Minutes at saturation: does memory grow, and does it come back after a burst of long texts?

    python -m bench.soak [--minutes 20] [--model DIR] [--engines N]

Texts of mixed lengths (those of bench/traffic.json) in a closed loop; memory is that of all
processes of the server, shared pages counted once (PSS). One JSON line a figure:

soak.growth         of memory over the second half, by a line through its samples; a share
soak.errors         answers that were not 2xx, and socket errors
soak.back_s         after a burst of 32 texts of the model's full length at once: until memory is
                    again within 2 % of what it was before
"""

import argparse
import json
import random
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path

import psutil

from bench.client import Driver, read_answer
from bench.figures import ROOT, emit
from bench.load import traffic
from bench.neighbours import LONG_TEXT
from bench.running import Server

MODEL = ROOT / "models" / "sms-spam"
PROFILE = ROOT / "bench" / "traffic.json"
CONNECTIONS = 64
SAMPLE_S = 5.0
BURST_TEXTS, BURSTS = 32, 4
NEAR = 1.02
BACK_LIMIT_S = 120.0
SEED = 32452843
IDLE_S = 3.0        # after load, until engines have given back what they do not need


def memory_mb(server: Server) -> float:
    """PSS of all processes of the server, in MB."""
    total = 0
    for row in server.info()["processes"]:
        try:
            total += psutil.Process(row["pid"]).memory_full_info().pss
        except psutil.NoSuchProcess:
            continue
    return total / 1e6


def measure_growth(server: Server, texts: Path, minutes: float, **facts: object) -> None:
    """Load for so long, with a sample of memory every few seconds."""
    samples: list[tuple[float, float]] = []
    begun = time.perf_counter()
    driver = Driver(server.url, texts, CONNECTIONS, 60 * minutes)
    while driver.is_running():
        time.sleep(SAMPLE_S)
        samples.append((time.perf_counter() - begun, memory_mb(server)))
        print(f"\r{samples[-1][0]:.0f} s: {samples[-1][1]:.1f} MB", end="", file=sys.stderr)
    print(file=sys.stderr)
    load = driver.finish()
    half = [sample for sample in samples if 30 * minutes <= sample[0] <= 60 * minutes]
    times, sizes = zip(*half)
    line = statistics.linear_regression(times, sizes)
    growth = line.slope * (times[-1] - times[0]) / statistics.fmean(sizes)
    emit("soak.growth", growth, "of memory", minutes=minutes,
         first_mb=round(samples[0][1], 1), middle_mb=round(half[0][1], 1),
         last_mb=round(half[-1][1], 1), requests_per_s=load.requests_per_s, **facts)
    emit("soak.errors", load.socket_errors + sum(load.others.values()), "answers",
         others=load.others, socket_errors=load.socket_errors, **facts)


def measure_burst(server: Server, **facts: object) -> None:
    """Long texts at once, and how long memory takes to come back."""
    time.sleep(IDLE_S)
    before = memory_mb(server)
    body = json.dumps({"texts": [LONG_TEXT] * BURST_TEXTS}).encode()
    head = b"POST /infer HTTP/1.1\r\nHost: bench\r\nContent-Length: %d\r\n\r\n" % len(body)
    connections = [socket.create_connection((server.host, server.port), BACK_LIMIT_S)
                   for _ in range(BURSTS)]
    for connection in connections:
        connection.sendall(head + body)
    statuses = [read_answer(connection)[0] for connection in connections]
    for connection in connections:
        connection.close()
    begun, peak = time.perf_counter(), memory_mb(server)
    now = peak
    while now > NEAR * before and time.perf_counter() - begun < BACK_LIMIT_S:
        time.sleep(0.2)
        now = memory_mb(server)
    emit("soak.back_s", time.perf_counter() - begun, "s", before_mb=round(before, 1),
         after_mb=round(peak, 1), then_mb=round(now, 1), statuses=statuses, **facts)


def main() -> None:
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
