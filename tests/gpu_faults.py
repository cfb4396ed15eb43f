"""Everything that a GPU can do to a server under load, on a recorded device, in one run.

    python -m tests.gpu_faults MODEL [FAULT ...]

starts a server on MODEL with `--device recorder`, loads it with wrk (64 connections, closed loop)
and with one client that knows every right answer, and plays each fault: who answers, how soon a CPU
engine does, and whether the GPU comes back. Then an open loop at the rate that the GPU reached. It
ends with a table and exit code 1 where anything was lost, wrong, or never came back.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

from model.device.script import write
from tests.house import ROOT, House, send_signal, wait_until

CONNECTIONS = 64
PLENTY, NOTHING = "memory 65536 60000\n", "memory 65536 100\n"
FLAGS = ("--device", "recorder", "--gpu-tokens", "64", "--gpu-hold-s", "1", "--gpu-back-off-s",
         "1", "--gpu-longest-back-off-s", "1", "--gpu-watch-ms", "100", "--max-wait-ms", "10000")
TEXTS = ("Where is Paris?", "Who wrote Hamlet?", "How many people live in Chile and in Peru?",
         "What does NASA stand for?", "When did the war of the roses end , and who had won it ?")
# In logits, fp32 on both sides: other kernels add in another order.
TOLERANCE = 1e-4
PATIENCE_S = 600.0
OPEN_LOOP_S = 10.0
OPEN_CLIENTS = 48


@dataclass
class Played:
    """What one fault did. Times in seconds; None where it did not happen."""

    name: str
    reason: str
    cpu_after_s: float | None
    back_after_s: float


class Server(House):
    """A server whose recorded device is scripted by `faults`, which begins as `script`."""

    script = PLENTY

    def __init__(self, model: str, faults: str, *flags: str) -> None:
        self.faults = faults
        write(faults, self.script)
        super().__init__(["--model", model, "--faults", faults, *FLAGS, *flags])

    def device(self) -> dict:
        """What /info says of the one device; empty before it is known."""
        return (self.info()["devices"] or [{}])[0]

    def entered(self, state: str, reason: str) -> float:
        """How often the device entered a state for a reason."""
        return self.counters().get(
            ("firebrick_device_transitions_total",
             f'device="gpu-0",state="{state}",reason="{reason}"'), 0.0)

    def batches(self, kind: str) -> float:
        """How many batches the engines of a kind have answered."""
        return self.counters().get(
            ("firebrick_infer_seconds_count", f'engine_kind="{kind}"'), 0.0)

    def wait_for_gpu(self) -> None:
        """Until the GPU has answered once more."""
        wait_until("the GPU serves", lambda: self.device().get("state") == "ok", PATIENCE_S)
        before = self.batches("gpu")
        wait_until("the GPU answers", lambda: self.ask_and_see("gpu", before), PATIENCE_S)

    def ask_and_see(self, kind: str, before: float) -> bool:
        """Asks one text, so that somebody answers even where there is no load."""
        ask(self.port, TEXTS[0])
        return self.batches(kind) > before


def ask(port: int, text: str) -> tuple[int, dict, str]:
    """(status, answer, X-Engine) of one text on a connection of its own."""
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request("POST", "/infer", json.dumps({"text": text, "logits": True}))
        response = connection.getresponse()
        return response.status, json.loads(response.read()), response.getheader("X-Engine") or ""
    finally:
        connection.close()


class Checker(threading.Thread):
    """Asks the same texts over and over; every answer must be the CPU's."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.port = port
        self.engines: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._stop_now = threading.Event()
        self.right = []
        for text in TEXTS:
            status, answer, engine = ask(port, text)
            if status != 200 or not engine.startswith("cpu"):
                raise AssertionError(f"{text!r} is answered {status} by {engine} before the GPU is")
            self.right.append(answer)

    def run(self) -> None:
        number = 0
        while not self._stop_now.is_set():
            place = number % len(TEXTS)
            number += 1
            status, answer, engine = ask(self.port, TEXTS[place])
            self.engines[engine.partition("-")[0]] += 1
            if status != 200 or not is_same(answer, self.right[place]):
                self.wrong.append(f"{status} by {engine}: {answer}")

    def end(self) -> None:
        self._stop_now.set()
        self.join()


def is_same(answer: dict, right: dict) -> bool:
    return answer.get("label") == right["label"] and all(
        abs(found - wanted) <= TOLERANCE
        for found, wanted in zip(answer["logits"], right["logits"], strict=True))


# ---- faults -----------------------------------------------------------------------------------

def _script(text: str) -> Callable[[Server], None]:
    return lambda server: write(server.faults, PLENTY + text)


def _starve(server: Server) -> None:
    write(server.faults, NOTHING)


def _kill_engine(server: Server) -> None:
    for pid in server.pids("gpu_engine"):
        send_signal(pid, 9)


def _break_capture(server: Server) -> None:
    """The next engine's third capture fails; so that there is a next one, this one is killed."""
    write(server.faults, PLENTY + "once capture memory 3\n")
    _kill_engine(server)


# name: (what is done, the state and reason that it leads to)
FAULTS: dict[str, tuple[Callable[[Server], None], str, str]] = {
    "pressure": (_starve, "critical", "pressure"),
    "oom": (_script("once replay memory\nonce replay memory\n"), "critical", "allocation"),
    "capture": (_break_capture, "recovering", "capture"),
    "sticky": (_script("once replay error\n"), "recovering", "cuda_error"),
    "hang": (_script("once replay hang\n"), "recovering", "hang"),
    "kill": (_kill_engine, "recovering", "killed"),
    "exit": (_script("once replay exit\n"), "recovering", "died"),
}
RUN = ("pressure",) * 5 + ("oom", "capture", "sticky", "hang", "kill", "exit", "watch")


def play(server: Server, name: str) -> Played:
    """Does one fault and waits until the GPU answers again."""
    if name == "watch":
        return play_dead_watch(server)
    act, state, reason = FAULTS[name]
    entered, answered = server.entered(state, reason), server.batches("cpu")
    act(server)
    wait_until(f"{state} for {reason}", lambda: server.entered(state, reason) > entered,
               PATIENCE_S)
    fell_at = time.monotonic()
    wait_until("a CPU engine answers", lambda: server.batches("cpu") > answered, PATIENCE_S)
    cpu_after_s = time.monotonic() - fell_at        # as seen from outside: a little late
    write(server.faults, PLENTY)
    server.wait_for_gpu()
    return Played(name, reason, cpu_after_s, time.monotonic() - fell_at)


def play_dead_watch(server: Server) -> Played:
    """A killed watch changes nothing but who reads."""
    (before,) = server.pids("gpu_watch")
    send_signal(before, 9)
    killed_at = time.monotonic()
    wait_until("another watch", lambda: server.pids("gpu_watch") not in ([], [before]), PATIENCE_S)
    if server.device()["state"] != "ok":
        raise AssertionError("the GPU lost its state with its watch")
    server.wait_for_gpu()
    return Played("watch", "-", None, time.monotonic() - killed_at)


# ---- load -------------------------------------------------------------------------------------

class Wrk:
    """wrk in a closed loop until it is ended."""

    def __init__(self, port: int) -> None:
        self.process = subprocess.Popen(
            ["wrk", "-t1", f"-c{CONNECTIONS}", "-d3600", "--timeout", "60s", "-s",
             "bench/post.lua", f"http://127.0.0.1:{port}"],
            cwd=ROOT, stdout=subprocess.PIPE, text=True)

    def end(self) -> tuple[float, list[str]]:
        """(requests a second, what it says of errors)."""
        self.process.send_signal(2)
        said, _ = self.process.communicate(timeout=PATIENCE_S)
        rate = re.search(r"Requests/sec:\s+([\d.]+)", said)
        errors = [line.strip() for line in said.splitlines()
                  if "Non-2xx" in line or "Socket errors" in line]
        return float(rate.group(1)) if rate else 0.0, errors


def open_loop(server: Server, rate: float, seconds: float) -> Counter:
    """Statuses of requests that come at a rate whatever becomes of them; a fall in the middle."""
    statuses: Counter = Counter()
    lock, begun = threading.Lock(), time.monotonic()
    turns = iter(range(int(rate * seconds)))

    def client() -> None:
        while True:
            with lock:
                turn = next(turns, None)
            if turn is None:
                return
            time.sleep(max(begun + turn / rate - time.monotonic(), 0.0))
            try:
                status = ask(server.port, TEXTS[turn % len(TEXTS)])[0]
            except OSError as error:
                status = type(error).__name__
            with lock:
                statuses[status] += 1

    threads = [threading.Thread(target=client) for _ in range(OPEN_CLIENTS)]
    for thread in threads:
        thread.start()
    time.sleep(seconds / 3)
    _kill_engine(server)
    for thread in threads:
        thread.join()
    return statuses


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("faults", nargs="*", default=list(RUN))
    arguments = parser.parse_args()
    if shutil.which("wrk") is None:
        print("wrk is not installed: there is no load to play faults under", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder, \
            Server(arguments.model, str(Path(folder) / "faults")) as server:
        checker = Checker(server.port)
        server.wait_for_gpu()
        wrk = Wrk(server.port)
        checker.start()
        played = []
        for name in arguments.faults:
            played.append(play(server, name))
            print(played[-1], flush=True)
        rate, errors = wrk.end()
        checker.end()
        statuses = open_loop(server, max(rate, 1.0), OPEN_LOOP_S)
        server.wait_for_gpu()
        shown = sorted(f"{name}{{{labels}}} {value:g}"
                       for (name, labels), value in server.counters().items()
                       if ("device_" in name or "graph_" in name) and value)
    print(f"closed loop: {rate:.0f} requests/s, errors: {errors or 'none'}")
    print(f"checked answers: {dict(checker.engines)}, wrong: {checker.wrong[:3] or 'none'}")
    print(f"open loop at that rate: {dict(statuses)}")
    print("\n".join(shown))
    lost = [status for status in statuses if status not in (200, 429, 503, 504)]
    return 1 if errors or checker.wrong or lost else 0


if __name__ == "__main__":
    sys.exit(main())
