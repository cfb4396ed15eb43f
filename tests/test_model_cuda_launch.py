"""Launches through a stand-in for libcuda: what arrives, and what each error means."""

import ctypes

import pytest

from model.cuda.launch import Driver
from model.cuda.row_sources import NotSupported
from model.device.port import CaptureFailed, DeviceBroken, OutOfMemory
from tests import simulated_cuda
from tests.simulated_cuda import NoCompiler

NOTING = """
#include <string.h>
extern "C" int simulate_note(unsigned blocks, unsigned threads, void **at) {
  unsigned *out = *(unsigned **)at[0];
  out[0] = blocks, out[1] = threads, out[2] = *(int *)at[1];
  memcpy(out + 3, at[2], 4);
  return 0;
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("launch")


@pytest.fixture(scope="module")
def cubin(folder):
    try:
        (folder / "note.cpp").write_text(NOTING)
        simulated_cuda.build(folder / "note.cpp", folder / "note.so")
    except NoCompiler as error:
        pytest.skip(str(error))
    return b"\x7fELF" + str(folder / "note.so").encode() + b"\0"


@pytest.fixture(scope="module")
def built(folder, cubin):
    return simulated_cuda.build_driver(folder)


@pytest.fixture
def library(built):
    built.stand_in_fails(b"", 0)
    return built


def _launch(driver, cubin):
    out = (ctypes.c_uint32 * 4)()
    driver.load(cubin).function("note").launch(
        7, 96, 0xABC, ctypes.c_void_p(ctypes.addressof(out)), ctypes.c_int(-5),
        ctypes.c_float(1.5))
    return out


def test_launch_kernel_gets_grid_stream_and_arguments(library, cubin):
    out = _launch(Driver(library), cubin)
    assert list(out)[:2] == [7, 96]
    assert ctypes.c_int(out[2]).value == -5
    assert ctypes.c_float.from_buffer(out, 12).value == 1.5
    assert library.stand_in_stream() == 0xABC


@pytest.mark.parametrize("code, meaning", [
    (2, OutOfMemory), (209, NotSupported), (701, NotSupported), (700, DeviceBroken),
    (719, DeviceBroken), (999, DeviceBroken), (901, CaptureFailed), (900, CaptureFailed),
    (908, CaptureFailed), (911, DeviceBroken), (12345, DeviceBroken)])
@pytest.mark.parametrize("function", ["cuModuleLoadData", "cuModuleGetFunction", "cuLaunchKernel"])
def test_launch_error_has_its_meaning_wherever_it_comes_from(library, cubin, function, code,
                                                            meaning):
    library.stand_in_fails(function.encode(), code)
    with pytest.raises(meaning, match=rf"\({code}\)$"):
        _launch(Driver(library), cubin)


def test_launch_error_names_itself_and_the_kernel(library, cubin):
    library.stand_in_fails(b"cuLaunchKernel", 719)
    with pytest.raises(DeviceBroken, match=r"^launching kernel note: CUDA_ERROR_LAUNCH_FAILED \("):
        _launch(Driver(library), cubin)


def test_launch_after_a_broken_context_every_call_fails(library, cubin):
    driver = Driver(library)
    module = driver.load(cubin)
    library.stand_in_fails(b"cuLaunchKernel", 700)
    with pytest.raises(DeviceBroken):
        _launch(driver, cubin)
    with pytest.raises(DeviceBroken):
        module.function("note")


def test_launch_after_no_memory_the_next_one_may_go(library, cubin):
    driver = Driver(library)
    library.stand_in_fails(b"cuLaunchKernel", 2)
    with pytest.raises(OutOfMemory):
        _launch(driver, cubin)
    library.stand_in_fails(b"", 0)
    assert list(_launch(driver, cubin))[:2] == [7, 96]


def test_launch_image_that_is_none_is_not_supported(library):
    with pytest.raises(NotSupported, match="200"):
        Driver(library).load(b"not an image")


def test_launch_kernel_that_a_module_lacks_is_not_supported(library, cubin):
    with pytest.raises(NotSupported, match="looking up kernel other"):
        Driver(library).load(cubin).function("other")


def test_launch_without_a_driver_is_not_supported(monkeypatch):
    def missing(name):
        raise OSError(f"{name}: cannot open shared object file")
    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(NotSupported, match="libcuda.so.1"):
        Driver()
