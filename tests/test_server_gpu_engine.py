"""Whole servers: one whose GPU is played by the recorder, and some whose driver is a stub."""

import os
import subprocess
import sys
import threading
import time

import pytest

from model.device.script import write
from tests.gpu_faults import PLENTY, TEXTS, Checker, Server, ask, is_same, play
from tests.house import ROOT, House, wait_until
from tests.nvml_stand_in import build_library

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

GIB = 1 << 30
ONE = f"gpu GPU-a {80 * GIB} {60 * GIB}\n"
PARKED_S, PARKED_SHARE = 4.0, 0.01
LOW_REQUESTS = 64


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server on the shipped model with a played GPU that serves, under one client's load."""
    path = str(tmp_path_factory.mktemp("gpu") / "faults")
    with Server("models/sms-spam", path) as up:
        checker = up.checker = Checker(up.port)
        up.wait_for_gpu()
        checker.start()
        yield up
        checker.end()


def _gpu_answers(server) -> None:
    for text, right in zip(TEXTS, server.checker.right):
        status, answer, engine = ask(server.port, text)
        assert (status, engine) == (200, "gpu-0") and is_same(answer, right)


def test_gpu_engine_answers_as_cpu_engines_do_and_says_so(server):
    _gpu_answers(server)
    device = server.device()
    assert (device["state"], device["engine"], device["precision"]) == ("ok", "gpu-0", "fp32")
    assert device["graphs"] == device["shapes"] > 0
    counted = server.counters()
    assert counted["firebrick_graph_replays_total", 'device="gpu-0"'] > 0
    assert counted["firebrick_device_state", 'device="gpu-0",state="ok"'] == 1
    assert counted["firebrick_device_memory_bytes", 'device="gpu-0",kind="engine"'] > 0
    assert counted["firebrick_engine_up", 'engine="gpu-0"'] == 1


def test_gpu_engine_leaves_cpu_engines_parked(server):
    pids = server.pids("engine")
    before, begun = [_cpu_s(pid) for pid in pids], time.monotonic()
    while time.monotonic() - begun < PARKED_S:
        _gpu_answers(server)
    took_s = time.monotonic() - begun
    for pid, was in zip(pids, before):
        # A tick of the kernel's clock is 2.5 thousandths of that time: it may fall either way.
        assert _cpu_s(pid) - was <= PARKED_SHARE * took_s + 0.01


def _cpu_s(pid: int) -> float:
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_gpu_engine_answers_a_high_request_before_low_ones_that_came_earlier(server):
    write(server.faults, PLENTY + "speed 2000\n")       # 32 ms for the shortest text
    open_ones = set(range(LOW_REQUESTS))

    def ask_low(number: int) -> None:
        assert ask(server.port, TEXTS[number % len(TEXTS)])[0] == 200
        open_ones.discard(number)

    threads = [threading.Thread(target=ask_low, args=(number,)) for number in range(LOW_REQUESTS)]
    for thread in threads:
        thread.start()
    inflight = ("firebrick_inflight", "")
    wait_until("they are taken", lambda: server.counters()[inflight] >= LOW_REQUESTS / 2)
    status, _, engine = ask(server.port, TEXTS[0], "high")
    left = len(open_ones)
    for thread in threads:
        thread.join()
    write(server.faults, PLENTY)
    assert (status, engine) == (200, "gpu-0") and not open_ones
    assert left >= LOW_REQUESTS / 4


@pytest.mark.parametrize("fault", ["pressure", "sticky", "capture", "hang", "kill", "watch"])
def test_gpu_engine_fault_is_answered_by_cpu_engines_until_it_is_back(server, fault):
    play(server, fault)
    _gpu_answers(server)
    assert server.checker.wrong == []


@pytest.fixture
def stub(tmp_path, monkeypatch):
    """Writes the script of a driver that every child finds; skips without a compiler."""
    library = build_library(tmp_path)
    if library is None:
        pytest.skip("no C compiler: there is no driver to be found")
    script = tmp_path / "script"
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setenv("NVML_SCRIPT", str(script))
    return script.write_text


def _answers(house: House) -> None:
    status, _, engine = ask(house.port, TEXTS[0])
    assert status == 200 and engine.startswith("cpu")


def test_gpu_that_this_torch_cannot_use_is_lost_and_cpu_engines_serve(stub):
    torch = pytest.importorskip("torch")
    if torch.version.cuda is not None:
        pytest.skip("this torch could use a GPU")
    stub(ONE)
    with House(["--device", "cuda"]) as house:
        wait_until("it is found unusable", lambda: [
            device["reason"] for device in house.info()["devices"]] == ["unusable"], 180)
        _answers(house)
        wait_until("it is said once, with its start and its end", lambda: b"".join(
            house.log).count(b"role=gpu_engine") == 2)
        assert b"".join(house.log).count(b"built without CUDA") == 1


def test_gpu_whose_driver_blocks_blocks_nobody(stub):
    stub(ONE + "sleep nvmlDeviceGetMemoryInfo_v2 600000\n")
    with House(["--device", "cuda"]) as house:
        def restarts():
            _answers(house)
            return house.counters().get(("firebrick_restarts_total",
                                         'role="gpu_watch",cause="signal"'))
        wait_until("the watch is replaced", restarts, 120)
        assert [row["state"] for row in house.info()["devices"]] == ["recovering"]


@pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="this machine has a driver")
def test_gpu_none_at_all_is_one_line_of_the_log():
    with House(["--device", "auto"]) as house:
        wait_until("it says so", lambda: any(b"event=no_gpu" in line for line in house.log))
        _answers(house)
        assert house.info()["devices"] == []
        wait_until("the watch is gone", lambda: not house.pids("gpu_watch"))
        assert [line.split(b" ")[1] for line in house.log if b"gpu_watch" in line
                or b"no_gpu" in line] == [b"event=process_started", b"event=no_gpu"]


def test_gpu_asked_for_where_there_is_none_is_refused_at_the_start():
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    found = subprocess.run([sys.executable, "-m", "server", "--port", "0", "--device", "cuda"],
                           cwd=ROOT, env=hidden, capture_output=True, timeout=180)
    assert found.returncode == 2 and not found.stdout
    (last,) = [line for line in found.stderr.splitlines() if line.startswith(b"--device cuda: ")]
    assert last.endswith(b"with --device auto CPU cores serve where there is none")
