"""Eight bits pass where a device has them right; each claim fails where one thing is wrong."""

import pytest
import torch

from model.device.recorder import Recorder
from model.programs import on_device
from model.programs.eight_bits import CODES
from model.programs.lanes import LanePrograms
from model.programs.row_ops import PlainRows
from tests.gpucheck_rig import TINY, Bench
from tools.gpucheck import eight_bits, networks

SAME = ("operators", "products", "answers")


@pytest.fixture(scope="module")
def model():
    return networks.random_model(TINY["small"])


@pytest.mark.parametrize("kind", CODES)
def test_eight_bits_that_are_right_pass(tmp_path, model, kind):
    bench = Bench(tmp_path)
    eight_bits.network(bench.rig, kind, model)
    assert bench.verdicts() == {**{f"{name}_{kind}": "PASS" for name in SAME},
                                f"our_kernels_{kind}": "SKIP"}
    assert bench.figures()[f"spread_{kind}"] > 0 and bench.figures()[f"texts_{kind}"] > 0


def test_eight_bits_of_a_device_that_has_none_are_skipped_in_words(tmp_path):
    bench = Bench(tmp_path, "arithmetic fp32\n")
    eight_bits.run(bench.rig)
    assert bench.verdicts() == {f"operators_{kind}": "SKIP" for kind in CODES}
    assert all("has no products of" in line["why"] for line in bench.lines)


def test_eight_bits_product_that_is_wrong_is_found(tmp_path, model, monkeypatch):
    real = torch._int_mm
    monkeypatch.setattr(torch, "_int_mm", lambda codes, weight: real(codes, weight) + 1)
    bench = Bench(tmp_path)
    eight_bits.network(bench.rig, "int8", model)
    assert bench.failed() == {"operators_int8"}


class _Rows(PlainRows):
    """Kernels of a device's own, one of them wrong."""

    lies = False

    def gelu_quantise(self, product, row_scales, column_scales, bias):
        codes, scales = super().gelu_quantise(product, row_scales, column_scales, bias)
        return codes, scales * 1.1 if self.lies else scales


@pytest.mark.parametrize("lies, verdict", [(False, "PASS"), (True, "FAIL")])
def test_eight_bits_own_kernels_must_all_be_right(tmp_path, model, lies, verdict):
    class Device(Recorder):
        def __init__(self, script, clock):
            super().__init__(script, clock=clock)

        def row_kernels(self, wide, codes):
            rows = _Rows(codes, wide)
            rows.lies = lies
            return rows

    # What torch's compiler takes is another question; the product's networks answer it.
    bench = Bench(tmp_path, device=Device)
    operators = eight_bits.find("int8", torch.float32, bench.rig.open(), 32, 128)
    eight_bits._judge_kernels(bench.rig, "int8", operators)
    assert bench.verdicts() == {"our_kernels_int8": verdict}


def _spoilt(monkeypatch, spoil):
    honest = networks.padded_network

    def wrong(*asked):
        network = honest(*asked)
        if asked[4] is not None:
            spoil(network)
        return network

    monkeypatch.setattr(networks, "padded_network", wrong)


def _spoil_scales(network):
    for part in network.modules():
        if hasattr(part, "column_scales"):
            part.column_scales[0] *= 3


@pytest.mark.parametrize("kind", CODES)
def test_eight_bits_weight_with_a_wrong_scale_is_found(tmp_path, model, monkeypatch, kind):
    _spoilt(monkeypatch, _spoil_scales)
    bench = Bench(tmp_path)
    eight_bits.network(bench.rig, kind, model)
    assert f"products_{kind}" in bench.failed()


def test_eight_bits_network_that_answers_otherwise_is_found(tmp_path, model, monkeypatch):
    _spoilt(monkeypatch, lambda network: network.head.out.weight.mul_(1.3))
    bench = Bench(tmp_path)
    eight_bits.network(bench.rig, "int8", model)
    assert bench.failed() == {"answers_int8"}


def test_eight_bits_decisions_on_real_texts_are_fp32s(tmp_path):
    bench = Bench(tmp_path)
    eight_bits.decisions(bench.rig, "int8", networks.shipped_model())
    assert bench.verdicts() == {"decisions_int8": "PASS"}


def test_eight_bits_decisions_that_differ_are_found(tmp_path, monkeypatch):
    honest = LanePrograms.run
    monkeypatch.setattr(LanePrograms, "run", lambda self, rows: honest(self, rows)[:, ::-1])
    bench = Bench(tmp_path)
    eight_bits.decisions(bench.rig, "int8", networks.shipped_model())
    assert bench.failed() == {"decisions_int8"}


def test_eight_bits_that_the_gate_refuses_are_found(tmp_path, monkeypatch):
    monkeypatch.setattr(on_device, "products_fault", lambda *_: "is 40% off")
    bench = Bench(tmp_path)
    eight_bits.decisions(bench.rig, "fp8", networks.shipped_model())
    assert bench.failed() == {"decisions_fp8"}
    assert "is 40% off" in bench.lines[-1]["why"]
