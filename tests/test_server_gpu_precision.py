"""Whole servers whose played GPU computes in the precision that is asked for, or that wins."""

import pytest

from tests.gpu_faults import PLENTY, TEXTS, Server, ask
from tests.house import wait_until
from tests.tiny_bundle import write_tiny_bundle

pytestmark = [pytest.mark.sockets, pytest.mark.slow]


def _server(tmp_path, model: str, arithmetic: str, *flags: str) -> Server:
    class Scripted(Server):
        script = f"{PLENTY}arithmetic {arithmetic}\n"

    return Scripted(model, str(tmp_path / "faults"), *flags)


@pytest.mark.parametrize("precision", ["int8", "fp8"])
def test_gpu_precision_that_is_asked_for_serves_whole(tmp_path, precision):
    with _server(tmp_path, "models/sms-spam", "fp32 fp8 int8", "--precision", precision) as up:
        wait_until("the CPU answers", lambda: ask(up.port, TEXTS[0])[0] == 200)
        wide = [ask(up.port, text)[1]["label"] for text in TEXTS]
        up.wait_for_gpu()
        device = up.device()
        assert (device["precision"], device["precision_why"]) == (precision,
                                                                  "asked for with --precision")
        assert "row operations: torch's" in device["operators"]
        assert up.info()["model"]["precision"] == "fp32"
        answers = [ask(up.port, text) for text in TEXTS]
        assert {(status, engine) for status, _, engine in answers} == {(200, "gpu-0")}
        assert [answer["label"] for _, answer, _ in answers] == wide


def test_gpu_precision_that_the_device_has_not_leaves_the_cpu_serving_and_says_so(tmp_path):
    with _server(tmp_path, "models/sms-spam", "fp32 int8", "--precision", "fp8") as up:
        wait_until("it is refused", lambda: up.device().get("state") == "lost", 180)
        assert up.device()["reason"] == "unusable"
        assert up.device()["why"] == \
            "fp8 was asked for and is not served: this device does not compute it"
        status, _, engine = ask(up.port, TEXTS[0])
        assert status == 200 and engine.startswith("cpu")


def test_gpu_of_a_bundle_in_int8_serves_from_its_wide_weights(tmp_path):
    bundle = write_tiny_bundle(tmp_path / "bundle")
    with _server(tmp_path, str(bundle), "fp32 int8", "--precision", "int8") as up:
        up.wait_for_gpu()
        assert up.device()["precision"] == up.info()["model"]["precision"] == "int8"
        assert ask(up.port, "ok")[2] == "gpu-0"


def test_gpu_of_a_bundle_serves_what_is_fastest_and_tells_the_times(tmp_path):
    bundle = write_tiny_bundle(tmp_path / "bundle")
    with _server(tmp_path, str(bundle), "fp32 int8 fp8") as up:
        up.wait_for_gpu()
        device = up.device()
        assert device["precision"] in ("fp32", "int8", "fp8")
        assert "of what passed the gate the fastest on this device" in device["precision_why"]
        assert ask(up.port, "ok")[2] == "gpu-0"
