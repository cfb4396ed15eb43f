"""`python -m tests.chaos.proxies`: three servers behind HAProxy and nginx with the examples of
tools/deploy, under verifying clients.

    python -m tests.chaos.proxies [--clients 16]

One server is killed, one told to end, all are rolled (a successor on the same port, then TERM), and
all get a new model. Through HAProxy no request may fail; of nginx the count is told. A proxy that
is not installed is left out.
"""

import argparse
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.__main__ import WORDS
from tests.chaos.acts import Claims
from tests.chaos.reloads import make_models, point
from tests.chaos.versions import VersionedCrowd, VersionedExpected
from tests.house import ROOT, House, send_signal, wait_until

FLAGS = ("--fronts", "2", "--engines", "1", "--max-wait-ms", "60000")
DEPLOY = ROOT / "tools" / "deploy"
# Config, the ports that stand in it: its own, then those of the servers.
PROXIES = {"haproxy": ("haproxy.cfg", 8080), "nginx": ("nginx.conf", 8081)}
SERVER_PORTS = (8001, 8002, 8003)
# Longer than a proxy needs to see that a server is back.
BREATH_S = 2.0


class Proxy:
    """One proxy with its example, its ports replaced."""

    def __init__(self, name: str, folder: Path, servers: list[House]) -> None:
        example, port = PROXIES[name]
        self.port = _free_port()
        text = (DEPLOY / example).read_text()
        for old, new in zip((port, *SERVER_PORTS), (self.port, *(one.port for one in servers))):
            text, count = re.subn(rf"127\.0\.0\.1:{old}\b", f"127.0.0.1:{new}", text)
            assert count == 1, f"{example} names 127.0.0.1:{old} {count} times"
        path = folder / example
        path.write_text(text.replace("/tmp/nginx-firebrick", f"{folder}/nginx"))
        command = ["haproxy", "-db", "-f", str(path)] if name == "haproxy" else \
            ["nginx", "-c", str(path), "-e", "stderr", "-g", "daemon off;"]
        self.log = open(folder / f"{name}.log", "wb")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        wait_until(f"{name} listens", self._listens, 20)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()
        self.log.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Fleet:
    """Three servers, each on a port of its own for good."""

    def __init__(self, model: Path) -> None:
        self.model = model
        self.servers = [self._start(0) for _ in SERVER_PORTS]

    def _start(self, port: int, *arguments: str) -> House:
        return House(["--model", str(self.model), "--lame-duck-s", "2", *FLAGS, *arguments],
                     port=port)

    def kill_one(self) -> None:
        dead = self.servers[0]
        send_signal(dead.pid, signal.SIGKILL)
        time.sleep(BREATH_S)
        dead.close()
        self.servers[0] = self._start(dead.port)

    def drain_one(self) -> None:
        old = self.servers[1]
        self._end(old)
        time.sleep(BREATH_S)
        self.servers[1] = self._start(old.port)

    def roll_all(self) -> None:
        for number, old in enumerate(self.servers):
            self.servers[number] = self._start(old.port, "--share-port")
            self._end(old)

    def change_model(self) -> None:
        for server in self.servers:
            server.process.send_signal(signal.SIGHUP)
        for server in self.servers:
            wait_until("the new model", lambda: any(
                b" event=reload " in line and b"ok=True" in line for line in server.log), 120)

    @staticmethod
    def _end(server: House) -> None:
        send_signal(server.pid, signal.SIGTERM)
        code = server.process.wait(60)
        server.close()
        assert code == 0, f"a drained server ended with {code}"

    def close(self) -> None:
        for server in self.servers:
            server.close()


def play(claims: Claims, folder: Path, clients: int) -> None:
    models = make_models(folder)[:2]
    current = folder / "current"
    expected = VersionedExpected(models, WORDS, FLAGS)
    point(current, models[0])
    names = [name for name in PROXIES if shutil.which(name)]
    claims.hold("proxies at hand", "haproxy" in names, names)
    fleet = Fleet(current)
    proxies: dict[str, Proxy] = {}
    try:
        for name in names:
            proxies[name] = Proxy(name, folder, fleet.servers)
        # HAProxy holds servers for down until it has looked at them.
        time.sleep(BREATH_S)
        for act, do in (("one killed", fleet.kill_one), ("one drained", fleet.drain_one),
                        ("all rolled", fleet.roll_all), ("model changed", fleet.change_model)):
            if act == "model changed":
                point(current, models[1])
            crowds = {name: VersionedCrowd(proxy.port, expected, clients, 1, is_direct=False)
                      for name, proxy in proxies.items()}
            time.sleep(BREATH_S)
            do()
            time.sleep(BREATH_S)
            for crowd in crowds.values():
                crowd.stop()
            for name, crowd in crowds.items():
                claims.hold(f"{name}, {act}: failed or wrong",
                            name != "haproxy" or not (crowd.failed or crowd.wrong),
                            f"{len(crowd.failed)} failed {crowd.failed[:2]}, {len(crowd.wrong)} "
                            f"wrong of {crowd.answered}, slowest {crowd.slowest_s:.2f} s, "
                            f"{len(crowd.seen)} versions")
    finally:
        for proxy in proxies.values():
            proxy.close()
        fleet.close()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.proxies", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=16, help="of each proxy (default 16)")
    options = parser.parse_args(argv)
    claims = Claims()
    with tempfile.TemporaryDirectory(prefix="firebrick-proxies-") as scratch:
        Path(scratch).chmod(0o755)
        play(claims, Path(scratch), options.clients)
    return claims.summary()


if __name__ == "__main__":
    sys.exit(main())
