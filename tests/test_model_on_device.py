"""From a card to a program on a device: which arithmetic, which shapes, and what is refused."""

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
