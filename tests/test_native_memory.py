"""Arrays for kernels begin where vectors do and have room past their end."""

import ctypes
import signal

import numpy as np
import pytest

from model.native import memory
from model.native.memory import LINE, SPARE_ROWS, aligned, rows
from tests.forked import in_a_child
from tests.native_programs import FITTING, LENGTHS, native, skip_without, texts, tiny
from tests.walled import walled


def room_behind(array: np.ndarray) -> int:
    """Bytes of the same memory past the array's end."""
    whole = array
    while isinstance(whole.base, np.ndarray):
        whole = whole.base
    return whole.ctypes.data + whole.nbytes - (array.ctypes.data + array.nbytes)


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.int64])
@pytest.mark.parametrize("count, width", [(0, 16), (1, 1), (7, 48), (512, 384)])
def test_rows_are_zeros_on_a_boundary_with_rows_to_spare(count, width, dtype):
    found = rows(count, width, dtype)
    assert found.shape == (count + SPARE_ROWS, width) and found.dtype == dtype
    assert found.flags.c_contiguous and found.flags.writeable
    assert found.ctypes.data % LINE == 0
    assert not found.any()


def test_rows_are_each_on_their_own():
    first, second = rows(3, 16), rows(3, 16)
    first[...] = 1
    assert not second.any()


def test_rows_that_nobody_wrote_take_no_memory():
    def resident() -> int:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1])
    before = resident()
    kept = rows(1 << 16, 1 << 10)
    assert resident() - before < kept.nbytes // 4096 // 16


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.int32, np.int8])
@pytest.mark.parametrize("shape", [(1,), (97,), (5, 7), (2, 3, 32)])
def test_aligned_is_a_copy_with_a_vector_to_spare(shape, dtype):
    values = np.random.default_rng(1).integers(0, 100, shape).astype(dtype)
    for given in (values, np.asfortranarray(values), values[::-1]):
        found = aligned(given)
        assert np.array_equal(found, given) and found.dtype == dtype
        assert found.flags.c_contiguous and found.ctypes.data % LINE == 0
        assert not np.shares_memory(found, given)
        assert room_behind(found) >= LINE


def test_aligned_takes_what_cannot_be_written_and_can_be():
    values = np.frombuffer(b"\1\2\3\4" * 4, np.float32)
    found = aligned(values)
    found[0] = 7
    assert found.flags.writeable and values[0] != 7


def run_between_walls(name: str, precision: str, from_below: bool) -> None:
    """Batches of a model of which every array, and the image, stands at a wall."""
    card, weights = tiny(name, precision=precision, labels=17)
    image = walled(len(weights))
    image[:] = np.frombuffer(weights, np.uint8)
    program = native(card, image)
    for sizes in ([1], [64], [33, 2], [1] * 512, [64] * 8, LENGTHS):
        program.run(texts(card, sizes))
    program.warm()


@pytest.mark.parametrize("from_below", [False, True])
@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("name", FITTING)
def test_memory_has_the_room_that_a_network_s_kernels_take(name, precision, from_below,
                                                          monkeypatch):
    skip_without()
    monkeypatch.setattr(memory, "_zeros", lambda shape, dtype: walled(
        int(np.prod(shape)) * dtype.itemsize, LINE, from_below).view(dtype).reshape(shape))
    assert in_a_child(lambda: run_between_walls(name, precision, from_below)) == 0


def test_memory_walls_are_noticed():
    for from_below, place in ((False, 64), (True, -1)):
        address = walled(64, from_below=from_below).ctypes.data + place
        assert in_a_child(lambda: ctypes.string_at(address, 1)) == -signal.SIGSEGV


def test_memory_without_rows_to_spare_is_noticed(monkeypatch):
    skip_without()
    monkeypatch.setattr(memory, "SPARE_ROWS", 0)
    monkeypatch.setattr(memory, "_zeros", lambda shape, dtype: walled(
        int(np.prod(shape)) * dtype.itemsize).view(dtype).reshape(shape))
    assert in_a_child(lambda: run_between_walls("bert", "int8", False)) == -signal.SIGSEGV
