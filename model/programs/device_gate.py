"""The gate of a device: what a precision must keep of the reference before it may serve there."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from model.device.port import Port
from model.program import Row
from model.programs.eight_bits import CODES, FloatProduct, IntegerProduct, Operators
from model.programs.graphs import GraphProgram
from model.programs.image import Image
from model.programs.operators import computed, first_line
from model.programs.row_ops import PlainRows

# Logits against the reference's. 16 bits carry about 3 decimals through a network, bf16 about 2.
TOLERANCES = {"fp32": 1e-3, "fp16": 0.05, "bf16": 0.3}
# Of 8 bits the root mean square error of all logits, relative to them: 2 and 4 % in MiniLM.
SPREADS = {"int8": 0.08, "fp8": 0.12}
# A decision that was clear by so much, in logits, must not change.
CLEAR_MARGIN = 0.5
# A product's error over random rows, root mean square, relative: honest codes cost 1 to 2 % (int8)
# or 4 % (e4m3), in single channels up to 13 %; a channel that is another's costs 140 %.
PRODUCT_ERRORS = {"int8": 0.05, "fp8": 0.06}
CHANNEL_ERROR = 0.2
PRODUCT_ROWS = 64


def answers_fault(program: GraphProgram, card: dict[str, Any], precision: str) -> str:
    """What the card's self-test (a bundle's goldens) says against a program whose shapes still run
    as they are; empty where nothing does."""
    cases = card["self_test"]
    wanted = np.array([case["logits"] for case in cases], dtype=np.float64)
    found = program.run([Row(np.array(case["ids"]), case["split"]) for case in cases])
    for number, logits in enumerate(found):
        if not np.isfinite(logits).all():
            return f"the logits of text {number} are not finite"
    if precision in SPREADS:
        return _spread_fault(wanted, found, precision, card.get("function", "softmax"))
    for number, (logits, right) in enumerate(zip(found, wanted)):
        worst = float(np.abs(logits - right).max())
        if worst > TOLERANCES[precision] * max(1.0, float(np.abs(right).max()) / 4):
            return f"the logits of text {number} are {worst:.2g} from the reference"
    return ""


def _spread_fault(wanted: np.ndarray, found: np.ndarray, precision: str, function: str) -> str:
    spread = float(np.sqrt(((found - wanted) ** 2).mean() / (wanted ** 2).mean()))
    if not spread <= SPREADS[precision]:
        return (f"the logits are {spread:.1%} from the reference, {SPREADS[precision]:.0%} is "
                "allowed")
    changed = _changed(wanted, found, function)
    if changed.any():
        return f"the decision on text {int(changed.argmax())} is another"
    return ""


def _changed(wanted: np.ndarray, found: np.ndarray, function: str) -> np.ndarray:
    """Which texts, bool [texts], have another decision than one that was clear."""
    if function == "sigmoid":
        return ((np.abs(wanted) >= CLEAR_MARGIN / 2) & ((wanted > 0) != (found > 0))).any(1)
    if function == "none" or wanted.shape[1] < 2:
        return np.zeros(len(wanted), bool)
    ordered = np.sort(wanted, 1)
    is_clear = ordered[:, -1] - ordered[:, -2] >= CLEAR_MARGIN
    return is_clear & (wanted.argmax(1) != found.argmax(1))


def products_fault(network: nn.Module, image: Image, operators: Operators, port: Port) -> str:
    """What is wrong with an 8-bit product of the network, over random rows on the device against
    the wide weights on the host; empty where nothing is."""
    products = [part for part in network.modules()
                if isinstance(part, (IntegerProduct, FloatProduct))]
    for part in products:
        try:
            fault = _product_fault(part, image, operators, port)
        except RuntimeError as error:
            fault = f"is refused: {first_line(error)}"
        if fault:
            return f"the product {part.name} {fault}"
    return "" if products else "its only layer stays wide"


def _product_fault(product: nn.Module, image: Image, operators: Operators, port: Port) -> str:
    weight = image.widened(product.name + ".weight")
    outputs, inputs = weight.shape
    rng = torch.Generator().manual_seed(inputs + outputs)
    x = torch.randn(PRODUCT_ROWS, inputs, generator=rng)
    codes, scales = PlainRows(CODES[operators.kind], torch.float32).quantise(x)
    given = port.upload(codes), port.upload(scales)

    def work() -> Tensor:
        found, row_scales, column_scales, bias = product(*given)
        if row_scales is None:
            return found
        return found * row_scales * column_scales + bias

    found = computed(port, work, PRODUCT_ROWS * outputs).view(PRODUCT_ROWS, outputs)
    wanted = nn.functional.linear(x, weight)
    found = found - computed(port, lambda: product.bias, outputs)   # it makes up for codes
    error, size = (found - wanted).square().sum(0), wanted.square().sum(0)      # [N]
    whole = float((error.sum() / size.sum()).sqrt())
    if not whole <= PRODUCT_ERRORS[operators.kind]:
        return f"is {whole:.1%} off, {PRODUCT_ERRORS[operators.kind]:.0%} is allowed"
    # Channels of zeros are right where nothing comes out; float16 keeps no tinier ones.
    channel = float((error / size.clamp_min(1e-9 * float(size.mean()))).max().sqrt())
    if not channel <= CHANNEL_ERROR:
        return f"has a channel that is {channel:.0%} off, {CHANNEL_ERROR:.0%} is allowed"
    return ""
