"""Names and shapes of the parts that encoders are made of: products, norms, post-norm layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

Shapes = dict[str, tuple[int, ...]]


def dense(name: str, outputs: int, inputs: int, bias: bool = True) -> Shapes:
    """The tensors of x · Wᵀ + b."""
    return {f"{name}.weight": (outputs, inputs), **({f"{name}.bias": (outputs,)} if bias else {})}


def norm(name: str, size: int, bias: bool = True) -> Shapes:
    """The tensors of a LayerNorm."""
    return {f"{name}.weight": (size,), **({f"{name}.bias": (size,)} if bias else {})}


def table(name: str, rows: int, size: int) -> Shapes:
    """The tensor of an embedding table."""
    return {f"{name}.weight": (rows, size)}


class LayerNames(NamedTuple):
    """What a family calls the parts of a layer that normalises after each of its two halves:

    x = norm_attention(x + project(attention(query(x), key(x), value(x))))
    x = norm_output(x + narrow(activation(widen(x))))
    """

    query: str
    key: str
    value: str
    project: str
    norm_attention: str
    widen: str
    narrow: str
    norm_output: str

    def at(self, here: str) -> LayerNames:
        """The full names of the layer at `here`: "bert.encoder.layer.0."."""
        return LayerNames(*(here + name for name in self))

    def shapes(self, settings: Mapping[str, Any]) -> Shapes:
        """The tensors of a layer by settings' hidden_size and intermediate."""
        hidden, inner = settings["hidden_size"], settings["intermediate"]
        return {**dense(self.query, hidden, hidden), **dense(self.key, hidden, hidden),
                **dense(self.value, hidden, hidden), **dense(self.project, hidden, hidden),
                **norm(self.norm_attention, hidden), **dense(self.widen, inner, hidden),
                **dense(self.narrow, hidden, inner), **norm(self.norm_output, hidden)}


BERT_LAYER = LayerNames(
    query="attention.self.query", key="attention.self.key", value="attention.self.value",
    project="attention.output.dense", norm_attention="attention.output.LayerNorm",
    widen="intermediate.dense", narrow="output.dense", norm_output="output.LayerNorm")
