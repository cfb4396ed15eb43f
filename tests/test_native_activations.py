"""Activations in machine code: near the true functions for all floats, and right at the ends."""

import math

import numpy as np
import pytest
import torch

from model.native.activations import PIECES, SMOOTH, Activation, fit, piece_edges
from model.native.arguments import Fields
from model.native.assembler import Assembler
from model.native.executable import Executable
from model.native.operands import RCX, RDX, RSI, ZMM, at
from model.programs.parts import LEAST, activate
from tests.guarded import skip_without

BLOCK = Fields("count", "x", "y")
# The largest error that may be, of float64; what the module's docstring says.
ERRORS = {"gelu": 6e-7, "gelu_tanh": 6e-7, "quick_gelu": 2e-6, "silu": 4e-6, "relu": 0.0}
NAMES = tuple(ERRORS)


def run(name: str, x: np.ndarray, together: int = 1) -> np.ndarray:
    """The activation of float32 [N], N a multiple of 16 · `together`: so many vectors at once."""
    skip_without()
    activation, a = Activation(name), Assembler()
    a.label("all")
    a.mov(RCX, BLOCK.of("count"))
    a.mov(RSI, BLOCK.of("x"))
    a.mov(RDX, BLOCK.of("y"))
    # Registers from both halves, and no more than it asks for.
    activation.load(a, ZMM[31:31 - activation.constants:-1])
    a.label("next")
    values = ZMM[5:5 + together]
    for place, value in enumerate(values):
        a.vmovups(value, at(RSI, 64 * place))
    activation.apply(a, values, ZMM[9:9 + together * activation.temporaries])
    for place, value in enumerate(values):
        a.vmovups_to(at(RDX, 64 * place), value)
    a.add(RSI, 64 * together)
    a.add(RDX, 64 * together)
    a.sub(RCX, 16 * together)
    a.jg("next")
    a.ret()
    executable = Executable(*a.finish())
    y = np.zeros_like(x)
    assert len(x) % (16 * together) == 0
    executable.function("all")(BLOCK.block(count=len(x), x=x, y=y).ctypes.data)
    return y


def true_values(name: str, x: np.ndarray) -> np.ndarray:
    """The function of finite numbers in float64; of large negative ones without cancellation."""
    wide = torch.from_numpy(x).double()
    if name == "gelu":
        return (wide * torch.special.erfc(-wide / math.sqrt(2)) / 2).numpy()
    if name == "gelu_tanh":
        inner = math.sqrt(8 / math.pi) * (wide + 0.044715 * wide ** 3)
        return (wide * torch.sigmoid(inner)).numpy()
    return activate(wide, name).numpy()


def all_sizes() -> np.ndarray:
    """Finite float32 of every exponent and both signs, 512 a sign and exponent."""
    bits = np.arange(0, 1 << 32, 1 << 14, dtype=np.uint64) + 0x1a5b
    x = bits.astype(np.uint32).view(np.float32)
    return x[np.isfinite(x)]


def near_edges(name: str) -> np.ndarray:
    """Both signs of the floats around each border between two pieces."""
    edges = piece_edges(SMOOTH[name].start).astype(np.float32)
    near = (edges.view(np.int32)[1:, None] + np.arange(-4, 4, dtype=np.int32)).view(np.float32)
    return np.concatenate([near.ravel(), -near.ravel()])


@pytest.mark.parametrize("name", NAMES)
def test_activation_floats_of_all_sizes_are_near_the_true_function(name):
    x = all_sizes()
    error = np.abs(run(name, x) - true_values(name, x))
    assert error.max() <= ERRORS[name], x[error.argmax()]


@pytest.mark.parametrize("name", NAMES)
def test_activation_where_it_bends_is_near_the_true_function(name):
    x = np.linspace(-20, 20, 1 << 20, dtype=np.float32)
    y = run(name, x)
    error = np.abs(y - true_values(name, x))
    assert error.max() <= ERRORS[name], x[error.argmax()]
    assert y.min() >= LEAST[name]  # which one-sided integers rely on


@pytest.mark.parametrize("name", SMOOTH)
def test_activation_borders_of_pieces_are_near_the_true_function(name):
    x = near_edges(name)
    error = np.abs(run(name, x) - true_values(name, x))
    assert error.max() <= ERRORS[name], x[error.argmax()]


@pytest.mark.parametrize("name", NAMES)
def test_activation_zero_and_beyond_the_pieces_is_exact(name):
    reach = 0.0 if name == "relu" else piece_edges(SMOOTH[name].start)[-2]
    sizes = [0.0, reach, np.nextafter(np.float32(reach), np.float32(99)), 17.25, 1e10,
             float(np.finfo(np.float32).max), math.inf]
    x = np.array(sizes * 2 + [0.0] * 2, dtype=np.float32)
    x[len(sizes):] *= -1
    y = run(name, x)
    far = np.abs(x) > 16
    assert np.array_equal(y[far], np.maximum(x, 0)[far])
    assert not y[x == 0].any()
    assert not y[x <= -reach - 1e-6].any()


@pytest.mark.parametrize("name", NAMES)
def test_activation_nan_stays_and_touches_no_other_lane(name):
    x = np.linspace(-4, 4, 16, dtype=np.float32)
    expected = run(name, x)
    for lane, bits in ((0, 0x7fc00000), (7, 0xffc00001), (15, 0x7f800001)):
        broken = x.copy()
        broken.view(np.uint32)[lane] = bits
        y = run(name, broken)
        assert np.isnan(y[lane])
        assert np.array_equal(np.delete(y, lane), np.delete(expected, lane))


@pytest.mark.parametrize("together", (2, 3, 4))
@pytest.mark.parametrize("name", NAMES)
def test_activation_vectors_side_by_side_are_what_they_are_alone(name, together):
    x = np.linspace(-9, 9, 16 * 12 * 20, dtype=np.float32)
    np.testing.assert_array_equal(run(name, x, together), run(name, x))


@pytest.mark.parametrize("name", SMOOTH)
def test_activation_table_ends_in_nothing_and_begins_at_zero(name):
    table = fit(SMOOTH[name])
    assert table.shape == (4, PIECES) and table.dtype == np.float32
    empty = [piece for piece in range(PIECES) if not table[:, piece].any()]
    assert len(empty) == 1
    assert table[0, (empty[0] + 1) % PIECES] == 0  # the first piece follows the last in its round


def test_activation_unknown_name_is_refused():
    with pytest.raises(KeyError):
        Activation("tanh")
