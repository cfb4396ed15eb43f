"""The gate of a device: broken quantisation is refused, honest one passes; which decisions count.
"""

import numpy as np
import pytest
import torch

from model.device.ladder import Shape
from model.device.recorder import Recorder
from model.device.script import Script
from model.families.table import reference
from model.programs import eight_bits
from model.programs.device_gate import answers_fault, products_fault
from model.programs.eight_bits import CODES
from model.programs.graphs import GraphProgram
from model.programs.image import Image
from model.programs.on_device import padded_network
from model.programs.operators import find
from tests.tiny_bert import make_model, make_rows

SHAPES = [Shape(32, 4), Shape(16, 1)]
SIZES = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3}


@pytest.fixture(scope="module")
def model():
    """(card with a self-test, image) of a small BERT."""
    card, image = make_model(**SIZES)
    rows = make_rows(card, [2, 9, 30, 17, 5, 24, 12, 31], seed=5)
    return {**card, "self_test": [
        {"ids": row.ids.tolist(), "split": row.split, "logits": logits.tolist()}
        for row, logits in zip(rows, reference(card, image, rows))]}, image


def _network(model, kind):
    """(network, its operators, its device)."""
    card, image = model
    device = Recorder(Script())
    settings = card["settings"]
    with torch.inference_mode():
        operators = find(kind, torch.float16, device, settings["hidden_size"],
                         settings["intermediate"])
        return padded_network(card, Image(image), torch.float16, device, operators), \
            operators, device


def _products_fault(model, kind) -> str:
    network, operators, device = _network(model, kind)
    with torch.inference_mode():
        return products_fault(network, Image(model[1]), operators, device)


def _answers_fault(model, kind) -> str:
    card = model[0]
    network, operators, device = _network(model, kind)
    program = GraphProgram(device, network, operators.wide, SHAPES, card["settings"],
                           len(card["labels"]), card["max_tokens"])
    return answers_fault(program, card, kind)


@pytest.mark.parametrize("kind", CODES)
def test_gate_passes_honest_codes(model, kind):
    assert _products_fault(model, kind) == ""
    assert _answers_fault(model, kind) == ""


def _wrong_scale(codes, scales):
    return codes, scales * 2


def _swapped_rows(codes, scales):
    return codes[torch.arange(len(codes)).roll(1)], scales


def _swapped_scales(codes, scales):
    return codes, scales.flip(0)


def _saturated(codes, scales):
    largest = codes.float().abs().max()
    return (codes.float() * 3).clamp(-largest, largest).to(codes.dtype), scales / 3


def _transposed(codes, scales):
    return codes.t().reshape(codes.shape), scales


def _break(monkeypatch, breaks, is_hit=lambda codes: True):
    """Quantising, in networks alone, is followed by `breaks` for the weights that are hit."""
    real = eight_bits.quantised

    def quantised(weight, kind):
        codes, scales = real(weight, kind)
        return breaks(codes, scales) if is_hit(codes) else (codes, scales)

    monkeypatch.setattr(eight_bits, "quantised", quantised)


@pytest.mark.parametrize("breaks", [_wrong_scale, _swapped_rows, _saturated, _transposed])
@pytest.mark.parametrize("kind", CODES)
def test_gate_refuses_broken_products_by_the_answers_alone(model, kind, breaks, monkeypatch):
    _break(monkeypatch, breaks)
    assert _answers_fault(model, kind) != ""


@pytest.mark.parametrize("breaks", [_wrong_scale, _swapped_rows, _swapped_scales, _saturated,
                                    _transposed])
@pytest.mark.parametrize("kind", CODES)
def test_gate_refuses_a_single_broken_product_by_its_name(model, kind, breaks, monkeypatch):
    seen = []

    def is_hit(codes) -> bool:
        seen.append(codes)
        return len(seen) == 5       # the second layer's `widen`

    _break(monkeypatch, breaks, is_hit)
    assert _products_fault(model, kind).startswith(
        "the product bert.encoder.layer.1.intermediate.dense ")


@pytest.mark.parametrize("kind", CODES)
def test_gate_refuses_two_channels_that_are_each_others(model, kind, monkeypatch):
    def swap_two(codes, scales):
        order = torch.arange(len(codes))
        order[[4, 11]] = order[[11, 4]]
        return codes[order], scales[order]

    _break(monkeypatch, swap_two)
    assert "has a channel that is" in _products_fault(model, kind) \
        or "is allowed" in _products_fault(model, kind)


def test_gate_refuses_a_network_that_has_no_product_in_8_bits():
    assert _products_fault(make_model(num_hidden_layers=1), "int8") == "its only layer stays wide"


def test_gate_names_a_product_that_the_device_refuses(model, monkeypatch):
    network, operators, device = _network(model, "int8")

    def refuse(codes, weight):
        raise RuntimeError("not for these widths")

    monkeypatch.setattr(torch, "_int_mm", refuse)
    with torch.inference_mode():
        fault = products_fault(network, Image(model[1]), operators, device)
    assert fault.endswith("is refused: not for these widths")


class _Answers:
    """A program that gives these logits."""

    def __init__(self, logits) -> None:
        self.logits = np.array(logits, dtype=np.float32)

    def run(self, rows):
        return self.logits[:len(rows)]


def _judged(wanted, found, precision="int8", function="softmax") -> str:
    return answers_fault(_Answers(found), {"function": function, "self_test": [
        {"ids": [1], "split": 1, "logits": logits} for logits in wanted]}, precision)


def test_gate_judges_decisions_by_what_the_model_decides():
    clear, close = [[4.0, 3.4], [9.0, 0.0]], [[4.0, 3.6], [9.0, 0.0]]
    assert _judged(clear, [[3.6, 3.8], [9.0, 0.0]]) == "the decision on text 0 is another"
    assert _judged(close, [[3.7, 3.8], [9.0, 0.0]]) == ""
    assert _judged([[0.3, 8.0]], [[-0.1, 8.0]], function="sigmoid") \
        == "the decision on text 0 is another"
    assert _judged([[0.1, 8.0]], [[-0.1, 8.0]], function="sigmoid") == ""
    assert _judged(clear, [[3.6, 3.8], [9.0, 0.0]], function="none") == ""
    assert _judged([[2.0], [-0.3]], [[2.0], [-0.2]]) == ""


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16", "int8", "fp8"])
def test_gate_refuses_logits_that_are_far_off_or_not_finite(precision):
    wanted = [[4.0, -4.0], [-3.0, 3.0]]
    assert _judged(wanted, wanted, precision) == ""
    assert "from the reference" in _judged(wanted, [[5.0, -5.0], [-4.0, 4.0]], precision)
    assert _judged(wanted, [[4.0, -4.0], [np.nan, 3.0]], precision) \
        == "the logits of text 1 are not finite"
