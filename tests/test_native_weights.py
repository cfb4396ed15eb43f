"""Weights of an image become what the kernels of products read, bit for bit."""

import numpy as np
import pytest

from loader.safetensors import file_bytes
from model.native.products import packed_columns, packed_weight
from model.native.sums import ROWS, STEP, TILE
from model.native.weights import Weight, Weights
from model.programs.image import Image

SHAPES = [(32, 16), (3, 32), (48, 80), (100, 48), (33, 208)]


class Stored:
    """Random products by name, of 8 bits or of float32, and what reads them."""

    def __init__(self, *shapes: tuple[int, int], bits: int = 8, seed: int = 1, **more) -> None:
        rng = np.random.default_rng(seed)
        self.arrays: dict[str, np.ndarray] = dict(more)
        for number, (outputs, inputs) in enumerate(shapes):
            name = f"p{number}"
            self.arrays[f"{name}.bias"] = rng.standard_normal(outputs).astype(np.float32)
            if bits == 8:
                self.arrays[f"{name}.weight"] = rng.integers(
                    -127, 128, (outputs, inputs)).astype(np.int8)
                self.arrays[f"{name}.scales"] = rng.random(outputs).astype(np.float32) + 1
            else:
                self.arrays[f"{name}.weight"] = rng.standard_normal(
                    (outputs, inputs)).astype(np.float32)

    def weights(self, unit: str = "amx") -> Weights:
        return Weights(Image(file_bytes(self.arrays)), unit)


def unpacked(weight: Weight) -> np.ndarray:
    """The weights [N, K] out of their order, element by element."""
    is_coded = weight.is_coded
    values = weight.packed.view(np.int8 if is_coded else np.float32)
    each = 4 if is_coded else 1                        # numbers in 4 bytes
    step = STEP // values.itemsize                     # inputs of a step
    steps = weight.row_bytes // STEP
    found = np.empty((weight.outputs, weight.inputs), values.dtype)
    for row in range(weight.outputs):
        group, half, column = row // ROWS, row % ROWS // TILE, row % TILE
        for place in range(weight.inputs):
            tile = (group * steps + place // step) * 2 + half
            line, rest = divmod(place % step, each)
            found[row, place] = values[((tile * TILE + line) * TILE + column) * each + rest]
    return found


@pytest.mark.parametrize("bits", [8, 32])
def test_product_s_part_has_its_outputs_and_no_memory_of_its_own(bits):
    whole = Stored((64, 80), (64, 80), bits=bits).weights().product("p0", "p1")
    part = whole.part(32, 96)
    assert (part.outputs, part.inputs) == (64, 80)
    assert np.array_equal(unpacked(part), unpacked(whole)[32:96])
    assert np.array_equal(part.columns, whole.columns[1:3])
    assert np.shares_memory(part.packed, whole.packed)


def test_product_that_is_asked_for_again_is_the_same():
    weights = Stored((48, 80), (48, 80)).weights()
    assert weights.product("p0", "p1") is weights.product("p0", "p1")
    assert weights.product("p0") is not weights.product("p0", least=-0.17)


@pytest.mark.parametrize("bits", [8, 32])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_product_s_weights_lie_in_steps_of_tiles(shape, bits):
    stored = Stored(shape, bits=bits)
    weight = stored.weights().product("p0")
    assert (weight.outputs, weight.inputs) == shape
    assert weight.unit == ("amx" if bits == 8 else "avx512")
    assert weight.row_bytes % STEP == 0
    groups = -(-shape[0] // ROWS)
    assert weight.packed.nbytes == groups * ROWS * weight.row_bytes
    assert np.array_equal(unpacked(weight), stored.arrays["p0.weight"])
    assert weight.packed.ctypes.data % STEP == 0 and weight.columns.ctypes.data % STEP == 0


@pytest.mark.parametrize("dtype", [np.int8, np.float32])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_packed_weight_has_nothing_but_zeros_where_it_is_filled_up(shape, dtype):
    ones = packed_weight(np.ones(shape, dtype)).view(dtype)
    assert ones.sum() == shape[0] * shape[1] and set(np.unique(ones)) <= {0, 1}


@pytest.mark.parametrize("bits", [8, 32])
def test_product_of_several_names_has_their_weights_one_below_the_other(bits):
    stored = Stored((16, 32), (48, 32), (8, 32), bits=bits)
    weight = stored.weights().product("p0", "p1", "p2")
    parts = [stored.arrays[f"p{number}.weight"] for number in range(3)]
    assert np.array_equal(unpacked(weight), np.concatenate(parts))
    biases = weight.columns.view(np.float32)[:, 2].reshape(-1)
    assert np.array_equal(biases[:72], np.concatenate(
        [stored.arrays[f"p{number}.bias"] for number in range(3)]))
    assert not biases[72:].any()


@pytest.mark.parametrize("least, steps, zero_point", [(0.0, 127, 128), (-0.17, 238, 16)])
def test_product_of_codes_has_scales_by_step_and_takes_back_the_zero_point(least, steps,
                                                                          zero_point):
    stored = Stored((40, 48))
    weight = stored.weights().product("p0", least=least)
    corrections, scales, biases = weight.columns.transpose(1, 0, 2).reshape(3, -1)[:, :40]
    values = stored.arrays["p0.weight"].astype(np.int64)
    assert np.array_equal(corrections, -zero_point * values.sum(1))
    assert np.array_equal(scales.view(np.float32),
                          stored.arrays["p0.scales"] / np.float32(steps))
    assert np.array_equal(biases.view(np.float32), stored.arrays["p0.bias"])
    assert weight.least == least and weight.factors is None


def test_product_s_corrections_do_not_overflow_where_all_weights_are_the_largest():
    stored = Stored((32, 4096))
    stored.arrays["p0.weight"][...] = 127
    columns = stored.weights().product("p0").columns
    assert (columns[:, 0] == -128 * 127 * 4096).all()


def test_product_s_factors_are_one_by_the_first_name_s_divisors():
    divisors = np.array([0.3, 7, 1] * 16, np.float32)
    stored = Stored((16, 48), (16, 48), **{"p0.divisors": divisors})
    weights = stored.weights("vnni")
    both, second = weights.product("p0", "p1"), weights.product("p1")
    assert both.unit == "vnni"
    assert np.array_equal(both.factors, np.float32(1) / divisors) and second.factors is None


def test_product_without_a_bias_has_one_of_zeros():
    stored = Stored((16, 32), bits=32)
    del stored.arrays["p0.bias"]
    assert not stored.weights().product("p0").columns.any()


def test_product_s_class_tells_bits_and_shape():
    assert Stored((16, 32)).weights().product("p0").layer_class == "int8 16x32"
    assert Stored((16, 32), bits=32).weights().product("p0").layer_class == "fp32 16x32"


def test_packed_columns_of_float32_have_no_scales():
    columns = packed_columns(np.arange(33, dtype=np.float32))
    assert columns.shape == (2, 3, 32) and not columns[:, :2].any()


def test_norm_without_a_shift_has_zeros():
    weights = Stored(**{"n.weight": np.ones(16, np.float32), "m.bias": np.ones(16, np.float32)}
                     ).weights()
    assert not weights.shift("n").any() and weights.shift("m").all()


def test_table_is_no_copy_where_it_is_stored_as_float32():
    table = np.arange(64, dtype=np.float32).reshape(4, 16)
    image = file_bytes({"t": table, "h": table.astype(np.float16)})
    weights = Weights(Image(image), "vnni")
    assert np.array_equal(weights.table("t"), table)
    assert np.shares_memory(weights.table("t"), np.frombuffer(image, np.uint8))
    assert np.array_equal(weights.table("h"), table)
