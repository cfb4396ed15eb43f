"""How long high requests wait for a GPU that low ones keep busy, on a recorded device.

    python -m tests.gpu_priority MODEL [--us 40] [--tokens 256] [--requests 200]

starts a server on MODEL with `--device recorder`, whose launches take --us microseconds a padded
token, and asks one high request after another: of an idle server, then under low requests that
never end (wrk, 64 connections, closed loop); then the same requests as low ones, which is what they
would see without priorities. A recorded device computes one launch at a time and to its end, so it
shows the bound, what all software between a client and the device adds to it, and whether low
batches still keep the device busy; it does not show how a real one cuts in between blocks of a
launch. The exit code is 1 where a high request that met load was slower by more than two low
batches: the one that runs, and as much again for this machine's own delays.
"""

import argparse
import json
import sys
import tempfile
import time
from http.client import HTTPConnection
from pathlib import Path

from bench.figures import emit, percentile
from model.device.script import write
from tests.gpu_faults import PLENTY, Server, Wrk
from tests.house import wait_until

TEXT = "Where is Paris?"
# Until low requests fill their lane.
SETTLE_S = 2.0
WARM_REQUESTS = 20


def ask_in_turn(port: int, priority: str, requests: int) -> list[float]:
    """Milliseconds of each request, on one connection, one after another."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    took_ms = []
    for _ in range(requests):
        begun = time.perf_counter()
        connection.request("POST", "/infer", json.dumps({"text": TEXT}), {"X-Priority": priority})
        response = connection.getresponse()
        response.read()
        took_ms.append((time.perf_counter() - begun) * 1e3)
        if response.status != 200 or not response.getheader("X-Engine", "").startswith("gpu"):
            raise AssertionError(f"{response.status} by {response.getheader('X-Engine')}")
    connection.close()
    return took_ms


class Work:
    """What the GPU has done between two looks at the metrics."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._before = self._read()

    def _read(self) -> list[float]:
        found = self._server.counters()
        names = ("sum", "count")
        return [time.monotonic(), *(found["firebrick_infer_seconds_" + name, 'engine_kind="gpu"']
                                    for name in names)]

    def since(self) -> tuple[float, float]:
        """(share of the time that batches took on the device, ms of a mean batch)."""
        seconds, busy_s, batches = (now - before
                                    for now, before in zip(self._read(), self._before))
        return busy_s / seconds, 1e3 * busy_s / max(batches, 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--us", type=float, default=40.0)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--requests", type=int, default=200)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Server(
            arguments.model, str(Path(folder) / "faults"), tokens=arguments.tokens) as server:
        server.wait_for_gpu()
        write(server.faults, PLENTY + f"speed {arguments.us}\n")
        ask_in_turn(server.port, "high", WARM_REQUESTS)
        found = {"high, alone": ask_in_turn(server.port, "high", arguments.requests)}
        wrk = Wrk(server.port)
        before = server.batches("gpu")
        wait_until("low requests fill the GPU", lambda: server.batches("gpu") > before + 20)
        time.sleep(SETTLE_S)
        work = Work(server)
        time.sleep(SETTLE_S)
        busy, batch_ms = work.since()
        found["high, under load"] = ask_in_turn(server.port, "high", arguments.requests)
        found["low, under load"] = ask_in_turn(server.port, "low", arguments.requests // 2)
        rate, errors = wrk.end()
    for name, took_ms in found.items():
        for percent in (50, 99):
            emit(f"GPU priority: {name}: p{percent}", percentile(took_ms, percent), "ms",
                 requests=len(took_ms), speed_us=arguments.us)
    emit("GPU priority: low requests meanwhile", rate, "1/s", errors=errors)
    emit("GPU priority: mean low batch on the device", batch_ms, "ms")
    emit("GPU priority: device busy with low batches alone", busy, "share")
    slower = percentile(found["high, under load"], 99) - percentile(found["high, alone"], 99)
    return 1 if errors or slower > 2 * batch_ms else 0


if __name__ == "__main__":
    sys.exit(main())
