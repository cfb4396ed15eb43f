"""Rates: the arithmetic of shares, the engine's loop around a program, and who answers wrongly."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from model.device.ladder import Shape
from model.device.port import DeviceBroken
from model.device.recorder import Recorder
from model.programs.lanes import LanePrograms
from server.messages import Done, Failed
from tests.gpucheck_rig import TINY, Bench
from tools.gpucheck import engine_loop, feeder, rates
from tools.gpucheck.networks import Networks, random_model


@pytest.fixture(scope="module")
def model():
    return random_model(TINY["small"])


def test_rates_are_told_for_each_graph_and_through_the_loop(tmp_path):
    bench = Bench(tmp_path, is_judged=False)
    rates.run(bench.rig)
    assert bench.verdicts() == {"loop_answers_right": "PASS", "loop_is_fast": "NOT JUDGED"}
    texts = [line for line in bench.lines if line.get("figure") == "gpucheck.part.texts"]
    assert {(line["model"], line["tokens"], line["batch"]) for line in texts} == {
        (net, *shape) for net in ("tiny", "tiny base") for shape in ((16, 4), (16, 1), (32, 1))}
    assert all(line["value"] > 0 and line["of_products"] > 0 for line in texts)


@pytest.mark.parametrize("found, failed", [
    (engine_loop.Loop(70_000.0, 9, 0), set()), (engine_loop.Loop(50_000.0, 9, 0), {"loop_is_fast"}),
    (engine_loop.Loop(70_000.0, 9, 1), {"loop_answers_right"}),
    (engine_loop.Loop(0.0, 0, 0), {"loop_answers_right", "loop_is_fast"})])
def test_rates_promise_and_answers_of_the_loop_are_judged(tmp_path, monkeypatch, model, found,
                                                          failed):
    monkeypatch.setattr(engine_loop, "measure", lambda *_: found)
    bench = Bench(tmp_path)
    rates.measure(bench.rig, model, TINY["small"], [Shape(16, 4)])
    assert bench.failed() == failed


def test_rates_share_of_products_is_that_of_the_multiplications(model):
    # BERT-base at 128 tokens: 22.35 GFLOP a text, so 1000 texts a second are 22.35 TFLOP/s.
    class Base:
        card = {"settings": {"hidden_size": 768, "intermediate": 3072, "layers": 12}}
    assert rates.share(1000, 128, Base, 100e12) == pytest.approx(0.2235, abs=1e-4)


def test_rates_products_are_timed_by_the_devices_own_clock(tmp_path):
    class Slow(Recorder):
        """Each product takes a millisecond of its clock."""

        def __init__(self, script, clock):
            super().__init__(script, clock=clock)
            self.low.run = lambda work, tokens=0: self.low.enqueue(work, True, 1e-3)

    bench = Bench(tmp_path, device=Slow)
    found = rates.product_rate(bench.rig.open(), torch.float32, 16)
    assert found == pytest.approx(2 * 16**3 / 1e-3, rel=0.05)


class _Lies(LanePrograms):
    """Right when it is asked alone, wrong or broken when it is fed."""

    lie = ""

    def poll(self):
        found = super().poll()
        if self.lie == "breaks" and found:
            raise DeviceBroken("700: so the test says")
        if self.lie == "swaps texts":
            return [replace(one, logits=np.roll(one.logits, 1, 0)) for one in found]
        if self.lie == "nan":
            return [replace(one, logits=one.logits * np.nan) for one in found]
        return found


@pytest.fixture
def loop(tmp_path, model):
    """A function: a lie → what the loop measured."""
    def measure(lie: str) -> engine_loop.Loop:
        port = Bench(tmp_path).rig.open()
        networks = Networks(port, model, torch.float32)
        programs = _Lies(networks.program([Shape(16, 4)]),
                         networks.program([Shape(16, 1)], is_high=True))
        programs.prepare()
        programs.lie = lie
        return engine_loop.measure(programs, model.card, Shape(16, 4), 0.5)
    return measure


def test_engine_loop_answers_of_a_right_program_are_right(loop):
    found = loop("")
    assert found.answered > 0 and found.differing == 0 and found.rate > 0


@pytest.mark.parametrize("lie", ["swaps texts", "nan"])
def test_engine_loop_wrong_answers_are_counted(loop, lie):
    found = loop(lie)
    assert found.differing == found.answered > 0


def test_engine_loop_that_falls_says_why(loop):
    with pytest.raises(engine_loop.LoopEnded, match="cuda_error: 700"):
        loop("breaks")


WANTED = np.arange(12, dtype=np.float32).reshape(2, 3, 2)


@pytest.mark.parametrize("message, is_right", [
    (Done(3, 1, 2, WANTED[1].tobytes()), True), (Done(2, 1, 2, WANTED[1].tobytes()), False),
    (Done(2, 1, 2, WANTED[0, :2].tobytes()), False),
    (Done(2, 1, 2, (WANTED[0] * np.nan).tobytes()), False), (Failed(2, False, "no"), False)])
def test_feeder_tells_right_answers_from_others(message, is_right):
    assert feeder.is_right(message, WANTED) is is_right
