"""Powers of two as machine code, against float64."""

import numpy as np
import pytest

from model.native.arguments import Fields
from model.native.assembler import Assembler
from model.native.executable import Executable
from model.native.exponential import emit_powers_of_two
from model.native.operands import RCX, RDX, ZMM, at
from tests.guarded import skip_without

FIELDS = Fields("steps", "values")
TOGETHER = 5


@pytest.fixture(scope="module")
def powers():
    """float32 → 2 to its power, five vectors at a time with registers for two."""
    skip_without()
    a = Assembler()
    a.label("powers")
    a.mov(RCX, FIELDS.of("steps"))
    a.mov(RDX, FIELDS.of("values"))
    a.label("again")
    values = ZMM[:TOGETHER]
    for place, value in enumerate(values):
        a.vmovups(value, at(RDX, 64 * place))
    emit_powers_of_two(a, values, ZMM[27:])
    for place, value in enumerate(values):
        a.vmovups_to(at(RDX, 64 * place), value)
    a.add(RDX, 64 * TOGETHER)
    a.sub(RCX, 1)
    a.jg("again")
    a.ret()
    code = Executable(*a.finish())
    function = code.function("powers")

    def run(values: np.ndarray) -> np.ndarray:
        steps = -(-values.size // (16 * TOGETHER))
        held = np.zeros(steps * 16 * TOGETHER, np.float32)
        held[:values.size] = values
        function(FIELDS.block(steps=steps, values=held).ctypes.data)
        return held[:values.size]

    run.code = code
    return run


def test_powers_normal_results_are_within_their_error(powers):
    values = np.concatenate([
        np.linspace(-126, 127.99, 200_003), np.linspace(-1, 1, 200_003),
        np.arange(-126, 127.5, 0.5), -np.logspace(-30, 2, 10_001)]).astype(np.float32)
    right = np.exp2(values.astype(np.float64))
    error = np.abs(powers(values) - right) / np.spacing(right.astype(np.float32))
    assert error.max() <= 1.3


def test_powers_of_integers_are_exact(powers):
    values = np.arange(-149, 128).astype(np.float32)
    assert np.array_equal(powers(values), np.exp2(values.astype(np.float64)))


def test_powers_below_the_least_number_fade_to_zero(powers):
    assert (powers(np.float32([-151, -1000, -1e10, -3e38])) == 0).all()
    tiny = np.linspace(-149, -126, 1000).astype(np.float32)
    error = np.abs(powers(tiny) - np.exp2(tiny.astype(np.float64)))
    assert error.max() <= 2.0 ** -149


def test_powers_that_are_no_numbers_come_out_as_none(powers):
    assert np.isnan(powers(np.float32([np.nan, np.inf, -np.inf]))).all()
    assert np.isposinf(powers(np.float32([128, 1e30]))).all()


def test_powers_just_below_an_integer_do_not_leap(powers):
    values = np.nextafter(np.float32(range(-120, 120)), np.float32(-np.inf))
    assert np.allclose(powers(values), np.exp2(values.astype(np.float64)), rtol=2e-7)
