"""Products as machine code against numpy."""

from dataclasses import replace

import numpy as np
import pytest

from model.native.arguments import Fields
from model.native.assembler import Assembler
from model.native.products import Product, emit_product, packed_columns, packed_weight
from model.native.sums import ROWS, STEP
from model.native.tiles import PALETTE_BYTES, emit_tiles_begin, emit_tiles_end
from tests.guarded import run_code, skip_without

UNITS = ("amx", "vnni", "avx512")
SHAPES = ((64, 32), (128, 384), (384, 1152), (100, 48), (1536, 16), (16, 6))  # inputs, outputs
COUNTS = (1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 65)
ZERO_POINT = 128


def emit_alone(a: Assembler, fields: Fields, product: Product) -> None:
    """The label "kernel": a product as in a call of its own."""
    a.label("kernel")
    labels = ["product"] if product.unit != "amx" else ["begin", "product", "end"]
    for label in labels:
        a.call(label)
    a.ret()
    emit_product(a, "product", fields, product)
    if product.unit == "amx":
        emit_tiles_begin(a, "begin", fields)
        emit_tiles_end(a, "end", fields)


class Case:
    """One product: arrays for a kernel, and what it must make of them, float64 [T, N]."""

    def __init__(self, unit: str, inputs: int, outputs: int, rows: int, residual: bool = False,
                 seed: int = 0) -> None:
        skip_without(unit)
        rng = np.random.default_rng([seed, inputs, outputs])
        bias = rng.standard_normal(outputs).astype(np.float32)
        self.outputs, wide_stride = outputs, -(-outputs // ROWS) * ROWS * 4
        # Kernels read whole blocks, whatever is in them.
        spare = np.full((ROWS, inputs), 77 if unit != "avx512" else np.nan)
        if unit == "avx512":
            inputs = inputs // 16 * 16
            weight = rng.standard_normal((outputs, inputs)).astype(np.float32)
            x = rng.standard_normal((rows, inputs)).astype(np.float32)
            self.expected = x.astype(np.float64) @ weight.T + bias
            columns, words = packed_columns(bias), {}
            row_bytes = stride = 4 * inputs
            given = np.concatenate([x, spare[:, :inputs].astype(np.float32)])
        else:
            weight = rng.integers(-127, 128, (outputs, inputs)).astype(np.int8)
            scales = rng.random(outputs).astype(np.float32) * 1e-3
            row_bytes = stride = -(-inputs // STEP) * STEP
            codes = rng.integers(0, 256, (rows + ROWS, row_bytes)).astype(np.uint8)
            reaches = rng.random(rows + ROWS).astype(np.float32)
            wide = weight.astype(np.int64)
            sums = (codes[:rows, :inputs].astype(np.int64) - ZERO_POINT) @ wide.T
            self.expected = sums * scales.astype(np.float64) * reaches[:rows, None] + bias
            columns = packed_columns(bias, scales, -ZERO_POINT * wide.sum(1))
            words, given = {"input_reaches": reaches}, codes
        self.product = Product(unit, row_bytes, stride, outputs, wide_stride, residual=residual)
        self.arrays = {"palette": np.zeros(PALETTE_BYTES, np.uint8), "rows": np.array([rows]),
                       "inputs": given, "weight": packed_weight(weight),
                       "columns": columns,
                       "wide": np.zeros((rows, wide_stride // 4), np.float32), **words}
        if residual:
            added = rng.standard_normal((rows, outputs)).astype(np.float32)
            self.arrays["wide"][:, :outputs] = added
            self.expected = self.expected + added

    def run(self, **changes) -> np.ndarray:
        """float32 [T, N]."""
        product = replace(self.product, **changes)
        run_code(lambda a, fields: emit_alone(a, fields, product), self.arrays)
        return self.arrays["wide"][:, :self.outputs].copy()


def assert_near(found: np.ndarray, expected: np.ndarray) -> None:
    """Within the rounding of float32 sums, whose terms are as large as the results."""
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6 * np.abs(expected).max() + 2e-6)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("shape", SHAPES)
def test_product_of_any_shape_is_that_of_numpy(unit, shape):
    case = Case(unit, *shape, rows=33)
    assert_near(case.run(), case.expected)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("rows", COUNTS)
def test_product_of_any_number_of_rows_writes_these_rows_alone(unit, rows):
    case = Case(unit, 128, 48, rows)
    assert_near(case.run(), case.expected)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("activation", ["", "gelu", "tanh"])
def test_product_of_a_row_does_not_depend_on_its_company(unit, activation):
    case = Case(unit, 128, 96, 65)
    together = case.run(activation=activation)
    given = case.arrays["inputs"].copy()
    reaches = case.arrays.get("input_reaches", np.zeros(0)).copy()
    for row in (0, 15, 16, 40, 64):
        case.arrays["inputs"][:1] = given[row]
        if len(reaches):
            case.arrays["input_reaches"][:1] = reaches[row]
        case.arrays["rows"][0] = 1
        np.testing.assert_array_equal(case.run(activation=activation)[0], together[row])


def test_product_of_codes_is_the_same_by_either_unit():
    one, other = Case("amx", 384, 96, 40), Case("vnni", 384, 96, 40)
    np.testing.assert_array_equal(one.run(), other.run())


@pytest.mark.parametrize("unit", ["amx", "vnni"])
def test_product_of_codes_at_the_ends_of_their_range_does_not_saturate(unit):
    case = Case(unit, 1536, 32, 16)
    weight = np.full((32, 1536), 127, dtype=np.int8)
    weight[1::2] = -127
    case.arrays["inputs"][...] = 255
    case.arrays["weight"][...] = packed_weight(weight)
    case.arrays["columns"][...] = packed_columns(np.zeros(32), np.ones(32), np.zeros(32))
    case.arrays["input_reaches"][...] = 1
    np.testing.assert_array_equal(case.run()[:, :2], [[255 * 127 * 1536, -255 * 127 * 1536]] * 16)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("outputs", [32, 48])
def test_product_adds_residual(unit, outputs):
    case = Case(unit, 64, outputs, 20, residual=True)
    assert_near(case.run(), case.expected)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("name, function", [("relu", lambda x: np.maximum(x, 0)),
                                            ("tanh", np.tanh)])
def test_product_applies_activation(unit, name, function):
    case = Case(unit, 64, 48, 20)
    assert_near(case.run(activation=name), function(case.expected))


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("residual", [False, True])
def test_product_hands_blocks_of_rows_to_finish(unit, residual):
    case = Case(unit, 64, 32, 70)
    case.arrays["seen"] = np.zeros(64, dtype=np.int64)
    whole = case.run()
    case.arrays["wide"][...] = 0

    def emit(a, fields):
        from model.native.operands import RAX, RCX, RDX, RSI, at
        emit_alone(a, fields, replace(case.product, residual=residual,
                                      finish="finish"))
        a.label("finish")  # notes (first row, rows, address) in the next three words of `seen`
        a.mov(RAX, fields.of("seen"))
        again = a.fresh("again")
        a.label(again)
        a.add(RAX, 24)
        a.cmp(at(RAX, -16), 0)
        a.jne(again)
        a.mov(at(RAX, -24), RSI)
        a.mov(at(RAX, -16), RDX)
        a.mov(at(RAX, -8), RCX)
        a.ret()

    run_code(emit, case.arrays)
    seen = case.arrays["seen"][:9].reshape(3, 3)
    np.testing.assert_array_equal(seen[:, :2], [[0, 32], [32, 32], [64, 6]])
    if residual:    # whose rows are where the result is to be
        np.testing.assert_array_equal(np.diff(seen[:, 2]), 32 * 4 * 32)
        np.testing.assert_array_equal(case.arrays["wide"], whole)
    else:
        assert len(set(seen[:, 2])) == 1
        np.testing.assert_array_equal(case.arrays["wide"][:6, :32], whole[64:])  # the last block


def test_packed_weight_fills_up_with_zeros():
    packed = packed_weight(np.full((6, 10), -1, dtype=np.int8)).view(np.int8)
    assert len(packed) == ROWS * STEP and packed.sum() == -60
