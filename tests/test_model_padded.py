"""Networks for graphs: all families and sizes against references; CUDA's operators by shape."""

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from model.device.guard import CaptureGuard
from model.device.ladder import Shape
from model.device.staging import fill, size
from model.families.table import reference
from model.programs.attention import Efficient, Flash, Masked, attention
from model.programs.image import Image
from model.programs.on_device import padded_network
from model.programs.script import script, settle
from tests.tiny_bert import make_model, make_rows
from tests.tiny_families import CONFIGS, make_tiny
from tests.tiny_families import make_rows as make_family_rows

SHAPE = Shape(24, 4)
VARIANTS = [pytest.param(name, config, id=f"{name}-{number}")
            for name, configs in CONFIGS.items() for number, config in enumerate(configs)]


class _Place:
    """What a port is to the making of a network."""

    def __init__(self, capability, upload):
        self.capability, self.upload = capability, upload


def _network(card, image, dtype=torch.float32, capability=(0, 0), place=lambda tensor: tensor):
    return padded_network(card, Image(image), dtype, _Place(capability, place))


def _inputs(rows, positions: int) -> list:
    numbers = np.zeros(size(SHAPE), np.int32)
    fill(numbers, SHAPE, rows, positions)
    ids, places, lengths = torch.from_numpy(numbers).split(
        [SHAPE.tokens, SHAPE.tokens, SHAPE.batch])
    steps = torch.arange(SHAPE.batch + 1, dtype=torch.int32)
    return [ids, places, lengths, steps, steps * SHAPE.length, SHAPE.length]


@pytest.mark.parametrize("config", [
    {}, {"hidden_act": "gelu_new"}, {"hidden_act": "relu"}, {"hidden_act": "silu"},
    {"hidden_act": "quick_gelu"}, {"num_hidden_layers": 1}, {"type_vocab_size": 1},
    {"num_attention_heads": 8}, {"hidden_size": 36, "num_attention_heads": 3},
], ids=str)
def test_padded_bert_equals_the_reference(config):
    settle()
    card, image = make_model(**config)
    rows = make_rows(card, [24, 1, 13])
    inputs = _inputs(rows, card["settings"]["max_position_embeddings"])
    with torch.inference_mode(), torch.jit.optimized_execution(False), CaptureGuard():
        logits = script(_network(card, image))(*inputs)
    assert logits.dtype == torch.float32
    assert np.abs(logits[:3].numpy() - reference(card, image, rows)).max() < 1e-4
    assert logits.isfinite().all(), "an empty place must not poison anything"


@pytest.mark.parametrize("name, config", VARIANTS)
def test_padded_network_equals_the_reference(name, config):
    settle()
    card, image = make_tiny(name, config)
    rows = make_family_rows(card, [24, 1, 13])
    inputs = _inputs(rows, card["settings"]["max_position_embeddings"])
    with torch.inference_mode(), torch.jit.optimized_execution(False), CaptureGuard():
        logits = script(_network(card, image))(*inputs)
    assert logits.dtype == torch.float32
    assert np.abs(logits[:3].numpy() - reference(card, image, rows)).max() < 1e-4
    assert logits.isfinite().all(), "an empty place must not poison anything"


@pytest.mark.parametrize("name", CONFIGS)
def test_padded_network_in_16_bits_is_near_the_reference_and_fits_by_shape(name):
    card, image = make_tiny(name, CONFIGS[name][0])
    rows = make_family_rows(card, [24, 1, 13])
    inputs = _inputs(rows, card["settings"]["max_position_embeddings"])
    with torch.inference_mode():
        logits = _network(card, image, torch.float16)(*inputs)
    expected = reference(card, image, rows)
    assert np.abs(logits[:3].numpy() - expected).max() < 0.03 * max(1, expected.std())
    mode = FakeTensorMode()

    def place(tensor):
        with mode:
            return torch.empty(tensor.shape, dtype=tensor.dtype, device="cuda")

    network = _network(card, image, torch.float16, (9, 0), place)
    with mode:
        logits = network(*[torch.zeros(len(part), dtype=torch.int32, device="cuda")
                           for part in inputs[:-1]], SHAPE.length)
    assert logits.shape == (SHAPE.batch, 3) and logits.dtype == torch.float32
    assert logits.device.type == "cuda"


@pytest.mark.parametrize("dtype, tolerance", [(torch.float16, 0.03), (torch.bfloat16, 0.25)])
def test_padded_bert_in_16_bits_is_near_the_reference(dtype, tolerance):
    card, image = make_model()
    rows = make_rows(card, [24, 1, 13])
    inputs = _inputs(rows, card["settings"]["max_position_embeddings"])
    with torch.inference_mode():
        logits = _network(card, image, dtype)(*inputs)
    assert np.abs(logits[:3].numpy() - reference(card, image, rows)).max() < tolerance


@pytest.mark.parametrize("capability, dtype, name", [
    ((9, 0), torch.float16, "_flash_attention_forward"),
    ((8, 0), torch.bfloat16, "_flash_attention_forward"),
    ((7, 5), torch.float16, "_efficient_attention_forward"),
    ((9, 0), torch.float32, "_efficient_attention_forward"),
])
def test_padded_bert_cuda_operators_fit_by_shape_and_compile(capability, dtype, name):
    card, image = make_model()
    assert name in str(script(_network(card, image, dtype, capability)).inlined_graph)
    mode = FakeTensorMode()

    def place(tensor):
        with mode:
            return torch.empty(tensor.shape, dtype=tensor.dtype, device="cuda")

    network = _network(card, image, dtype, capability, place)
    with mode:
        logits = network(*[torch.zeros(count, dtype=torch.int32, device="cuda") for count in
                           (SHAPE.tokens, SHAPE.tokens, SHAPE.batch, SHAPE.batch + 1,
                            SHAPE.batch + 1)], SHAPE.length)
    assert logits.shape == (SHAPE.batch, 3) and logits.dtype == torch.float32
    assert logits.device.type == "cuda"


@pytest.mark.parametrize("capability, dtype, head, kind", [
    ((9, 0), torch.float16, 64, Flash), ((8, 0), torch.bfloat16, 32, Flash),
    ((8, 0), torch.float16, 264, Efficient), ((7, 5), torch.float16, 64, Efficient),
    ((9, 0), torch.float32, 64, Efficient), ((9, 0), torch.float16, 12, Masked),
    ((0, 0), torch.float16, 64, Masked), ((3, 7), torch.float16, 64, Masked),
])
def test_attention_is_what_the_device_has(capability, dtype, head, kind):
    assert type(attention(capability, dtype, head)) is kind
