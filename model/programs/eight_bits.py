"""Layers of BERT's kind whose products after attention multiply 8-bit codes, on a device.

Weights have one scale a channel, inputs one a token (model.programs.row_ops), found as they come.
Queries, keys and values stay wide: of all products they bear 8 bits worst (logits of minilm-trec6's
goldens are 0.12 off in int8 with them and 0.08 without), and as sums of int8 they would be much of
a layer's traffic. So does the first layer of a deep model, whose errors go through all the others
(fp8's logits there are 0.11 off with it and 0.085 without). Attention, norms and sums stay wide or
in float32; so do the embeddings, the head, and what the last layer does to the first token of each
text only: its rows are too few for the operators.

Tensor letters are those of model.programs.padded; T is B·L.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from model.families.shapes import LayerNames
from model.programs.image import Image
from model.programs.padded import Weights
from model.programs.parts import activate
from model.programs.row_ops import LEAST, PlainRows

# By kind: the type of codes, and what the operators want every width to be a multiple of.
CODES = {"int8": torch.int8, "fp8": torch.float8_e4m3fn}
MULTIPLES = {"int8": 8, "fp8": 16}
# torch._int_mm takes more rows than this on CUDA; fewer are filled up.
INT_MM_ROWS = 16
# Scales within an octave that are tried for a channel of e4m3.
SCALE_STEPS = 8
# A model of more different layers than this keeps its first one wide.
SHALLOW = 3


@dataclass(frozen=True)
class Operators:
    """What a device computes 8-bit products of one `kind` with (model.programs.operators finds
    out). `product_type` is what torch._scaled_mm gives; `rows` is a model.programs.row_ops.RowOps;
    `report` says what was chosen, a line each."""

    kind: str
    wide: torch.dtype
    product_type: torch.dtype
    rows: nn.Module
    report: tuple[str, ...] = ()


class IntegerProduct(nn.Module):
    """codes · Wᵀ as exact sums: codes int8 [T, K], scales [T, 1] → (sums int32 [T, N], and what
    makes them complete)."""

    def __init__(self, name: str, weight: Tensor, scales: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.name = name
        self.weight, self.column_scales, self.bias = weight, scales, bias
        self.few: int = INT_MM_ROWS

    def forward(self, codes: Tensor, scales: Tensor
                ) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
        rows = codes.size(0)
        if rows <= self.few:
            codes = nn.functional.pad(codes, [0, 0, 0, 2 * self.few - rows])
        sums = torch._int_mm(codes, self.weight.t()).narrow(0, 0, rows)
        return sums, scales, self.column_scales, self.bias


class FloatProduct(nn.Module):
    """codes · Wᵀ complete: codes e4m3 [T, K], scales [T, 1] → (wide [T, N], None, None, None)."""

    def __init__(self, name: str, weight: Tensor, scales: Tensor, bias: Tensor,
                 operators: Operators) -> None:
        super().__init__()
        self.name = name
        self.weight, self.column_scales = weight, scales.view(1, -1)
        self.bias = bias.to(operators.product_type)
        self.product_type, self.wide = operators.product_type, operators.wide

    def forward(self, codes: Tensor, scales: Tensor
                ) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
        product = torch._scaled_mm(codes, self.weight.t(), scales, self.column_scales,
                                   bias=self.bias, out_dtype=self.product_type,
                                   use_fast_accum=True)
        return product.to(self.wide), None, None, None


class CodeWeights(Weights):
    """Makes the parts of an 8-bit network, and those that stay wide."""

    def __init__(self, image: Image, settings: dict[str, Any], operators: Operators,
                 capability: tuple[int, int], place: Any) -> None:
        super().__init__(image, settings, operators.wide, capability, place)
        self.operators = operators
        # ALBERT's layers are one, or a few, that come back.
        self._wide_layers = int(settings.get("groups", settings["layers"]) > SHALLOW)

    def codes_product(self, name: str, after: str = "") -> nn.Module:
        """The product with the weight `name` as codes. Where its inputs come from the LayerNorm
        `after`, whose shift is about their mean, the bias takes back what rounding the weight adds
        to that: 6 % of all error of fp8 in MiniLM."""
        weight, bias = self.wide(name + ".weight"), self._exact_bias(name)
        codes, scales = quantised(weight, self.operators.kind)
        if after:
            bias -= (codes.float() * scales[:, None] - weight) @ self._exact_bias(after)
        placed = [self._place(part) for part in (codes, scales, bias)]
        if self.operators.kind == "int8":
            return IntegerProduct(name, *placed)
        return FloatProduct(name, *placed, self.operators)

    def after(self, names: LayerNames, activation: str, for_firsts: bool) -> nn.Module:
        is_kept = not for_firsts and self._wide_layers > 0
        if for_firsts or is_kept:
            self._wide_layers -= is_kept
            return super().after(names, activation, for_firsts)
        return AfterAttention(self, names, activation)

    def exact_norm(self, name: str) -> tuple[Tensor, Tensor, float]:
        """(gain, shift, epsilon) of the LayerNorm `name`, in float32."""
        return (self._place(self.wide(name + ".weight").clone()),
                self._place(self._exact_bias(name)), self._eps)

    def _exact_bias(self, name: str) -> Tensor:
        return self._image.bias(name).clone()


def quantised(weight: Tensor, kind: str) -> tuple[Tensor, Tensor]:
    """A float32 weight [N, K] → codes [N, K], scales float32 [N], one a channel.

    Codes of e4m3 are no ladder of even steps, so a larger scale than the least may round a channel
    better: the best of several is taken, which saves some 6 % of the error.
    """
    rows = PlainRows(CODES[kind], torch.float32)
    codes, scales = rows.quantise(weight)
    if kind == "int8":
        return codes, scales.flatten()
    best, least = codes.float(), (codes.float() * scales - weight).square().sum(1, True)
    chosen = scales
    for step in range(1, SCALE_STEPS):
        tried = scales * 2.0 ** (step / SCALE_STEPS)
        found = (weight / tried.clamp_min(LEAST)).to(CODES[kind]).float()
        error = (found * tried - weight).square().sum(1, True)
        is_better = error < least
        best, chosen = best.where(~is_better, found), chosen.where(~is_better, tried)
        least = torch.minimum(least, error)
    return best.to(CODES[kind]), chosen.flatten()


class Wide(nn.Module):
    """A product of either form → wide [T, N]."""

    def __init__(self, rows: nn.Module) -> None:
        super().__init__()
        self.rows = rows

    def forward(self, product: Tensor, row_scales: Tensor | None, column_scales: Tensor | None,
                bias: Tensor | None) -> Tensor:
        if row_scales is None or column_scales is None or bias is None:
            return product
        return self.rows.dequantise_bias(product, row_scales, column_scales, bias)


class AddNorm(nn.Module):
    """LayerNorm(product + residual) of a product of either form → rows wide, codes, scales."""

    def __init__(self, rows: nn.Module, gain: Tensor, shift: Tensor, eps: float) -> None:
        super().__init__()
        self.rows, self.gain, self.shift, self.eps = rows, gain, shift, eps

    def forward(self, product: Tensor, row_scales: Tensor | None, column_scales: Tensor | None,
                bias: Tensor | None, residual: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.rows.add_norm_quantise(product, row_scales, column_scales, bias, residual,
                                           self.gain, self.shift, self.eps)


class Activation(nn.Module):
    """The activation of a product of either form → codes, scales."""

    def __init__(self, rows: nn.Module, name: str) -> None:
        super().__init__()
        self.rows, self.wide = rows, Wide(rows)
        self.name: str = name

    def forward(self, product: Tensor, row_scales: Tensor | None, column_scales: Tensor | None,
                bias: Tensor | None) -> tuple[Tensor, Tensor]:
        if self.name == "gelu":
            return self.rows.gelu_quantise(product, row_scales, column_scales, bias)
        return self.rows.quantise(activate(
            self.wide(product, row_scales, column_scales, bias), self.name))


class AfterAttention(nn.Module):
    """What follows attention in a layer, its products in 8 bits: mixed and x wide [T, D] → [T, D].
    """

    def __init__(self, made: CodeWeights, names: LayerNames, activation: str) -> None:
        super().__init__()
        self.rows = made.operators.rows
        self.project = made.codes_product(names.project)
        self.norm_attention = AddNorm(self.rows, *made.exact_norm(names.norm_attention))
        self.widen = made.codes_product(names.widen, after=names.norm_attention)
        self.activation = Activation(self.rows, activation)
        self.narrow = made.codes_product(names.narrow)
        self.norm_output = AddNorm(self.rows, *made.exact_norm(names.norm_output))

    def forward(self, mixed: Tensor, x: Tensor) -> Tensor:
        codes, scales = self.rows.quantise(mixed)
        product, row_scales, column_scales, bias = self.project(codes, scales)
        x, codes, scales = self.norm_attention(product, row_scales, column_scales, bias, x)
        product, row_scales, column_scales, bias = self.widen(codes, scales)
        codes, scales = self.activation(product, row_scales, column_scales, bias)
        product, row_scales, column_scales, bias = self.narrow(codes, scales)
        return self.norm_output(product, row_scales, column_scales, bias, x)[0]
