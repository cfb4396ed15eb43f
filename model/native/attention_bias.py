"""Biases of scores by relative positions: how they lie in memory, and where kernels find them."""

from __future__ import annotations

import numpy as np

from model.native.assembler import Assembler
from model.native.attention_rows import BIASED_ATTENTION, LANES, Attention
from model.native.operands import R10, Gpr, Mem, at


def bias_distances(longest: int, one_query: bool) -> np.ndarray:
    """int64: for each column of a head's biases, how far the key is behind the query.

    A vector of scores finds its biases side by side: of one key and queries ever farther on, or,
    of one query, the text's first, keys ever farther on.
    """
    reach = _reach(longest)
    return np.arange(reach) if one_query else np.arange(reach, -reach, -1)


def emit_head_biases(a: Assembler, shape: Attention, target: Gpr) -> None:
    """`target` becomes what head_bias counts from, for the head of which R10 heads are left."""
    a.imul(target, R10, -4 * _stride(shape))
    a.add(target, BIASED_ATTENTION.of("biases"))


def head_bias(shape: Attention, base: Gpr, distance: int) -> Mem:
    """The head's biases of this distance, key - query, and those after it."""
    column = distance if shape.one_query else _reach(shape.longest) - distance
    return at(base, 4 * (shape.heads * _stride(shape) + column))


def _stride(shape: Attention) -> int:
    return len(bias_distances(shape.longest, shape.one_query))


def _reach(longest: int) -> int:
    """Queries and keys come in whole vectors."""
    return -(-longest // LANES) * LANES
