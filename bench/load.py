"""Open-loop load: requests at a chosen rate, whether or not the server keeps up.

    python -m bench.load http://127.0.0.1:8000 --rps 500 --duration 30 --high-priority-ratio 0.15 \\
        --traffic-profile bench/traffic.json

The report's latencies count from the planned send times, so a stall is in every request that was
planned meanwhile; it says when the client itself was the limit. Progress goes to stderr.
"""

import argparse
import json
import random
import resource
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from bench.client import read_texts
from bench.figures import ROOT
from bench.load_client import Client, Planned
from bench.load_plan import assemble, plan, read_bands
from bench.load_report import Run, as_json, as_prometheus, as_table

DEFAULT_TEXTS = ROOT / "data" / "sms-spam" / "eval.tsv"
POOL = 1000  # texts made for the bands of a profile
SEED = 7919
OWN_FILES = 64  # descriptors that are no connections
REPORTS = {"table": as_table, "json": as_json, "prometheus": as_prometheus}


def make_request(place: str, path: str, text: str, high: bool, deadline_ms: int | None) -> bytes:
    """A whole request that classifies `text`; `place` is host:port."""
    body = json.dumps({"text": text}).encode()
    head = [f"POST {path} HTTP/1.1", f"Host: {place}", "Content-Type: application/json",
            f"Content-Length: {len(body)}"]
    if high:
        head.append("X-Priority: high")
    if deadline_ms is not None:
        head.append(f"X-Deadline-ms: {deadline_ms}")
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def traffic(path: Path | None, chance: random.Random) -> list[str]:
    """The texts of a traffic profile, whose own names are relative to it; ValueError and OSError
    where it cannot be read."""
    if path is None:
        return read_texts(DEFAULT_TEXTS)
    name, bands = read_bands(json.loads(path.read_text("utf-8")))
    source = path.parent / name if name else DEFAULT_TEXTS
    found = read_texts(source)
    if not found:
        raise ValueError(f"no texts in {source}")
    return assemble(found, bands, POOL, chance)


def _number(least: float, most: float) -> Callable[[str], float]:
    def read(text: str) -> float:
        value = float(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text} is not between {least:g} and {most:g}")
        return value
    return read


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number above 0")
    return int(text)


def read_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """The flags; ends with 2 and one sentence where one is wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench.load", allow_abbrev=False,
                                     description="Open-loop load on POST /infer.")
    parser.add_argument("url", nargs="?", default="http://127.0.0.1:8000")
    parser.add_argument("--rps", type=_number(1e-3, 1e6), default=100.0,
                        help="planned requests a second, Poisson (100)")
    parser.add_argument("--duration", type=_number(1e-3, 1e6), default=10.0, help="seconds (10)")
    parser.add_argument("--high-priority-ratio", type=_number(0, 1), default=0.0,
                        help="share of requests sent with X-Priority: high (0)")
    parser.add_argument("--traffic-profile", type=Path, metavar="FILE",
                        help='JSON: {"texts": FILE, "bands": [{"share": 0.8, "bytes": [1, 320]}]}')
    parser.add_argument("--deadline-ms", type=_whole,
                        help="sent as X-Deadline-ms; a later answer is no goodput")
    parser.add_argument("--obey-retry-after", action="store_true",
                        help="send what was refused again, when Retry-After says so")
    parser.add_argument("--connections", type=_whole, default=4096,
                        help="open at most, as far as the limit on open files allows (4096)")
    parser.add_argument("--report", choices=REPORTS, default="table")
    options = parser.parse_args(arguments)
    place = urlsplit(options.url)
    if place.scheme != "http" or not place.hostname:
        parser.error(f"{options.url} is not of the form http://host:port")
    return options


def allowed_connections(asked: int) -> int:
    """How many of `asked` connections the limit on open files allows, once raised as far as may
    be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < asked + OWN_FILES:
        soft = min(asked + OWN_FILES, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(1, min(asked, soft - OWN_FILES))


def main(arguments: Sequence[str]) -> int:
    options = read_arguments(arguments)
    place = urlsplit(options.url)
    chance = random.Random(SEED)
    try:
        texts = traffic(options.traffic_profile, chance)
    except (OSError, ValueError) as error:
        print(f"the traffic profile cannot be used: {error}", file=sys.stderr)
        return 2
    arrivals = plan(options.rps, options.duration, options.high_priority_ratio, len(texts), chance)
    planned = [Planned(one.at_s, make_request(place.netloc, place.path.rstrip("/") or "/infer",
                                              texts[one.text], one.high, options.deadline_ms),
                       one.high) for one in arrivals]
    client = Client(place.hostname, place.port or 80,
                    allowed_connections(options.connections), options.obey_retry_after,
                    progress=lambda line: print(line, file=sys.stderr, flush=True))
    outcomes = client.run(planned, options.duration)
    run = Run(outcomes, options.rps, options.duration, client.cpu_share, client.starved,
              client.opened, options.deadline_ms, client.took_s)
    sys.stdout.write(REPORTS[options.report](run))
    return 0 if any(one.status for one in outcomes) or not outcomes else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
