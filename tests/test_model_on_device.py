"""From a card to a program on a device: which arithmetic, which shapes, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from loader.safetensors import file_bytes, float32_array, open_image
from model.device.port import CaptureFailed
from model.device.recorder import Recorder
from model.device.script import Script, write
from model.families.table import reference
from model.grid import buckets
from model.programs import on_device
from model.programs.graphs import CheckFailed
from model.programs.on_device import CUT_FACTOR, MOST_CUTS, NoNetwork, Options, build
from tests.tiny_bert import make_model, make_rows

OPTIONS = Options(token_cap=256, graph_bytes=1 << 30)


def _card(card: dict, image: bytes) -> dict:
    """The card as the preparer completes it."""
    cases = []
    for row in make_rows(card, [2, 9, 30], seed=5):
        (logits,) = reference(card, image, [row])
        cases.append({"ids": row.ids.tolist(), "split": row.split, "logits": logits.tolist()})
    return {**card, "buckets": buckets(card["max_tokens"]), "self_test": cases}


@pytest.fixture(scope="module")
def model():
    """(completed card, image) of a tiny BERT."""
    card, image = make_model()
    return _card(card, image), image


def _scaled(image: bytes, name: str, factor: float) -> bytes:
    tensors = {key: float32_array(image, tensor) for key, tensor in open_image(image).items()}
    tensors[name] = tensors[name] * np.float32(factor)
    return file_bytes(tensors)


def test_on_device_program_serves_the_fastest_arithmetic_that_is_right(model):
    card, image = model
    program = build(card, [image], Recorder(Script(), (torch.float16, torch.float32)), OPTIONS)
    assert program.dtype == torch.float16 and program.captured == len(program.shapes)
    rows = make_rows(card, [3, 17, 40])
    assert np.abs(program.run(rows) - reference(card, image, rows)).max() < 0.05


def test_on_device_overflow_of_fp16_leads_to_bf16():
    card, image = make_model()
    image = _scaled(image, "bert.embeddings.word_embeddings.weight", 1e6)   # more than fp16 has
    program = build(_card(card, image), [image],
                    Recorder(Script(), (torch.float16, torch.bfloat16)), OPTIONS)
    assert program.dtype == torch.bfloat16


def test_on_device_wrong_weights_are_found_by_the_self_test(model):
    card, image = model
    with pytest.raises(CheckFailed, match="fp32: the logits of text 0 are .* from the reference"):
        build(card, [_scaled(image, "classifier.bias", 3.0)], Recorder(Script()), OPTIONS)


@pytest.mark.parametrize("cuts", range(MOST_CUTS + 1))
def test_on_device_each_failed_capture_shortens_the_ladder_until_nothing_is_captured(model, cuts):
    card, image = model
    program = build(card, [image], Recorder(Script()), Options(256, 1 << 30, cuts))
    large = [shape.tokens for shape in program.shapes if shape.batch > 1]
    assert max(large, default=0) <= 256 // CUT_FACTOR ** cuts
    assert program.captured == (0 if cuts == MOST_CUTS else len(program.shapes))
    rows = make_rows(card, [3, 60])
    assert np.abs(program.run(rows) - reference(card, image, rows)).max() < 1e-4


def test_on_device_budget_bounds_the_ladder(model):
    card, image = model
    program = build(card, [image], Recorder(Script()), Options(256, 1))
    assert {shape.batch for shape in program.shapes} == {1}


def test_on_device_failed_capture_is_the_callers(model, tmp_path):
    card, image = model
    path = str(tmp_path / "faults")
    write(path, "once capture memory 2\n")
    with pytest.raises(CaptureFailed):
        build(card, [image], Recorder(Script(path)), OPTIONS)


def test_on_device_network_that_no_graph_can_hold_runs_as_it_is(model, monkeypatch):
    card, image = model
    real = on_device.padded_network

    class Asking(torch.nn.Module):
        def __init__(self, inner: torch.nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, ids: torch.Tensor, places: torch.Tensor, lengths: torch.Tensor,
                    starts: torch.Tensor, key_starts: torch.Tensor, length: int) -> torch.Tensor:
            if bool(lengths[0] < 0):
                return lengths.float()
            return self.inner(ids, places, lengths, starts, key_starts, length)

    monkeypatch.setattr(on_device, "padded_network", lambda *given: Asking(real(*given)))
    program = build(card, [image], Recorder(Script()), OPTIONS)
    rows = make_rows(card, [3, 60])
    assert program.captured == 0
    assert np.abs(program.run(rows) - reference(card, image, rows)).max() < 1e-4


def test_on_device_what_has_no_network_is_refused_in_words(model):
    card, image = model
    with pytest.raises(NoNetwork, match="family echo"):
        build({**card, "family": "echo"}, [image], Recorder(Script()), OPTIONS)
    tensors = {key: float32_array(image, tensor) for key, tensor in open_image(image).items()}
    tensors["classifier.weight"] = tensors["classifier.weight"].astype(np.int8)
    with pytest.raises(NoNetwork, match="8 bits"):
        build(card, [file_bytes(tensors)], Recorder(Script()), OPTIONS)


# ---- precisions ---------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def bundle(model):
    """The card as of a bundle that passed in 8 bits, with the image of its wide weights."""
    card, image = model
    return {**card, "precisions": ["fp32", "int8"], "tolerances": {"int8": 0.1}}, image


def _played(tmp_path, arithmetic: str) -> Recorder:
    path = str(tmp_path / "script")
    write(path, f"arithmetic {arithmetic}\n")
    return Recorder(Script(path))


def _check_served(model, program, tolerance: float) -> None:
    card, image = model
    rows = make_rows(card, [3, 17, 40, 64])
    assert np.abs(program.run(rows) - reference(card, image, rows)).max() < tolerance
    assert program.captured == len(program.shapes)


@pytest.mark.parametrize("precision, tolerance", [
    ("fp32", 1e-4), ("fp16", 0.05), ("bf16", 0.3), ("int8", 0.3), ("fp8", 0.8)])
def test_on_device_precision_that_is_asked_for_is_served(model, tmp_path, precision, tolerance):
    device = _played(tmp_path, "fp16 bf16 fp32 fp8 int8")
    program = build(*_as_given(model), device, replace(OPTIONS, precision=precision))
    assert program.choice.precision == precision
    assert program.choice.why == "asked for with --precision"
    assert bool(program.choice.operators) == (precision in ("int8", "fp8"))
    _check_served(model, program, tolerance)


def _as_given(model) -> tuple:
    card, image = model
    return card, [image]


@pytest.mark.parametrize("precision", ["fp16", "fp8"])
def test_on_device_precision_that_the_device_has_not_is_refused_in_a_sentence(model, tmp_path,
                                                                              precision):
    with pytest.raises(NoNetwork) as caught:
        build(*_as_given(model), _played(tmp_path, "fp32 int8"),
              replace(OPTIONS, precision=precision))
    assert str(caught.value) == f"{precision} was asked for and is not served: this device does " \
        "not compute it"


def test_on_device_precision_that_fails_its_gate_is_refused_in_a_sentence(model, monkeypatch):
    monkeypatch.setattr(on_device, "products_fault", lambda *given: "a product is broken")
    with pytest.raises(NoNetwork, match="^int8 was asked for and is not served: a product is bro"):
        build(*_as_given(model), Recorder(Script()), replace(OPTIONS, precision="int8"))
    monkeypatch.undo()
    monkeypatch.setattr(on_device, "answers_fault", lambda *given: "the decision is another")
    with pytest.raises(NoNetwork, match="^fp8 was asked for and is not served: the decision is"):
        build(*_as_given(model), Recorder(Script()), replace(OPTIONS, precision="fp8"))


def test_on_device_plain_checkpoint_is_not_served_in_8_bits_unasked(model):
    program = build(*_as_given(model), Recorder(Script()), OPTIONS)
    assert program.choice.precision == "fp32" and program.choice.times == {}


def test_on_device_bundle_that_did_not_pass_in_8_bits_is_not_served_in_them(bundle):
    card, image = bundle
    program = build({**card, "precisions": ["fp32"]}, [image], Recorder(Script()), OPTIONS)
    assert program.choice.precision == "fp32" and program.choice.times == {}


@pytest.mark.parametrize("winner", ["fp32", "fp8", "int8"])
def test_on_device_fastest_precision_that_passed_serves(bundle, winner, monkeypatch):
    asked = []

    def decide(times):
        asked.append(times)
        return winner, "the test says so"

    monkeypatch.setattr(on_device, "decide", decide)
    card, image = bundle
    program = build(card, [image], Recorder(Script()), OPTIONS)
    (times,) = asked
    assert list(times) == ["fp32", "fp8", "int8"]
    for costs in times.values():
        assert [(texts, tokens) for texts, tokens, _ in costs] == \
            [(shape.batch, shape.tokens) for shape in program.low.shapes]
        assert all(0 < ms < float("inf") for _, _, ms in costs)
    assert program.choice.precision == winner and program.choice.why == "the test says so"
    _check_served(bundle, program, 0.8)


def test_on_device_eight_bits_that_fail_leave_the_rest_and_are_named(bundle, monkeypatch):
    real = on_device.products_fault
    monkeypatch.setattr(on_device, "products_fault", lambda network, image, operators, port:
                        "broken" if operators.kind == "fp8" else real(network, image, operators,
                                                                     port))
    card, image = bundle
    choice = build(card, [image], Recorder(Script()), OPTIONS).choice
    assert choice.refused == {"fp8": "broken"} and choice.precision in ("fp32", "int8")
    assert choice.why.endswith("; fp8 is not served: broken")


def test_on_device_eight_bits_whose_graph_is_wrong_lose(bundle, monkeypatch):
    real = on_device.GraphProgram.prepare

    def prepare(self, *given):
        if any(part.original_name == "AddNorm" for part in self._network.modules()):
            raise CheckFailed("the graph of 1 × 16 gives other logits than its function")
        real(self, *given)

    monkeypatch.setattr(on_device.GraphProgram, "prepare", prepare)
    card, image = bundle
    choice = build(card, [image], Recorder(Script()), OPTIONS).choice
    assert choice.precision == "fp32" and list(choice.refused) == ["fp8", "int8"]
