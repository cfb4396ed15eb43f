"""What the house costs without a model: one front, one dispatcher, one engine that echoes.

    python -m bench.front [--short] [--model DIR] [--hostile DIR]

Everything is measured against a yardstick in the same run, interleaved, and the ratio of each round
counts; the value is the median of rounds. One JSON line a figure:

front.ratio_64        requests/s at 64 connections, as a share of the bare loop's
front.relay_ratio_1   p50 at one connection, as a multiple of the bare relay's over the same hops
front.p50_1_us        that p50, and what it is made of
front.dispatcher_core the dispatcher's share of a core at 64 connections
front.decode_*_us     reading one request's body: JSON, many texts in JSON, records
front.turn_max_ms     the longest turn of a front's loop, after the load and after hostile input
front.healthz_p99_ms  /healthz while every engine is saturated with --model
"""

import argparse
import json
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.client import Driver, drive, post, read_texts, sample
from bench.figures import ROOT, emit, median, percentile
from bench.running import Program, Server
from loader.wire import read_records, write_record
from server.body import read_json

ECHO = ROOT / "tests" / "fixtures" / "echo"
RAW = ROOT / "tests" / "raw"
TEXTS = ROOT / "data" / "sms-spam" / "eval.tsv"
ONE_TEXT = "Win a free phone now"
BUSY_CONNECTIONS = 64
ENGINE_CONNECTIONS = 32
DECODE_TEXTS = 64
HOSTILE_ANSWER_S = 0.5
HEALTHZ = b"GET /healthz HTTP/1.1\r\nHost: bench\r\n\r\n"


def measure_ratios(server: Server, texts: Path, rounds: int, seconds: float) -> None:
    """Capacity against the bare loop, and the dispatcher's share of a core meanwhile."""
    ours, bare_rates, ratios, shares = [], [], [], []
    with Program("bench.bare") as bare:
        drive(server.url, texts, BUSY_CONNECTIONS, 1)
        for _ in range(rounds):
            yardstick = drive(bare.url, texts, BUSY_CONNECTIONS, seconds)
            spent, begun = server.cpu_seconds("dispatcher"), time.perf_counter()
            load = drive(server.url, texts, BUSY_CONNECTIONS, seconds)
            shares.append((server.cpu_seconds("dispatcher") - spent)
                          / (time.perf_counter() - begun))
            ours.append(load.requests_per_s)
            bare_rates.append(yardstick.requests_per_s)
            ratios.append(load.requests_per_s / yardstick.requests_per_s)
    emit("front.ratio_64", median(ratios), "x", ratios, client=load.client,
         requests_per_s=round(median(ours)), bare_requests_per_s=round(median(bare_rates)),
         last_p99_ms=load.p99_ms, others=load.others, socket_errors=load.socket_errors)
    emit("front.dispatcher_core", median(shares), "cores", shares,
         requests_per_s=round(median(ours)))


def measure_one_connection(server: Server, texts: Path, rounds: int, seconds: float) -> None:
    """The p50 against the relay's, and the parts of ours."""
    ours, relayed, ratios = [], [], []
    with Program("bench.relay") as relay:
        for _ in range(rounds):
            yardstick = drive(relay.url, texts, 1, seconds)
            load = drive(server.url, texts, 1, seconds)
            ours.append(load.p50_ms * 1000)
            relayed.append(yardstick.p50_ms * 1000)
            ratios.append(load.p50_ms / yardstick.p50_ms)
    emit("front.relay_ratio_1", median(ratios), "x", ratios, client=load.client,
         relay_p50_us=median(relayed))
    answers = [one for one in sample(server.host, server.port, post(ONE_TEXT), 2000)
               if one.status == 200]
    parts: dict[str, list[float]] = {"round_trip": [], "server": []}
    for answer in answers:
        parts["round_trip"].append(answer.took_s * 1e6)
        parts["server"].append(float(answer.headers["x-latency-ms"]) * 1000)
        for part in answer.headers.get("server-timing", "").split(","):
            name, _, value = part.strip().partition(";dur=")
            if value:
                parts.setdefault(name, []).append(float(value) * 1000)
    emit("front.p50_1_us", median(ours), "us", ours, client=load.client,
         sampled_p50_us={name: round(median(values), 1) for name, values in parts.items()})


def time_call(call: Callable[[], object], seconds: float = 0.3) -> float:
    """Microseconds a call: the best of some short rounds, as others only ever add."""
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        begun = time.perf_counter()
        for _ in range(50):
            call()
        best = min(best, (time.perf_counter() - begun) / 50)
    return best * 1e6


def measure_decode(texts: Path) -> None:
    """Microseconds for the same texts as JSON and as records, alone and 64 in one body."""
    chosen = (read_texts(texts) * DECODE_TEXTS)[:DECODE_TEXTS]
    sizes = {"alone": [ONE_TEXT], f"of_{DECODE_TEXTS}": chosen}
    for name, some in sizes.items():
        many = {"texts": some} if len(some) > 1 else {"text": some[0]}
        body = json.dumps(many, ensure_ascii=False).encode()
        records = b"".join(write_record(text.encode(), None, 7) for text in some)
        by_json = time_call(lambda body=body: read_json(body, DECODE_TEXTS))
        by_records = time_call(lambda records=records: read_records(records))
        emit(f"front.decode_{name}_us", by_json, "us of JSON", records_us=round(by_records, 2),
             texts=len(some), json_bytes=len(body))


def hostile_bodies(folder: Path) -> Iterator[tuple[str, bytes]]:
    """(name, bytes of a connection): slow bodies of our own, then the files of `folder`."""
    def request(body: bytes) -> bytes:
        return (b"POST /infer HTTP/1.1\r\nHost: bench\r\nContent-Length: %d\r\n"
                b"Content-Type: application/json\r\n\r\n" % len(body)) + body
    size = 4 << 20
    yield "brackets", request(b"[]" * (size // 2))
    yield "nested", request(b"[" * size)
    yield "texts-of-brackets", request(b'{"texts": [' + b"[]," * (size // 3 - 8) + b"[]]}")
    yield "long-word", request(b'{"text": "' + b"a" * (size - 64) + b'"}')
    yield "long-text", request(b'{"text": "' + b"ab " * (size // 3 - 64) + b'"}')
    yield "accents", request(b'{"text": "' + "e\u0301\u4e2d".encode() * (size // 6 - 64) + b'"}')
    yield "escapes", request(b'{"text": "' + b"\\u0301" * (size // 6 - 64) + b'"}')
    yield "keys", request(b"{" + b",".join(b'"k%d": 1' % at for at in range(size // 16)) + b"}")
    for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
        if path.is_file() and path.suffix in (".http", ".raw", ".bin"):
            yield path.name, path.read_bytes()


def send_hostile(server: Server, data: bytes) -> None:
    """Sends what the server takes of it, and reads until it is silent."""
    with socket.create_connection((server.host, server.port), timeout=10) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(HOSTILE_ANSWER_S)
            while connection.recv(1 << 16):
                continue
        except OSError:  # refused half-way, or silent: both are the server's right
            return


def measure_turns(server: Server, hostile: Path) -> None:
    """The longest turn so far, then the longest after input made to be slow to read."""
    emit("front.turn_max_ms", max(server.metric("firebrick_front_turn_seconds_max")) * 1000, "ms",
         after="the load above")
    longest, culprit, count = 0.0, "", 0
    for name, data in hostile_bodies(hostile):
        send_hostile(server, data)
        count += 1
        turn = max(server.metric("firebrick_front_turn_seconds_max"))
        if turn > longest:
            longest, culprit = turn, name
    emit("front.turn_max_ms", longest * 1000, "ms", after=f"{count} hostile inputs",
         longest=culprit)


def measure_healthz(model: str, texts: Path, seconds: float) -> None:
    """/healthz on one connection, every 2 ms, while 32 others keep every engine busy."""
    with Server(["--model", model]) as server:
        load = Driver(server.url, texts, ENGINE_CONNECTIONS, seconds + 1)
        time.sleep(0.5)
        took: list[float] = []
        while load.is_running():
            took += [answer.took_s * 1000 for answer
                     in sample(server.host, server.port, HEALTHZ, 50, pause_s=0.002)]
        done = load.finish()
        emit("front.healthz_p99_ms", percentile(took, 99), "ms", p50_ms=round(median(took), 3),
             max_ms=round(max(took), 3), samples=len(took), model=Path(model).name,
             requests_per_s=round(done.requests_per_s, 1), others=done.others)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.front")
    parser.add_argument("--short", action="store_true", help="3 rounds of 2 s, else 5 of 5 s")
    parser.add_argument("--model", help="checkpoint for /healthz under load (default: as shipped)")
    parser.add_argument("--texts", type=Path, default=TEXTS, help="one text a line, last column")
    parser.add_argument("--hostile", type=Path, default=RAW, help="folder of raw requests")
    options = parser.parse_args()
    rounds, seconds = (3, 2) if options.short else (5, 5)
    if not (ECHO / "config.json").is_file():
        parser.exit(2, f"no echo model in {ECHO}: run from a clone\n")
    if not options.texts.is_file():
        parser.exit(2, f"no texts in {options.texts}: name a file with --texts\n")
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as one:
        one.write(ONE_TEXT + "\n")
        one.flush()
        with Server(["--model", str(ECHO), "--fronts", "1", "--engines", "1"]) as server:
            measure_ratios(server, Path(one.name), rounds, seconds)
            measure_one_connection(server, Path(one.name), rounds, seconds)
            measure_turns(server, options.hostile)
    measure_decode(options.texts)
    model = options.model or str(ROOT / "models" / "sms-spam")
    if (Path(model) / "config.json").is_file():
        measure_healthz(model, options.texts, seconds * 2)


if __name__ == "__main__":
    main()
