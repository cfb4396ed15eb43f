"""An engine's fall under load: a good server passes, and every way of being bad is found."""

import json
import threading

import numpy as np
import pytest

from tests.gpucheck_rig import Bench
from tools.gpucheck import falls
from tools.gpucheck.falls import TEXTS, Fall, watch
from tools.gpucheck.networks import shipped_logits

STEPS = {"gpu_serves", "fall_is_seen", "cpu_serves", "gpu_returns"}
ALL = STEPS | {"no_request_failed", "answers_are_right"}


@pytest.fixture(scope="module")
def right():
    return shipped_logits(TEXTS)


class House:
    """A server that is none: it answers by what its device's state says, with one `fault`."""

    def __init__(self, right, fault: str = "") -> None:
        self.labels, self.logits = right
        self.fault, self.state, self.asked = fault, "ok", 0
        self.lock = threading.Lock()

    def device(self):
        return {"state": self.state, "precision": "fp16", "name": "recorder"}

    def gpu_pids(self):
        return [] if self.state != "ok" else [1]

    def connect(self):
        return Connection(self)

    def fall(self):
        if self.fault != "nobody falls":
            self.state = "critical"

    def recover(self):
        if self.fault != "it never returns":
            self.state = "ok"

    def engine(self):
        if self.state != "ok":
            return "gpu-0" if self.fault == "cpu engines never serve" else "cpu-1"
        return "cpu-0" if self.fault == "no gpu" else "gpu-0"


class Connection:
    """http.client's, as far as it is used."""

    def __init__(self, house: House) -> None:
        self.house, self.text = house, ""

    def request(self, method, path, body, headers):
        self.text = json.loads(body)["text"]

    def getresponse(self):
        house = self.house
        with house.lock:
            house.asked += 1
            is_chosen = house.asked == 20
        if is_chosen and house.fault == "a lost request":
            raise ConnectionResetError("closed before the answer")
        return Response(house, self.text, 503 if is_chosen and house.fault == "a refusal" else 200)

    def close(self):
        pass


class Response:
    def __init__(self, house, text, status):
        self.house, self.text, self.status = house, text, status
        self.by = house.engine()

    def read(self):
        house = self.house
        logits = house.logits[TEXTS.index(self.text)].astype(float)
        label = house.labels[int(np.argmax(logits))]
        if self.by.startswith("gpu") and house.fault == "a GPU that is off":
            logits = logits + 0.2
        if self.by.startswith("cpu") and house.fault == "a CPU that is off":
            logits = logits + 0.01
        if self.by.startswith("gpu") and house.fault == "nan":
            logits = logits * float("nan")
        if house.fault == "another's label":
            label = next(one for one in house.labels if one != label)
        return json.dumps({"label": label, "logits": logits.tolist()}).encode()

    def getheader(self, name):
        return self.by


def _watch(tmp_path, house, patience_s=0.3):
    bench = Bench(tmp_path, patience_s=patience_s)
    watch(bench.rig, house, Fall(house.fall, lambda: house.state == "critical", house.recover))
    return bench


def test_falls_of_a_good_server_pass_every_claim(tmp_path, right):
    bench = _watch(tmp_path, House(right), 20.0)
    assert bench.verdicts() == dict.fromkeys(ALL, "PASS")
    assert STEPS | {"longest_wait"} == set(bench.figures())


@pytest.mark.parametrize("fault, failed", [
    ("no gpu", "gpu_serves"), ("nobody falls", "fall_is_seen"),
    ("cpu engines never serve", "cpu_serves"), ("it never returns", "gpu_returns"),
    ("a lost request", "no_request_failed"), ("a refusal", "no_request_failed"),
    ("a GPU that is off", "answers_are_right"), ("a CPU that is off", "answers_are_right"),
    ("nan", "answers_are_right"), ("another's label", "answers_are_right")])
def test_falls_of_a_bad_server_are_found(tmp_path, right, fault, failed):
    bench = _watch(tmp_path, House(right, fault))
    assert bench.failed() == {failed}
    assert {"no_request_failed", "answers_are_right"} <= set(bench.verdicts())


def test_falls_device_is_let_go_whatever_happens(tmp_path, right):
    house, ended = House(right, "no gpu"), []
    bench = Bench(tmp_path, patience_s=0.1)
    watch(bench.rig, house, Fall(house.fall, lambda: True, lambda: ended.append(1)))
    assert ended


def test_falls_killed_engine_is_seen_by_its_process(right, monkeypatch):
    house, killed = House(right), []
    monkeypatch.setattr("os.kill", lambda *asked: killed.append(asked))
    fall = falls.killing(house)
    fall.begin()
    assert killed == [(1, 9)] and not fall.is_seen()
    house.state = "recovering"
    assert fall.is_seen()
