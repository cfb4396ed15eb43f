"""Which 8-bit operators a device really has: each is tried on small data and compared.

An operator that is missing, refuses these widths, or computes something else than the same thing in
float64 on the host is not used; what was chosen is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from model.device.port import DeviceBroken, OutOfMemory, Port
from model.programs.eight_bits import (CODES, MULTIPLES, FloatProduct, IntegerProduct, Operators,
                                       quantised)
from model.programs.row_ops import PlainRows

PROBE_ROWS = 40
# A product of e4m3 codes is rounded to 16 bits, and its sums may have fewer bits than float32: the
# largest error, relative to the root mean square. A wrong scale or layout is off by its own size.
FLOAT_TOLERANCE = 0.08
# Of a row's largest element: of wide rows by their type, of codes what one step more or less is.
WIDE_TOLERANCES = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 2e-2}
STEPS = {"int8": 1.2 / 127, "fp8": 1.2 / 8}
ROW_OPS = ("quantise", "dequantise_bias", "add_norm_quantise", "gelu_quantise")


class Unfit(Exception):
    """A device does not compute 8-bit products of this kind and these widths; the message says why.
    """


def find(kind: str, wide: torch.dtype, port: Port, hidden: int, intermediate: int) -> Operators:
    """The operators for networks of these widths; each of the port's row kernels that is right is
    used. Raises Unfit, or what the port raises for a device that is gone."""
    step = MULTIPLES[kind]
    for width in (hidden, intermediate):
        if width % step:
            raise Unfit(f"its width {width} is no multiple of {step}, as {kind} needs")
    product_type = _product_type(kind, wide, port, hidden, intermediate)
    rows, report = _row_ops(kind, wide, port, hidden, intermediate)
    operator = "torch._int_mm" if kind == "int8" else f"torch._scaled_mm to {product_type}"
    return Operators(kind, wide, product_type, rows, (f"products: {operator}", *report))


def computed(port: Port, work: Callable[[], Tensor], count: int) -> Tensor:
    """What `work` gives on the device, float32 [count] on the host. Raises RuntimeError for what
    the device refuses, DeviceBroken where it is gone."""
    found, host = port.empty((count,), torch.float32), port.staging(count, torch.float32)
    try:
        port.low.run(lambda: found.copy_(work().float().flatten()))
        port.wait()
    except DeviceBroken as error:
        port.wait()         # of a device that only refused: else it raises again
        raise RuntimeError(str(error)) from None
    port.low.get(host, found)
    port.wait()
    return host.clone()


# ---- products -----------------------------------------------------------------------------------

def _product_type(kind: str, wide: torch.dtype, port: Port, hidden: int,
                  intermediate: int) -> torch.dtype:
    """The first type that torch._scaled_mm gives right products in; `wide` for int8."""
    types = dict.fromkeys([wide] if kind == "int8" else [wide, torch.bfloat16])
    faults = []
    for product_type in types:
        operators = Operators(kind, wide, product_type, nn.Identity())
        fault = next(filter(None, (
            _product_fault(operators, port, inputs, outputs) for inputs, outputs in (
                (hidden, hidden), (hidden, intermediate), (intermediate, hidden)))), "")
        if not fault:
            return product_type
        faults.append(fault)
    raise Unfit("; ".join(faults))


def _product_fault(operators: Operators, port: Port, inputs: int, outputs: int) -> str:
    """Why the product of such widths cannot be used; empty where it can."""
    kind, rng = operators.kind, torch.Generator().manual_seed(inputs + outputs)
    x = torch.randn(PROBE_ROWS, inputs, generator=rng)
    weight = torch.randn(outputs, inputs, generator=rng)
    bias = torch.randn(outputs, generator=rng)
    rows = PlainRows(CODES[kind], torch.float32)
    (codes, scales), (weights, column_scales) = rows.quantise(x), quantised(weight, kind)
    placed = [port.upload(part) for part in (weights, column_scales, bias)]
    module = IntegerProduct("", *placed) if kind == "int8" \
        else FloatProduct("", *placed, operators)
    given = port.upload(codes), port.upload(scales)
    try:
        found = computed(port, lambda: module(*given)[0], PROBE_ROWS * outputs).double()
    except RuntimeError as error:
        return f"a product of {inputs} by {outputs} is refused: {first_line(error)}"
    wanted = codes.double() @ weights.double().t()
    if kind == "int8":
        if torch.equal(found, wanted.flatten()):
            return ""
        return f"sums of a product of {inputs} by {outputs} are wrong"
    wanted = (wanted * scales * column_scales + bias).flatten()
    worst = float((found - wanted).abs().max() / wanted.square().mean().sqrt())
    if worst <= FLOAT_TOLERANCE:
        return ""
    return f"a product of {inputs} by {outputs} is {worst:.1%} off"


# ---- row operations -----------------------------------------------------------------------------

class ChosenRows(nn.Module):
    """model.programs.row_ops.RowOps, each by the implementation that was chosen for it."""

    def __init__(self, quantise: nn.Module, dequantise_bias: nn.Module,
                 add_norm_quantise: nn.Module, gelu_quantise: nn.Module) -> None:
        super().__init__()
        self.of_quantise, self.of_dequantise = quantise, dequantise_bias
        self.of_norm, self.of_gelu = add_norm_quantise, gelu_quantise

    def quantise(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.of_quantise.quantise(x)

    def dequantise_bias(self, sums: Tensor, row_scales: Tensor, column_scales: Tensor,
                        bias: Tensor) -> Tensor:
        return self.of_dequantise.dequantise_bias(sums, row_scales, column_scales, bias)

    def add_norm_quantise(self, product: Tensor, row_scales: Tensor | None,
                          column_scales: Tensor | None, bias: Tensor | None, residual: Tensor,
                          gain: Tensor, shift: Tensor, eps: float
                          ) -> tuple[Tensor, Tensor, Tensor]:
        return self.of_norm.add_norm_quantise(product, row_scales, column_scales, bias, residual,
                                              gain, shift, eps)

    def gelu_quantise(self, product: Tensor, row_scales: Tensor | None,
                      column_scales: Tensor | None, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        return self.of_gelu.gelu_quantise(product, row_scales, column_scales, bias)


def _row_ops(kind: str, wide: torch.dtype, port: Port, hidden: int,
             intermediate: int) -> tuple[nn.Module, Sequence[str]]:
    plain = PlainRows(CODES[kind], wide)
    try:
        made = port.row_kernels(wide, CODES[kind])
    except Exception as error:  # a compiler or driver that is not there, in any way it may fail
        return plain, [f"row operations: torch's, for {first_line(error)}"]
    if made is None:
        return plain, ["row operations: torch's"]
    chosen, report = [], []
    for name in ROW_OPS:
        widths = {"quantise": (hidden, intermediate), "add_norm_quantise": (hidden,)}
        fault = next(filter(None, (row_op_fault(name, kind, wide, port, made, width) for width in
                                   widths.get(name, (intermediate,)))), "")
        chosen.append(plain if fault else made)
        report.append(f"{name}: torch's, for {fault}" if fault else f"{name}: our kernel")
    return ChosenRows(*chosen), report


def row_op_fault(name: str, kind: str, wide: torch.dtype, port: Port, made: nn.Module,
                 width: int) -> str:
    """Why the operation `name` of `made` cannot be used for rows of this width; empty where it
    can: its answers on the device are those of torch's operators on the host."""
    if name == "dequantise_bias" and kind == "fp8":
        return ""       # is never called
    rng = torch.Generator().manual_seed(width)
    given = _inputs(name, kind, wide, width, rng)
    placed = [port.upload(one) if isinstance(one, Tensor) else one for one in given]
    wanted = getattr(PlainRows(CODES[kind], wide), name)(*given)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    sizes = [part.numel() for part in wanted]

    def work() -> Tensor:
        found = getattr(made, name)(*placed)
        found = found if isinstance(found, tuple) else (found,)
        return torch.cat([part.float().flatten() for part in found])

    try:
        found = computed(port, work, sum(sizes)).split(sizes)
    except (DeviceBroken, OutOfMemory):
        raise
    except Exception as error:  # what has no kernel for this says so in its own way
        return first_line(error)
    return _difference(kind, [part.view(like.shape) for part, like in zip(found, wanted)], wanted)


def _inputs(name: str, kind: str, wide: torch.dtype, columns: int,
            rng: torch.Generator) -> tuple[Tensor | float | None, ...]:
    """Arguments for an operation: rows of ragged sizes, one of zeros, one that is not finite."""
    x = torch.randn(PROBE_ROWS, columns, generator=rng)
    x *= 10.0 ** torch.linspace(-2, 2, PROBE_ROWS)[:, None]
    x[3] = 0
    if name == "quantise":
        x[5, columns // 2] = torch.nan
        return (x.to(wide),)
    bias = torch.randn(columns, generator=rng)
    product: tuple[Tensor | None, ...] = x.to(wide), None, None, None
    if kind == "int8":
        sums = torch.randint(-1 << 20, 1 << 20, x.shape, dtype=torch.int32, generator=rng)
        row_scales = torch.rand(PROBE_ROWS, 1, generator=rng) * 1e-3
        row_scales[5] = torch.nan
        product = sums, row_scales, torch.rand(columns, generator=rng) * 1e-3, bias
    if name != "add_norm_quantise":
        return product
    residual = torch.randn(x.shape, generator=rng).to(wide)
    return (*product, residual, torch.rand(columns, generator=rng) + 0.5, bias, 1e-12)


def _difference(kind: str, found: Sequence[Tensor], wanted: Sequence[Tensor]) -> str:
    """What is wrong with the results (rows wide, codes and scales, or both) of an operation."""
    for part, like in zip(found, wanted):
        is_scale, is_codes = like.size(1) == 1, like.dtype == CODES[kind]
        like = like.double()
        is_fine = like.isfinite()
        if is_codes:        # where the scale is NaN they are anything
            is_fine = is_fine & wanted[-1].isfinite()
        elif not torch.equal(part.isfinite(), is_fine):
            return "rows that are not finite come out otherwise"
        allowed = 1e-4 if is_scale else STEPS[kind] if is_codes \
            else WIDE_TOLERANCES[wanted[0].dtype]
        reach = like.where(is_fine, torch.zeros(())).abs().amax(1, True)
        far = ((part.double() - like).abs() > allowed * reach + 1e-6) & is_fine
        if far.any():
            return f"{int(far.sum())} of {far.numel()} results are wrong"
    return ""


def first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
