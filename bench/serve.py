"""What serving costs with a real model, and how fast the house stands and heals.

    python -m bench.serve [--short] [--model DIR] [--texts FILE] [--engines N]

One JSON line a figure; values are medians of the runs shown:

serve.ready_s           from the start of the interpreter to the ready line
serve.offline_ratio     requests/s at 128 connections, as a share of the same program fed from a
                        full queue without HTTP (bench/offline.py), interleaved, same engines, texts
serve.offline_left      the same as a share of what that program gets done on the cores that the
                        load client, which runs on the same ones, leaves
serve.dispatcher_core   the dispatcher's share of a core at that load
serve.latency_ms        p50 at 32 connections; p99 beside it
serve.engine_back_s     from the kill -9 of an engine until /info says that its successor is up
serve.engine_uss_mb     memory that is an engine's own after that load; the last engine's counts
serve.index_100k_s      indexing 100,000 records of a mapped file
"""

import os
import resource
import tempfile
import time
from pathlib import Path

import psutil

from bench.client import drive, read_texts
from bench.figures import emit, median
from bench.front import ENGINE_CONNECTIONS
from bench.offline import Offline
from bench.options import read_options
from bench.running import Server
from loader.wire import RecordFile, write_record

INDEXED_RECORDS = 100_000
SATURATING = 128        # connections with which the queue is never empty


def measure_ready(model: str, runs: int) -> None:
    """Starts the server some times; the first one also warms the page cache and is left out."""
    took = []
    for _ in range(runs + 1):
        with Server(["--model", model]) as server:
            took.append(server.ready_s)
    emit("serve.ready_s", median(took[1:]), "s", took[1:], first_s=round(took[0], 3),
         model=Path(model).name)


def measure_ratio(server: Server, model: str, texts: Path, engines: int, rounds: int,
                  seconds: float) -> None:
    """Served against offline, round by round."""
    served, offline_rates, ratios, shares, clients, p50s, p99s = [], [], [], [], [], [], []
    precision = server.info()["model"]["precision"]
    facts = {"model": Path(model).name, "texts": texts.name, "precision": precision}
    cores = len(os.sched_getaffinity(0))
    with Offline(model, read_texts(texts), engines, precision) as offline:
        drive(server.url, texts, SATURATING, 2)
        for _ in range(rounds):
            offline_rates.append(offline.rate(seconds))
            spent, begun = server.cpu_seconds("dispatcher"), time.perf_counter()
            client_spent = _children_s()
            load = drive(server.url, texts, SATURATING, seconds)
            took = time.perf_counter() - begun
            shares.append((server.cpu_seconds("dispatcher") - spent) / took)
            clients.append((_children_s() - client_spent) / took)
            served.append(load.served_per_s)
            ratios.append(load.served_per_s / offline_rates[-1])
            usual = drive(server.url, texts, ENGINE_CONNECTIONS, seconds)
            p50s.append(usual.p50_ms)
            p99s.append(usual.p99_ms)
        emit("serve.offline_ratio", median(ratios), "x", ratios, client=load.client,
             connections=SATURATING, requests_per_s=round(median(served), 1),
             offline_texts_per_s=round(median(offline_rates), 1),
             offline_batch=offline.batch_size, engines=engines, others=load.others,
             socket_errors=load.socket_errors, **facts)
    left = [ratio / (1 - client / cores) for ratio, client in zip(ratios, clients)]
    emit("serve.offline_left", median(left), "x", left,
         client_cores=round(median(clients), 3), cores=cores, **facts)
    emit("serve.dispatcher_core", median(shares), "cores", shares,
         requests_per_s=round(median(served), 1), **facts)
    emit("serve.latency_ms", median(p50s), "ms", p50s, p99_ms=round(median(p99s), 2),
         connections=ENGINE_CONNECTIONS, requests_per_s=usual.requests_per_s, **facts)


def _children_s() -> float:
    """Processor time of the children that have ended, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure_healing(server: Server, model: str, kills: int) -> None:
    """Memory of the engines after load, then kills of one, as often as asked."""
    rows = server.processes("engine")
    sizes = [psutil.Process(row["pid"]).memory_full_info().uss / 1e6 for row in rows]
    emit("serve.engine_uss_mb", sizes[-1], "MB", model=Path(model).name,
         each_mb=[round(size, 1) for size in sizes])
    back = [server.kill("engine") for _ in range(kills)]
    emit("serve.engine_back_s", median(back), "s", back, model=Path(model).name)


def measure_index(texts: Path) -> None:
    """Indexes a file of 100,000 records made of the texts."""
    some = read_texts(texts)
    with tempfile.NamedTemporaryFile(suffix=".fbr") as file:
        for number in range(INDEXED_RECORDS):
            file.write(write_record(some[number % len(some)].encode(), None, number))
        file.flush()
        took = []
        for _ in range(5):
            records = RecordFile.open(tempfile.gettempdir(), Path(file.name).name)
            begun = time.perf_counter()
            found = len(records.index(0, INDEXED_RECORDS)) - 1  # the last offset is the end
            took.append(time.perf_counter() - begun)
            records.close()
            if found != INDEXED_RECORDS:
                raise RuntimeError(f"{found} records indexed of {INDEXED_RECORDS}")
        emit("serve.index_100k_s", median(took), "s", took, bytes=file.tell())


def main() -> None:
    options = read_options("bench.serve", (3, 2), (5, 10))
    measure_index(options.texts)
    measure_ready(options.model, options.rounds)
    with Server(options.flags) as server:
        measure_ratio(server, options.model, options.texts, options.engines, options.rounds,
                      options.seconds)
        measure_healing(server, options.model, 3 if options.is_short else 9)


if __name__ == "__main__":
    main()
