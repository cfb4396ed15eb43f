"""Scores that know positions (DeBERTa): what queries and keys make of each other's distance.

score = query · key + query · place_key[distance] + key · place_query[distance]

Here is how the two tables lie in memory, and where kernels find a head's. Those of 16 queries take
a number of the head's width in its turn, those of one query a key in its turn: what they need for a
vector of scores lies side by side.
"""

from __future__ import annotations

import numpy as np

from model.native.assembler import Assembler
from model.native.attention_bias import bias_distances
from model.native.attention_rows import LANES, TERMS_ATTENTION, Attention
from model.native.memory import aligned
from model.native.operands import R10, Gpr, Mem, at

PLACE_KEY, PLACE_QUERY = 0, 1


def terms_of(place_key: np.ndarray, place_query: np.ndarray, longest: int, one_query: bool
             ) -> np.ndarray:
    """What the field `terms` points at; each table float32 [D, heads, width] for the distances
    key - query that bias_distances gives."""
    both = np.stack([place_key, place_query])
    if one_query:
        return aligned(both.transpose(2, 1, 0, 3))                          # [heads, D, 2, width]
    found = both.transpose(2, 0, 3, 1)                                      # [heads, 2, width, D]
    return aligned(np.pad(found, [(0, 0)] * 3 + [(0, _stride(longest) - found.shape[3])]))


def emit_head_terms(a: Assembler, shape: Attention, target: Gpr) -> None:
    """`target` becomes what the places below count from, for the head of which R10 are left."""
    a.imul(target, R10, -4 * _head_floats(shape))
    a.add(target, TERMS_ATTENTION.of("terms"))


def key_terms(shape: Attention, base: Gpr, key: int, term: int, vector: int) -> Mem:
    """Of one query: a vector of the row of this key."""
    column = (2 * key + term) * shape.width + LANES * vector
    return at(base, 4 * (shape.heads * _head_floats(shape) + column))


def query_terms(shape: Attention, base: Gpr, keys: Gpr, key: int, term: int, place: int) -> Mem:
    """Of 16 queries: number `place` of each one's row for the next key but `key`, where the
    register `keys` holds how many are left. `base` is what emit_head_terms gave, less four bytes
    for each row of queries that is left, these included."""
    reach = len(bias_distances(shape.longest, True))
    column = (shape.width * term + place) * _stride(shape.longest) + reach - key
    return at(base, 4 * (shape.heads * _head_floats(shape) + column), keys, 4)


def emit_next_part(a: Assembler, shape: Attention, base: Gpr) -> None:
    """On to the next 16 numbers of the head's width."""
    a.add(base, 4 * LANES * _stride(shape.longest))


def _stride(longest: int) -> int:
    """From one number of the width to the next: a line more than all distances, as powers of two
    would crowd into few sets of the core's first cache."""
    return len(bias_distances(longest, False)) + LANES


def _head_floats(shape: Attention) -> int:
    columns = len(bias_distances(shape.longest, True)) if shape.one_query \
        else _stride(shape.longest)
    return 2 * shape.width * columns
