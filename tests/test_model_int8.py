"""8-bit products and programs against the same arithmetic written down slowly."""

import numpy as np
import pytest
import torch

from model.families.settings import ACTIVATIONS
from model.families.table import FAMILIES, build
from model.programs.image import Image
from model.programs.int8 import INT8_KERNELS, QuantisedWeight
from model.programs.parts import LEAST, activate
from model.programs.plan import Plan
from model.programs.probe import LIMITS, is_exact
from tests.tiny_bert import make_model, make_rows, quantised_image
from tests.tiny_families import CONFIGS, make_tiny
from tests.tiny_families import make_rows as rows_of_family

ROWS, OUTPUTS, INPUTS = 32, 24, 48
RELATIVE = 2e-6  # of the largest output: sums are exact, a few multiplications round


def slow_product(x: np.ndarray, weight: QuantisedWeight, least: float) -> np.ndarray:
    """Row by row: its reach in float32, integers, their exact sums, one multiplication back."""
    values = weight.values.numpy().astype(np.int64)
    scales, bias = weight.scales.numpy(), weight.bias.numpy()
    found = np.empty((len(x), len(values)))
    for number, row in enumerate(x.astype(np.float32)):
        if weight.divisors is not None:
            row = row * (np.float32(1) / weight.divisors.numpy())
        if least < 0:
            steps, below = np.float32(238), -row.min() * np.float32(238 / 16)
            reach = max(row.max(), np.float32(least / -16 * 238),
                        below if weight.divisors is not None else np.float32(0))
        else:
            steps, reach = np.float32(127), max(np.abs(row).max(), np.float32(1e-10))
        integers = np.rint(row * (steps / reach)).astype(np.int64)
        assert integers.min() >= (-16 if least < 0 else -127)
        assert integers.max() <= (238 if least < 0 else 127)
        found[number] = values @ integers * scales.astype(float) * float(reach / steps) + bias
    return found


def random_weight(limit: int, seed: int = 1, smoothed: bool = False) -> QuantisedWeight:
    drawn = torch.Generator().manual_seed(seed)
    values = torch.randint(-limit, limit + 1, (OUTPUTS, INPUTS), generator=drawn, dtype=torch.int8)
    values[0], values[1] = limit, -limit
    scales = torch.rand(OUTPUTS, generator=drawn) / 100 + 1e-3
    bias = torch.randn(OUTPUTS, generator=drawn)
    divisors = torch.exp(torch.randn(INPUTS, generator=drawn)) if smoothed else None
    return QuantisedWeight(values, scales, bias, divisors)


def inputs(least: float) -> torch.Tensor:
    """Rows of several sizes; one of zeros, one whose values are all below zero."""
    x = torch.randn(ROWS, INPUTS, generator=torch.Generator().manual_seed(2))
    x *= torch.logspace(-3, 2, ROWS)[:, None]
    x[3], x[4] = 0.0, -x[4].abs()
    return torch.maximum(x, torch.tensor(least)) if least < 0 else x


EXACT = [(kind, name) for kind in LIMITS for name in INT8_KERNELS
         if is_exact(kind, name, OUTPUTS, INPUTS)]


def test_int8_some_kernel_is_exact_for_7_bits():
    assert any(kind == "int7" for kind, _ in EXACT)


@pytest.mark.parametrize("smoothed", [False, True])
@pytest.mark.parametrize("least", [0.0, -0.17, -1e-6])
@pytest.mark.parametrize("kind, name", EXACT)
def test_int8_product_equals_the_slow_one(kind, name, least, smoothed):
    weight = random_weight(LIMITS[kind], smoothed=smoothed)
    x = inputs(least)
    expected = slow_product(x.numpy(), weight, least)
    for may_overwrite in (False, True):
        given = x.clone()
        found = INT8_KERNELS[name](weight, least, may_overwrite)(given).numpy()
        error = np.abs(found - expected).max(1)
        assert (error <= RELATIVE * np.maximum(np.abs(expected).max(1), 1)).all()
        assert may_overwrite or torch.equal(given, x)


@pytest.mark.parametrize("name", LEAST)
def test_least_is_just_below_the_activation(name):
    lowest = float(activate(torch.linspace(-12, 12, 240_001), name).min())
    assert LEAST[name] <= lowest <= LEAST[name] + 0.001


class SlowProduct(torch.nn.Module):
    """slow_product as a product of a network."""

    def __init__(self, weight: QuantisedWeight, least: float) -> None:
        super().__init__()
        self.weight, self.least = weight, least

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(slow_product(x.numpy(), self.weight, self.least)).float()


class SlowPlan(Plan):
    """Makes slow products, and runs the network as it is written."""

    needs_products = True

    def quantised_product(self, weight, least, may_overwrite):
        self.made = getattr(self, "made", 0) + 1
        return SlowProduct(weight, least)

    def compiled(self, network):
        return network.eval()


def check_program(card, weights, rows, products):
    """The fast program against the one of slow products: where a value lies between two steps,
    the last bit decides, so single values may be a step apart."""
    plan = SlowPlan("int8")
    slow = FAMILIES[card["family"]].build(card, Image(weights), plan).run(rows)
    assert plan.made >= products
    fast = build(card, weights).run(rows)
    difference = np.abs(fast - slow)
    assert np.median(difference) < 2e-5 and difference.max() < 0.05 * max(slow.std(), 1)


@pytest.mark.parametrize("act", ACTIVATIONS)
@pytest.mark.parametrize("bits", [7, 8])
def test_int8_bert_program_equals_the_slow_one(act, bits):
    if bits == 8 and not any(kind == "int8" for kind, _ in EXACT):
        pytest.skip("this CPU saturates sums of 8-bit weights")
    card, weights = make_model(hidden_act=act)
    card["precision"] = "int8"
    check_program(card, quantised_image(weights, bits), make_rows(card, [5, 2, 40, 17, 1, 33]), 8)


@pytest.mark.parametrize("name", CONFIGS)
def test_int8_program_of_each_family_equals_the_slow_one(name):
    for config in CONFIGS[name]:
        card, weights = make_tiny(name, config, precision="int8")
        check_program(card, weights, rows_of_family(card, [5, 2, 40, 17, 1, 33]), 1)
