"""Columns in registers, against numpy's."""

import numpy as np
import pytest

from model.native.arguments import Fields
from model.native.assembler import Assembler
from model.native.executable import Executable
from model.native.operands import RAX, RDX, ZMM, at
from model.native.transposition import column_lane, emit_columns
from tests.guarded import skip_without

FIELDS = Fields("rows", "columns")
REGISTERS = {4: 7, 8: 11, 12: 14, 16: 17}


@pytest.mark.parametrize("count", [4, 8, 12, 16])
def test_columns_hold_all_rows_in_their_lanes(count):
    skip_without()
    a = Assembler()
    a.label("columns")
    a.mov(RAX, FIELDS.of("rows"))
    a.mov(RDX, FIELDS.of("columns"))
    spare = list(ZMM[32 - REGISTERS[count]:])
    for place, register in emit_columns(a, [at(RAX, 64 * row) for row in range(count)], spare):
        a.vmovups_to(at(RDX, 64 * place), register)
        spare.append(register)
    a.ret()
    code = Executable(*a.finish())
    rows = np.random.default_rng(0).standard_normal((count, 16)).astype(np.float32)
    columns = np.zeros((16, 16), np.float32)
    code.function("columns")(FIELDS.block(rows=rows, columns=columns).ctypes.data)
    lanes = [column_lane(row, count) for row in range(count)]
    assert np.array_equal(columns[:, lanes], rows.T)
    assert np.isin(columns, rows).all()
