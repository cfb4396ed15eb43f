"""Networks of 8-bit codes: all families against references; CUDA's operators by shape."""

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from model.device.guard import CaptureGuard
from model.device.ladder import Shape
from model.device.staging import fill, size
from model.families.table import reference
from model.programs.eight_bits import (CODES, AfterAttention, CodeWeights, IntegerProduct,
                                       Operators, quantised)
from model.programs.image import Image
from model.programs.on_device import EIGHT_BIT_FAMILIES, NoNetwork, padded_network
from model.programs.row_ops import PlainRows
from model.programs.script import script, settle
from tests.tiny_bert import make_model, make_rows
from tests.tiny_families import CONFIGS, make_tiny
from tests.tiny_families import make_rows as make_family_rows

SHAPE = Shape(24, 4)
VARIANTS = [pytest.param(name, config, id=f"{name}-{number}")
            for name in EIGHT_BIT_FAMILIES for number, config in enumerate(CONFIGS.get(name, ()))]
# Of the spread of logits of random tiny models, two or three layers deep.
ALLOWED = {"int8": 0.08, "fp8": 0.25}


class _Place:
    """What a port is to the making of a network."""

    def __init__(self, capability=(0, 0), upload=lambda tensor: tensor):
        self.capability, self.upload = capability, upload


def _network(card, image, kind, wide=torch.float32, place=_Place()):
    operators = Operators(kind, wide, wide, PlainRows(CODES[kind], wide))
    return padded_network(card, Image(image), wide, place, operators)


def _inputs(card, rows, shape=SHAPE) -> list:
    numbers = np.zeros(size(shape), np.int32)
    fill(numbers, shape, rows, card["settings"]["max_position_embeddings"])
    ids, places, lengths = torch.from_numpy(numbers).split(
        [shape.tokens, shape.tokens, shape.batch])
    steps = torch.arange(shape.batch + 1, dtype=torch.int32)
    return [ids, places, lengths, steps, steps * shape.length, shape.length]


def _check(card, image, rows, kind, wide, shape=SHAPE):
    settle()
    with torch.inference_mode(), torch.jit.optimized_execution(False), CaptureGuard():
        logits = script(_network(card, image, kind, wide))(*_inputs(card, rows, shape))
    expected = reference(card, image, rows)
    assert logits.dtype == torch.float32
    assert np.abs(logits[:len(rows)].numpy() - expected).max() \
        < ALLOWED[kind] * max(1, np.abs(expected).max())
    assert logits.isfinite().all(), "an empty place must not poison anything"


@pytest.mark.parametrize("kind", CODES)
@pytest.mark.parametrize("config", [
    {}, {"hidden_act": "gelu_new"}, {"hidden_act": "relu"}, {"hidden_act": "silu"},
    {"hidden_act": "quick_gelu"}, {"num_hidden_layers": 1}, {"type_vocab_size": 1},
], ids=str)
def test_eight_bit_bert_is_near_the_reference(config, kind):
    card, image = make_model(**config)
    _check(card, image, make_rows(card, [24, 1, 13]), kind, torch.float16)


@pytest.mark.parametrize("kind", CODES)
@pytest.mark.parametrize("name, config", VARIANTS)
def test_eight_bit_network_is_near_the_reference(name, config, kind):
    card, image = make_tiny(name, config)
    _check(card, image, make_family_rows(card, [24, 1, 13]), kind, torch.float32)


@pytest.mark.parametrize("kind", CODES)
def test_eight_bit_launch_of_one_short_text_is_near_the_reference(kind):
    card, image = make_model()
    _check(card, image, make_rows(card, [5]), kind, torch.bfloat16, Shape(16, 1))


def test_eight_bit_family_without_a_network_is_refused_in_words():
    card, image = make_tiny("modernbert", CONFIGS["modernbert"][0])
    with pytest.raises(NoNetwork, match="family modernbert have no program of 8 bits"):
        _network(card, image, "int8")


class _Seen(TorchDispatchMode):
    """Notes the operators that run inside its block, and the shapes of 8-bit products."""

    def __init__(self) -> None:
        super().__init__()
        self.products: list = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        name = func._schema.name.removeprefix("aten::")
        if name in ("_int_mm", "_scaled_mm"):
            self.products.append((name, args[0], args[1], found))
        return found


@pytest.mark.parametrize("wide", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind, operator", [("int8", "_int_mm"), ("fp8", "_scaled_mm")])
def test_eight_bit_program_fits_cuda_by_shape_and_type(kind, operator, wide):
    card, image = make_model(num_hidden_layers=3)
    mode = FakeTensorMode()

    def upload(tensor):
        with mode:
            return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype,
                                       device="cuda")

    network = _network(card, image, kind, wide, _Place((9, 0), upload))
    for shape in (SHAPE, Shape(16, 1)):
        with mode, _Seen() as seen:
            logits = network(*[torch.zeros(count, dtype=torch.int32, device="cuda") for count in
                               (shape.tokens, shape.tokens, shape.batch, shape.batch + 1,
                                shape.batch + 1)], shape.length)
        assert (logits.shape, logits.dtype) == ((shape.batch, 3), torch.float32)
        assert logits.device.type == "cuda"
        assert len(seen.products) == 2 * 3, "the last layer's first tokens stay wide"
        for name, rows, weight, found in seen.products:
            assert name == operator and rows.dtype == weight.dtype == CODES[kind]
            assert found.dtype == (torch.int32 if kind == "int8" else wide)
            # What the operators ask on CUDA and do not check on fake tensors.
            assert rows.is_contiguous() and weight.t().is_contiguous()
            assert rows.size(0) > 16 or kind == "fp8"
            assert rows.size(1) % 16 == weight.size(1) % 16 == 0


@pytest.mark.parametrize("rows", [1, 16, 17, 40])
def test_eight_bit_sums_of_any_number_of_rows_are_exact(rows):
    rng = torch.Generator().manual_seed(rows)
    codes = torch.randint(-127, 128, (rows, 64), dtype=torch.int8, generator=rng)
    weight, scales = quantised(torch.randn(48, 64, generator=rng), "int8")
    product = IntegerProduct("", weight, scales, torch.zeros(48))
    sums, *_ = product(codes, torch.ones(rows, 1))
    assert torch.equal(sums, (codes.double() @ weight.double().t()).int())


def test_eight_bit_weight_of_e4m3_is_rounded_at_no_worse_a_scale_than_the_least():
    rng = torch.Generator().manual_seed(8)
    weight = torch.randn(32, 256, generator=rng)
    rows = PlainRows(torch.float8_e4m3fn, torch.float32)
    plain, least = rows.quantise(weight)
    codes, scales = quantised(weight, "fp8")
    was = (plain.float() * least - weight).square().sum(1)
    found = (codes.float() * scales[:, None] - weight).square().sum(1)
    assert (found <= was).all() and found.sum() < 0.95 * was.sum()


@pytest.mark.parametrize("kind", CODES)
def test_eight_bit_bias_takes_back_what_rounding_adds_at_the_norms_shift(kind):
    card, image = make_model(hidden_size=64)
    operators = Operators(kind, torch.float32, torch.float32, PlainRows(CODES[kind], torch.float32))
    made = CodeWeights(Image(image), card["settings"], operators, (0, 0), lambda tensor: tensor)
    here = "bert.encoder.layer.0."
    name, norm = here + "intermediate.dense", here + "attention.output.LayerNorm"
    product = made.codes_product(name, after=norm)
    shift = Image(image).widened(norm + ".bias")
    weight = product.weight.float() * product.column_scales.view(-1, 1)
    wanted = Image(image).widened(name + ".weight") @ shift + Image(image).widened(name + ".bias")
    assert torch.allclose(weight @ shift + product.bias, wanted, atol=1e-5)


@pytest.mark.parametrize("kind", CODES)
def test_eight_bit_weight_keeps_each_channel_and_a_channel_of_zeros(kind):
    weight = torch.randn(5, 64) * torch.tensor([[1e-3], [1.0], [0.0], [1e3], [1.0]])
    codes, scales = quantised(weight, kind)
    assert scales.shape == (5,) and codes.dtype == CODES[kind]
    found = codes.float() * scales[:, None]
    step = 1 / 250 if kind == "int8" else 1 / 16
    assert ((found - weight).abs() <= step * weight.abs().amax(1, True)).all()
    assert not found[2].any()


@pytest.mark.parametrize("layers, wide_ones", [(3, [2]), (4, [0, 3]), (6, [0, 5])])
def test_eight_bit_deep_model_keeps_its_first_layer_wide_and_a_shallow_one_only_the_last(
        layers, wide_ones):
    card, image = make_model(num_hidden_layers=layers)
    encoder = _network(card, image, "int8").encoder
    kinds = [type(layer.after) for layer in (*encoder.layers, encoder.last)]
    assert [place for place, kind in enumerate(kinds) if kind is not AfterAttention] == wide_ones
