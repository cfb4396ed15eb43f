"""NVRTC through a stand-in of its library and, where one is installed, through the real one."""

import ctypes
import sys

import pytest

from model.cuda import nvrtc
from model.cuda.nvrtc import LOADER_NAMES, Nvrtc, candidates, first_of
from model.cuda.row_sources import NotSupported
from tests import compile_kernels, simulated_cuda
from tests.simulated_cuda import NoCompiler


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = tmp_path_factory.mktemp("nvrtc") / "libnvrtc.so.13"
    try:
        simulated_cuda.build(simulated_cuda.HERE / "nvrtc.cpp", path)
    except NoCompiler as error:
        pytest.skip(str(error))
    return path


@pytest.fixture
def stand_in(library):
    return Nvrtc(ctypes.CDLL(str(library)))


def test_nvrtc_hands_over_source_headers_and_options(stand_in):
    cubin, said = stand_in.compile("a.cu", "A", {"b.cuh": "B", "c.cuh": "C"}, ["-DX=1", "-DY=2"])
    assert cubin == b"\x7fELFa.cu\nA\nb.cuh: B\nc.cuh: C\n-DX=1\n-DY=2"
    assert said == ""
    assert stand_in.version == (13, 5)


def test_nvrtc_source_with_an_error_says_the_first(stand_in):
    with pytest.raises(NotSupported, match=r"13.5 does not compile a.cu: rows.cuh\(7\): error"):
        stand_in.compile("a.cu", "#error", {}, [])


@pytest.mark.parametrize("capability, architecture", [
    ((7, 5), "sm_75"), ((8, 0), "sm_80"), ((8, 9), "sm_86"), ((9, 0), "sm_90")])
def test_nvrtc_architecture_is_the_nearest_that_the_device_runs(stand_in, capability,
                                                                architecture):
    assert stand_in.architecture(capability) == architecture


@pytest.mark.parametrize("capability", [(7, 0), (10, 0), (12, 0)])
def test_nvrtc_architecture_of_another_generation_is_not_supported(stand_in, capability):
    with pytest.raises(NotSupported, match="13.5 does not compile for sm_"):
        stand_in.architecture(capability)


def test_nvrtc_candidates_are_mapped_ones_then_wheels_then_the_system(tmp_path):
    wheel = tmp_path / "nvidia" / "cu13" / "lib"
    older = tmp_path / "nvidia" / "cuda_nvrtc" / "lib"
    for folder, names in ((wheel, ["libnvrtc.so.13", "libnvrtc-builtins.so.13.5"]),
                          (older, ["libnvrtc.so.12", "libnvrtc.alt.so.12"])):
        folder.mkdir(parents=True)
        for name in names:
            (folder / name).touch()
    mapped = ["/somewhere/libnvrtc.so.11", "/somewhere/libnvrtc-builtins.so.11"]
    both = [str(wheel / "libnvrtc.so.13"), str(older / "libnvrtc.so.12")]
    assert candidates([str(tmp_path)], mapped, None) == [mapped[0], *both, *LOADER_NAMES]
    assert candidates([str(tmp_path)], [], 12)[0] == both[1]
    assert candidates(["/nowhere", ""], [], None) == list(LOADER_NAMES)


def test_nvrtc_what_is_mapped_is_found(stand_in, library):
    assert str(library) in nvrtc.mapped_files()


def test_nvrtc_library_that_is_none_is_passed_over(library, tmp_path):
    broken = tmp_path / "libnvrtc.so.13"
    broken.write_bytes(b"nothing")
    assert first_of([str(broken), "libc.so.6", str(library)]).version == (13, 5)


def test_nvrtc_without_any_library_is_not_supported(tmp_path):
    with pytest.raises(NotSupported, match="a torch that is built with CUDA brings one"):
        first_of([str(tmp_path / "libnvrtc.so.13")])


def test_nvrtc_builtins_beside_it_are_loaded_first(library, tmp_path):
    beside = tmp_path / "libnvrtc-builtins.so.13.5"
    beside.write_bytes(library.read_bytes())
    (tmp_path / "libnvrtc.so.13").write_bytes(library.read_bytes())
    first_of([str(tmp_path / "libnvrtc.so.13")])
    assert str(beside) in nvrtc.mapped_files()


@pytest.mark.parametrize("architecture", ["sm_75", "sm_90"])
def test_nvrtc_real_one_compiles_the_kernels_without_a_spill(architecture):
    try:
        found = first_of(candidates(sys.path, [], None))
    except NotSupported as error:
        pytest.skip(f"{error}: kernels are simulated, but not compiled for devices")
    for one in compile_kernels.variants(architecture):
        if one.width in (384, 1536, 1152) and not one.is_bf16:
            takes = compile_kernels.usage(found, one, architecture)
            assert (takes.spilled, takes.stack) == (0, 0) and takes.registers < 128, one
