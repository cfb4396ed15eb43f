"""Quantising each product, and finding by measurement which of them 8 bits would hurt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from loader.safetensors import float32_array, open_image
from model.programs.int8 import QuantisedWeight
from model.programs.plan import Plan
from tools.building.calibration import Recorded
from tools.building.gate import ERROR_LIMIT, ROUNDING_LIMIT
from tools.building.quantise import LARGEST, quantise

SMOOTHINGS = (0.35, 0.5, 0.65, 0.8)  # shares of an input's spread that may go into its weights
SMOOTHING_PAYS = 0.85  # of the error without it; it costs a pass over the inputs


class Layer(NamedTuple):
    """One product: `arrays` are its tensors for int8.safetensors, `error` is that of its output
    relative to fp32, `is_wide` says that 8 bits would hurt it."""

    names: tuple[str, ...]
    arrays: dict[str, np.ndarray]
    error: float
    is_smoothed: bool
    is_wide: bool


def quantise_layers(recorded: Sequence[Recorded], weights: Any, bits: int,
                    told: Callable[[str], None] = lambda line: None) -> list[Layer]:
    """Every product of a network in `bits`, smoothed where that pays; `told` gets a line each."""
    plan, layers = Plan("int8"), []
    tensors = open_image(weights)
    for number, product in enumerate(recorded, 1):
        wide = [float32_array(weights, tensors[f"{name}.weight"]) for name in product.names]
        tries = [_quantised(product.names, wide, bits, divisors) for divisors in
                 (None, *(_divisors(product, wide, share) for share in SMOOTHINGS))]
        errors = [output_error(product, weights, arrays, plan) for arrays in tries]
        best = int(np.argmin(errors))
        is_smoothed = errors[best] < SMOOTHING_PAYS * errors[0]
        chosen = best if is_smoothed else 0
        error = errors[chosen]
        explained = rounding_error(product, weights, tries[chosen])
        is_wide = not (error <= ERROR_LIMIT and error <= ROUNDING_LIMIT * explained)
        layers.append(Layer(product.names, tries[chosen], error, is_smoothed, is_wide))
        told(f"product {number}/{len(recorded)} {product.names[0]}: error {error:.2%}"
             + (", smoothed" if is_smoothed else "") + (", stays wide" if is_wide else ""))
    return layers


def output_error(product: Recorded, weights: Any, arrays: Mapping[str, np.ndarray],
                 plan: Plan) -> float:
    """How far the quantised product is from the true one over the recorded inputs, relative, root
    mean square; computed by a kernel that serves, and all that do are exact."""
    weight = _weight(product, weights)
    expected = product.inputs @ weight.t()
    values = np.concatenate([arrays[f"{name}.weight"] for name in product.names])
    scales = np.concatenate([arrays[f"{name}.scales"] for name in product.names])
    divisors = arrays.get(f"{product.names[0]}.divisors")
    kernel = plan.quantised_product(
        QuantisedWeight(torch.from_numpy(values), torch.from_numpy(scales),
                        torch.zeros(len(values)),
                        None if divisors is None else torch.from_numpy(divisors)),
        product.least, False)
    found = torch.cat([kernel(_filled(part, plan.fill(len(part))))[:len(part)]
                       for part in product.inputs.split(plan.rows[-1])])
    return float((found - expected).norm() / expected.norm().clamp_min(1e-30))


def rounding_error(product: Recorded, weights: Any, arrays: Mapping[str, np.ndarray]) -> float:
    """What the same is expected to be where nothing is wrong but rounding: weights to 7 bits by
    channel and inputs to 8 by token, each value off by a twelfth of its step, squared."""
    weight, inputs = _weight(product, weights), product.inputs
    expected = (inputs @ weight.t()).square().sum(dtype=torch.float64)
    if f"{product.names[0]}.divisors" in arrays:
        divisors = torch.from_numpy(arrays[f"{product.names[0]}.divisors"])
        weight, inputs = weight * divisors, inputs / divisors
    steps = weight.abs().amax(1) / LARGEST[7]                               # [N]
    if product.least < 0:
        input_steps = torch.maximum(inputs.amax(1) / 238, inputs.amin(1) / -16)
    else:
        input_steps = inputs.abs().amax(1) / 127                            # [M]
    noise = steps.square().sum(dtype=torch.float64) * inputs.square().sum(dtype=torch.float64) + \
        input_steps.square().sum(dtype=torch.float64) * weight.square().sum(dtype=torch.float64)
    return float((noise / 12 / expected.clamp_min(1e-30)).sqrt())


def _weight(product: Recorded, weights: Any) -> Tensor:
    """float32 [N, K]."""
    tensors = open_image(weights)
    return torch.from_numpy(np.concatenate(
        [float32_array(weights, tensors[f"{name}.weight"]) for name in product.names]))


def _quantised(names: Sequence[str], wide: Sequence[np.ndarray], bits: int,
               divisors: np.ndarray | None) -> dict[str, np.ndarray]:
    arrays = {}
    for name, weight in zip(names, wide):
        arrays[f"{name}.weight"], arrays[f"{name}.scales"] = quantise(weight, bits, divisors)
    if divisors is not None:
        arrays[f"{names[0]}.divisors"] = divisors
    return arrays


def _divisors(product: Recorded, wide: Sequence[np.ndarray], share: float) -> np.ndarray:
    """What to divide the inputs by so that both they and the weights spread less (Xiao et al. 2023,
    SmoothQuant); their geometric mean is 1."""
    inputs = np.maximum(product.largest.numpy(), 1e-5)
    weights = np.maximum(np.abs(np.concatenate(wide)).max(axis=0), 1e-5)
    divisors = inputs ** share / weights ** (1 - share)
    return (divisors / np.exp(np.log(divisors).mean())).astype(np.float32)


def _filled(inputs: Tensor, rows: int) -> Tensor:
    """With rows of zeros behind, up to so many."""
    return torch.cat([inputs, torch.zeros(rows - len(inputs), inputs.size(1))])
