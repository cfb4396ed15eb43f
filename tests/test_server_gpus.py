"""The master's part in GPUs with real children that only wait, told what to say by the test."""

import json
import os
import signal
import time
from types import SimpleNamespace

import pytest

from loader.prepare import ModelFiles
from server import gpus as module
from server.gpus import Gpus
from server.metrics import Registry
from server.metrics_text import render
from server.settings import parse
from tests.house import wait_until

MIB = 1 << 20
FACTS = {"precision": "fp16", "precision_why": "words", "operators": []}
FLAGS = ["--device", "recorder", "--gpu-hold-s", "0", "--gpu-back-off-s", "0",
         "--gpu-longest-back-off-s", "0"]


class Desk:
    """Gpus whose children are forks that wait; `children` has (role, pid, their control end)."""

    def __init__(self, monkeypatch, *flags: str) -> None:
        self.children: list[SimpleNamespace] = []
        monkeypatch.setattr(module, "fork", self._fork)
        self.registry = Registry(1, 1)
        self.page = self.registry.page("master", 0)
        self.strays: dict[int, int] = {}
        self.told: list[tuple] = []
        self.gpus = Gpus(parse([*FLAGS, *flags], {}), self.registry, self.page, SimpleNamespace(
            strays=self.strays, tell=lambda *message: self.told.append(message)))
        self.files = [os.memfd_create("test") for _ in range(3)]
        self.at = time.monotonic() - 1.0

    def _fork(self, entry, spec):
        pid = os.fork()
        if not pid:
            signal.pause()
            os._exit(0)
        # The end that the parent would close is kept by a copy.
        control = module.Control(spec.control.socket.dup())
        self.children.append(SimpleNamespace(role=spec.role, pid=pid, control=control, spec=spec))
        return pid

    def close(self) -> None:
        self.gpus.end()
        for child in self.children:
            child.control.close()
            try:
                os.waitpid(child.pid, 0)
            except ChildProcessError:
                pass
        for descriptor in self.files:
            os.close(descriptor)

    def turn(self) -> None:
        self.gpus.turn()

    def serve(self, generation: int = 1) -> None:
        self.held = SimpleNamespace(dispatcher_name=f"dispatcher-{generation}",
                                    files=ModelFiles(*self.files))
        self.gpus.serve(generation, self.held)

    def watch(self):
        return [child for child in self.children if child.role == "gpu_watch"][-1]

    def engine(self):
        return [child for child in self.children if child.role == "gpu_engine"][-1]

    def engines(self) -> int:
        return sum(child.role == "gpu_engine" for child in self.children)

    def read(self, free_mib: int, uuid: str = "GPU-a", count: int = 1) -> None:
        for _ in range(count):
            self.at += 0.001
            self.watch().control.send({"type": "reading", "uuid": uuid, "at": self.at,
                                       "total": 65536 * MIB, "free": free_mib * MIB})
            self.turn()

    def begin(self, *uuids: str) -> None:
        """The watch names the devices."""
        self.turn()
        self.watch().control.send({"type": "devices", "devices": [
            {"uuid": uuid, "name": ""} for uuid in uuids]})
        self.turn()

    def begin_serving(self) -> None:
        """One device whose engine serves."""
        self.serve()
        self.begin("GPU-a")
        self.read(60000)
        self.say({"type": "serving", "footprint": MIB, "graphs": 3, "shapes": 3,
                  **FACTS})

    def say(self, message: dict) -> None:
        self.engine().control.send(message)
        self.turn()

    def end_engine(self, number: int) -> None:
        """A signal ends the engine, and the master notices."""
        count, pid = len(self.gpus.pids()), self.engine().pid
        os.kill(pid, number)
        wait_until("it is reaped", lambda: self.turn() or pid not in self.gpus.pids())
        assert count

    def shown(self) -> dict:
        self.gpus._publish(time.monotonic())
        return json.loads(self.registry.board.read())[0]

    def heard(self) -> list[str]:
        found = []
        for message, descriptors in self.engine().control.receive():
            found.append(message["type"])
            for descriptor in descriptors:
                os.close(descriptor)
        return found


@pytest.fixture
def desk(monkeypatch):
    made = []

    def make(*flags: str) -> Desk:
        made.append(Desk(monkeypatch, *flags))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_gpus_cpu_only_starts_nothing(monkeypatch):
    monkeypatch.setitem(globals(), "FLAGS", ["--device", "cpu"])
    one = Desk(monkeypatch)
    one.serve()
    one.turn()
    assert one.children == []
    one.close()


def test_gpus_engine_starts_when_model_and_room_are_there(desk):
    one = desk()
    one.begin("GPU-a")
    one.read(60000)
    assert one.engines() == 0, "there is no model yet"
    one.serve()
    one.turn()
    assert one.engines() == 1 and one.heard() == ["model"]
    assert one.shown()["state"] == "recovering"
    one.say({"type": "serving", "footprint": MIB, "graphs": 2, "shapes": 3, **FACTS})
    shown = one.shown()
    assert (shown["state"], shown["reason"], shown["graphs"]) == ("ok", "served", 2)
    text = render(one.registry, None, 1).decode()
    assert 'firebrick_device_state{device="gpu-0",state="ok"} 1\n' in text
    assert 'firebrick_device_transitions_total{device="gpu-0",state="ok",reason="served"} 1' in text


def test_gpus_pressure_tells_the_engine_to_leave_and_brings_it_back(desk):
    one = desk()
    one.begin_serving()
    one.heard()
    one.read(100, count=3)
    assert one.heard() == ["leave"] and one.shown()["state"] == "critical"
    ((role, generation, said),) = one.told
    engine = [child.spec for child in one.children if child.role == "gpu_engine"][-1]
    assert (role, generation) == ("dispatcher", 1)
    assert said == {"type": "leaving", "index": 0, "incarnation": engine.incarnation}
    one.end_engine(signal.SIGTERM)
    assert one.shown()["reason"] == "pressure"
    one.read(60000, count=2)
    assert one.engines() == 2


def test_gpus_tight_memory_asks_for_what_can_be_given_back(desk):
    one = desk()
    one.begin_serving()
    one.heard()
    one.read(1000, count=3)         # below 2 % of 64 GiB
    assert one.heard() == ["tighten"] and one.shown()["state"] == "tight"


@pytest.mark.parametrize("said, number, reason", [
    ("", signal.SIGKILL, "killed"), ("", signal.SIGSEGV, "died"),
    ("cuda_error", signal.SIGTERM, "cuda_error"), ("hang", signal.SIGTERM, "hang"),
    ("allocation", signal.SIGTERM, "allocation"), ("check", signal.SIGTERM, "check"),
])
def test_gpus_death_has_its_reason_and_the_engine_comes_back(desk, said, number, reason):
    one = desk()
    one.begin_serving()
    if said:
        one.say({"type": "fallen", "reason": said, "why": "words"})
    one.end_engine(number)
    assert (one.shown()["state"], one.shown()["reason"]) == ("recovering", reason)
    assert one.shown().get("why") == ("words" if said else None)
    one.read(60000, count=2)
    assert one.engines() == 2


def test_gpus_failed_capture_shortens_the_next_ladder(desk, monkeypatch):
    cuts = []
    monkeypatch.setattr(module.gpu_start, "run", lambda spec, uuid, failed: cuts.append(failed))
    one = desk()
    one.begin_serving()
    one.say({"type": "fallen", "reason": "capture", "why": "words"})
    one.end_engine(signal.SIGTERM)
    one.read(60000, count=2)
    assert [gpu.cuts for gpu in one.gpus.gpus.values()] == [1] and one.engines() == 2


def test_gpus_engine_past_its_lease_is_killed_and_it_counts_as_a_hang(desk):
    one = desk()
    one.begin_serving()
    one.engine().spec.page.promise(time.monotonic() - 0.1)
    pid = one.engine().pid
    wait_until("it is killed", lambda: one.turn() or pid not in one.gpus.pids())
    assert one.shown()["reason"] == "hang"


def test_gpus_engine_that_does_not_leave_is_killed(desk, monkeypatch):
    monkeypatch.setattr(module, "LEAVE_S", 0.05)
    one = desk()
    one.begin_serving()
    one.read(100, count=3)
    pid = one.engine().pid
    wait_until("it is killed", lambda: one.turn() or pid not in one.gpus.pids())
    assert one.shown()["reason"] == "pressure"


def test_gpus_engine_that_cannot_be_killed_loses_its_device(desk, monkeypatch):
    monkeypatch.setattr(module, "UNKILLABLE_S", 0.0)
    one = desk()
    one.begin_serving()
    monkeypatch.setattr(module.os, "kill", lambda pid, number: None)
    one.engine().spec.page.promise(time.monotonic() - 0.1)
    wait_until("it is given up", lambda: one.turn() or one.shown()["state"] == "lost")
    monkeypatch.undo()
    assert one.shown()["reason"] == "unkillable" and one.engines() == 1


def test_gpus_dead_watch_is_replaced_and_costs_no_state(desk):
    one = desk()
    one.begin_serving()
    pid = one.watch().pid
    os.kill(pid, signal.SIGKILL)
    wait_until("another watch", lambda: one.turn() or one.watch().pid != pid)
    one.watch().control.send({"type": "devices", "devices": [{"uuid": "GPU-a", "name": ""}]})
    one.read(60000, count=2)
    assert one.shown()["state"] == "ok" and one.engines() == 1 and len(one.gpus.gpus) == 1


def test_gpus_of_two_one_is_lost_and_the_other_serves_on(desk):
    one = desk()
    one.serve()
    one.begin("GPU-a", "GPU-b")
    one.read(60000, "GPU-a")
    one.read(60000, "GPU-b")
    assert one.engines() == 2
    one.watch().control.send({"type": "device_lost", "uuid": "GPU-a", "why": "fell off the bus"})
    one.turn()
    states = [gpu.pressure.state for gpu in one.gpus.gpus.values()]
    assert states == ["lost", "recovering"]
    one.say({"type": "serving", "footprint": 0, "graphs": 1, "shapes": 1, **FACTS})
    assert [gpu.pressure.state for gpu in one.gpus.gpus.values()] == ["lost", "ok"]


def test_gpus_more_than_there_are_places_for_are_left_alone(desk):
    one = desk()
    one.serve()
    uuids = [f"GPU-{number}" for number in range(module.MAX_GPUS + 1)]
    one.begin(*uuids)
    one.read(60000, uuids[-1])
    one.watch().control.send({"type": "device_lost", "uuid": uuids[-1], "why": "gone"})
    one.turn()
    assert list(one.gpus.gpus) == uuids[:-1] and one.engines() == 0


def test_gpus_none_at_all_is_one_line(desk, capfd):
    one = desk()
    one.turn()
    one.watch().control.send({"type": "no_devices", "why": "NVML: no library"})
    one.turn()
    pid = one.watch().pid
    os.kill(pid, signal.SIGTERM)
    wait_until("it is reaped", lambda: one.turn() or not one.gpus.pids())
    one.turn()
    assert len(one.children) == 1
    assert capfd.readouterr().err.count("event=no_gpu") == 1


@pytest.mark.parametrize("is_ready", [True, False])
def test_gpus_next_model_replaces_the_engine_at_once(desk, is_ready):
    one = desk()
    one.serve()
    one.begin("GPU-a")
    one.read(60000)
    if is_ready:
        one.say({"type": "serving", "footprint": 0, "graphs": 1, "shapes": 1, **FACTS})
    one.heard()
    old = one.engine().pid
    one.serve(generation=2)
    if is_ready:
        assert one.heard() == ["leave"]
        one.end_engine(signal.SIGTERM)
    wait_until("the old one is gone", lambda: one.turn() or old not in one.gpus.pids())
    one.read(60000)
    assert one.engines() == 2
    assert one.engine().spec.generation == 2
    assert one.engine().spec.dispatcher_name == "dispatcher-2"


def test_gpus_card_that_was_replaced_meanwhile_goes_to_the_next_engine(desk):
    one = desk()
    one.begin_serving()
    os.close(one.files[0])
    one.files[0] = os.memfd_create("another")
    one.held.files = ModelFiles(*one.files)
    one.heard()
    one.end_engine(signal.SIGKILL)
    one.read(60000, count=2)
    ((_, descriptors),) = one.engine().control.receive()
    assert "another" in os.readlink(f"/proc/self/fd/{descriptors[0]}")
    for descriptor in descriptors:
        os.close(descriptor)


def test_gpus_status_that_the_master_reaped_first_is_found(desk):
    one = desk()
    one.begin_serving()
    pid = one.engine().pid
    os.kill(pid, signal.SIGKILL)
    _, one.strays[pid] = os.waitpid(pid, 0)
    one.turn()
    assert one.shown()["reason"] == "killed" and not one.strays


def test_gpus_script_that_says_nothing_is_refused_at_the_start(monkeypatch, tmp_path):
    path = tmp_path / "faults"
    path.write_text("once upon a time\n")
    with pytest.raises(module.OperatorError, match="line 1"):
        Desk(monkeypatch, "--faults", str(path))
