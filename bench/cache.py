"""What an answer from the cache takes, beside one that is computed.

    python -m bench.cache [--short] [--model DIR] [--texts FILE] [--engines N]

One JSON line a figure; values are medians of the runs shown, a run a new server:

cache.hit_ms        X-Latency-ms of texts that come for the third time and more, one connection:
                    their front knows them; `p99_ms` is the 99th percentile, `trip_ms` the median
                    of what the client saw
cache.second_ms     the same of texts that come for the second time: the dispatcher knows them
cache.miss_ms       the same of texts that come for the first time
cache.hit_per_s     requests/s at 32 connections while every text is known, with how many of its
                    answers came from the cache
cache.hit_ratio     that as a multiple of the same server's requests/s without a cache, interleaved
"""

import re
import socket
import time
from pathlib import Path

from bench.client import drive, post, read_answer, read_texts, sample
from bench.figures import emit, median, percentile
from bench.options import read_options
from bench.running import Server

CACHE_FLAGS = ("--cache-mb", "64")
CONNECTIONS = 32
FIELD = re.compile(rb"^([\w-]+): (.*?)\r?$", re.M)


def measure_latency(flags: list[str], texts: list[str], runs: int, model: str) -> None:
    """All texts on one connection, one at a time, again and again."""
    found: dict[str, list[list[float]]] = {"miss": [], "second": [], "hit": []}
    trips: dict[str, list[float]] = {kind: [] for kind in found}
    for _ in range(runs):
        with Server([*flags, *CACHE_FLAGS]) as server:
            ask_each(server, ["warm up"] * 200)
            for kind, passes in (("miss", 1), ("second", 1), ("hit", 3)):
                answers = ask_each(server, texts * passes)
                found[kind].append([latency_ms for latency_ms, _, is_known in answers
                                    if is_known == (kind != "miss")])
                trips[kind] += [trip_ms for _, trip_ms, _ in answers]
    for kind, each in found.items():
        medians = [median(one) for one in each]
        every = [value for one in each for value in one]
        emit(f"cache.{kind}_ms", median(medians), "ms", medians,
             p99_ms=round(percentile(every, 99), 3), trip_ms=round(median(trips[kind]), 3),
             answers=len(every), model=model)


def ask_each(server: Server, texts: list[str]) -> list[tuple[float, float, bool]]:
    """(X-Latency-ms, round trip in ms, whether the text was known) of each, on one connection."""
    found = []
    with socket.create_connection((server.host, server.port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for request in map(post, texts):
            begun = time.perf_counter()
            connection.sendall(request)
            _, head, _ = read_answer(connection)
            trip_ms = (time.perf_counter() - begun) * 1000
            fields = dict(FIELD.findall(head))
            found.append((float(fields[b"X-Latency-ms"]), trip_ms, fields[b"X-Engine"] == b"cache"))
    return found


def measure_rate(flags: list[str], texts: Path, rounds: int, seconds: float, model: str) -> None:
    """The same load on a server that knows every text and on one without a cache, in turns."""
    known, plain, shares = [], [], []
    with Server([*flags, *CACHE_FLAGS]) as cached, Server(flags) as computing:
        for text in read_texts(texts):
            sample(cached.host, cached.port, post(text), 1)
        drive(computing.url, texts, CONNECTIONS, 2)
        for _ in range(rounds):
            before = cached.metric("firebrick_cache_total")
            load = drive(cached.url, texts, CONNECTIONS, seconds)
            counts = [now - then for now, then
                      in zip(cached.metric("firebrick_cache_total"), before)]
            shares.append(counts[0] / sum(counts))
            known.append(load.requests_per_s)
            plain.append(drive(computing.url, texts, CONNECTIONS, seconds).requests_per_s)
    emit("cache.hit_per_s", median(known), "requests/s", known, client=load.client,
         hit_share=round(median(shares), 4), last_p50_ms=load.p50_ms, last_p99_ms=load.p99_ms,
         others=load.others, socket_errors=load.socket_errors, model=model, texts=texts.name)
    emit("cache.hit_ratio", median([one / other for one, other in zip(known, plain)]), "x",
         [one / other for one, other in zip(known, plain)],
         requests_per_s_without=round(median(plain), 1), model=model)


def main() -> None:
    options = read_options("bench.cache", (3, 2), (5, 8))
    some = list(dict.fromkeys(read_texts(options.texts)))[:200 if options.is_short else 500]
    measure_latency(options.flags, some, options.rounds, options.name)
    measure_rate(options.flags, options.texts, options.rounds, options.seconds, options.name)


if __name__ == "__main__":
    main()
