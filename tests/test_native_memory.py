"""Arrays for kernels begin where vectors do and have room past their end."""

import numpy as np
import pytest

from model.native.memory import LINE, SPARE_ROWS, aligned, rows


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
