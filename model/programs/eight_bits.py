"""Layers of BERT's kind whose products multiply 8-bit codes, on a device.

Weights have one scale a channel, inputs one a token (model.programs.row_ops), found as they come.
Each half of a layer gives its rows both wide, for what is added to them later, and as codes, for
the next product. Attention, norms and sums stay wide or in float32; so do the embeddings, the head,
and what the last layer does to the first token of each text only: that is little work, and its
rows are too few for the operators.

Tensor letters are those of model.programs.padded; T is B·L.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from model.families.shapes import LayerNames
from model.programs.image import Image
from model.programs.padded import AfterAttention, Weights, firsts
from model.programs.parts import activate
from model.programs.row_ops import PlainRows

# By kind: the type of codes, and what the operators want every width to be a multiple of.
CODES = {"int8": torch.int8, "fp8": torch.float8_e4m3fn}
MULTIPLES = {"int8": 8, "fp8": 16}
# torch._int_mm takes more rows than this on CUDA; fewer are filled up.
INT_MM_ROWS = 16


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

    def __init__(self, names: list[str], weight: Tensor, scales: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.names = names
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

    def __init__(self, names: list[str], weight: Tensor, scales: Tensor, bias: Tensor,
                 operators: Operators) -> None:
        super().__init__()
        self.names = names
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

    def codes_product(self, *names: str) -> nn.Module:
        """The product with the weights `names`, one below the other, as codes."""
        weight = torch.cat([self.wide(name + ".weight") for name in names])
        biases = [self._exact_bias(name) for name in names]
        placed = [self._place(part) for part in
                  (*quantised(weight, self.operators.kind), torch.cat(biases))]
        if self.operators.kind == "int8":
            return IntegerProduct(list(names), *placed)
        return FloatProduct(list(names), *placed, self.operators)

    def exact_norm(self, name: str) -> tuple[Tensor, Tensor, float]:
        """(gain, shift, epsilon) of the LayerNorm `name`, in float32."""
        return (self._place(self.wide(name + ".weight").clone()),
                self._place(self._exact_bias(name)), self._eps)

    def _exact_bias(self, name: str) -> Tensor:
        if self._image.has(name + ".bias"):
            return self.wide(name + ".bias").clone()
        return torch.zeros(len(self.wide(name + ".weight")))


def quantised(weight: Tensor, kind: str) -> tuple[Tensor, Tensor]:
    """A float32 weight [N, K] → codes [N, K], scales float32 [N], one a channel."""
    codes, scales = PlainRows(CODES[kind], torch.float32).quantise(weight)
    return codes, scales.flatten()


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


class Attention(nn.Module):
    """Queries, keys and values by an 8-bit product, and what attention mixes of them."""

    def __init__(self, made: CodeWeights, names: LayerNames, settings: dict[str, Any],
                 for_firsts: bool) -> None:
        super().__init__()
        self.query_key_value = made.codes_product(names.query, names.key, names.value)
        self.wide = Wide(made.operators.rows)
        self.attend = made.attention
        self.heads: int = settings["heads"]
        self.for_firsts = for_firsts

    def forward(self, codes: Tensor, scales: Tensor, starts: Tensor, key_starts: Tensor,
                lengths: Tensor, length: int) -> Tensor:
        product, row_scales, column_scales, bias = self.query_key_value(codes, scales)
        y = self.wide(product, row_scales, column_scales, bias)             # [T, 3D]
        tokens, hidden = codes.size(0), codes.size(1)
        query, key, value = y.view(tokens, 3, self.heads, hidden // self.heads).unbind(1)
        if self.for_firsts:
            return self.attend(firsts(query, length), key, value, starts, key_starts, lengths,
                               1, length).reshape(-1, hidden)               # [B, D]
        return self.attend(query, key, value, key_starts, key_starts, lengths, length,
                           length).reshape(tokens, hidden)


class Layer(nn.Module):
    """A layer for all tokens: x wide [T, D], its codes and scales → the same of the next."""

    def __init__(self, made: CodeWeights, names: LayerNames,
                 settings: dict[str, Any]) -> None:
        super().__init__()
        self.rows = made.operators.rows
        self.attention = Attention(made, names, settings, False)
        self.project = made.codes_product(names.project)
        self.norm_attention = AddNorm(self.rows, *made.exact_norm(names.norm_attention))
        self.widen = made.codes_product(names.widen)
        self.activation = Activation(self.rows, settings["activation"])
        self.narrow = made.codes_product(names.narrow)
        self.norm_output = AddNorm(self.rows, *made.exact_norm(names.norm_output))

    def forward(self, x: Tensor, codes: Tensor, scales: Tensor, starts: Tensor, key_starts: Tensor,
                lengths: Tensor, length: int) -> tuple[Tensor, Tensor, Tensor]:
        mixed = self.attention(codes, scales, starts, key_starts, lengths, length)
        codes, scales = self.rows.quantise(mixed)
        product, row_scales, column_scales, bias = self.project(codes, scales)
        x, codes, scales = self.norm_attention(product, row_scales, column_scales, bias, x)
        product, row_scales, column_scales, bias = self.widen(codes, scales)
        codes, scales = self.activation(product, row_scales, column_scales, bias)
        product, row_scales, column_scales, bias = self.narrow(codes, scales)
        return self.norm_output(product, row_scales, column_scales, bias, x)


class LastLayer(nn.Module):
    """The last layer: 8 bits as far as it is for all tokens."""

    def __init__(self, made: CodeWeights, names: LayerNames,
                 settings: dict[str, Any]) -> None:
        super().__init__()
        self.attention = Attention(made, names, settings, True)
        self.after = AfterAttention(made, names, settings["activation"])

    def forward(self, x: Tensor, codes: Tensor, scales: Tensor, starts: Tensor, key_starts: Tensor,
                lengths: Tensor, length: int) -> Tensor:
        mixed = self.attention(codes, scales, starts, key_starts, lengths, length)
        return self.after(mixed, firsts(x, length))                         # [B, D]


class Encoder(nn.Module):
    """All layers, the last one for the first tokens; one that is named again is the same."""

    def __init__(self, made: CodeWeights, names: Sequence[LayerNames],
                 settings: dict[str, Any]) -> None:
        super().__init__()
        self.rows = made.operators.rows
        known = {name: Layer(made, name, settings) for name in dict.fromkeys(names[:-1])}
        self.layers = nn.ModuleList(known[name] for name in names[:-1])
        self.last = LastLayer(made, names[-1], settings)

    def forward(self, x: Tensor, starts: Tensor, key_starts: Tensor, lengths: Tensor,
                length: int) -> Tensor:
        codes, scales = self.rows.quantise(x)
        for layer in self.layers:
            x, codes, scales = layer(x, codes, scales, starts, key_starts, lengths, length)
        return self.last(x, codes, scales, starts, key_starts, lengths, length)
