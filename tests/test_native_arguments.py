"""A kernel's block: words in their order, addresses of arrays, and no word too few or too many."""

import numpy as np
import pytest

from model.native.arguments import Fields
from model.native.operands import RDI, at

FIELDS = Fields("rows", "x", "y")


def test_fields_places_follow_the_order_of_names():
    assert [FIELDS.of(name) for name in FIELDS.names] == [at(RDI, 0), at(RDI, 8), at(RDI, 16)]


def test_fields_unknown_name_has_no_place():
    with pytest.raises(KeyError):
        FIELDS.of("z")


def test_block_holds_numbers_and_addresses_in_order():
    x, y = np.zeros(4, np.float32), np.arange(6, dtype=np.uint8)
    block = FIELDS.block(y=y[2:], rows=-3, x=x)
    assert block.dtype == np.int64 and block.flags.c_contiguous
    assert block.tolist() == [-3, x.ctypes.data, y.ctypes.data + 2]


@pytest.mark.parametrize("words", [
    {"rows": 1, "x": 2}, {"rows": 1, "x": 2, "y": 3, "z": 4}, {"rows": 1, "x": 2, "Y": 3}, {}])
def test_block_with_words_missing_or_strange_is_refused_with_their_names(words):
    with pytest.raises(KeyError, match="rows.*x.*y"):
        FIELDS.block(**words)


def test_block_numbers_of_64_bits_only():
    assert FIELDS.block(rows=(1 << 63) - 1, x=-(1 << 63), y=0)[0] == (1 << 63) - 1
    with pytest.raises(OverflowError):
        FIELDS.block(rows=1 << 63, x=0, y=-1)
