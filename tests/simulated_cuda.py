"""A CUDA device played by the CPU: our kernels' sources compiled as C++, behind libcuda's calls."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import torch

from model.cuda.cubins import Cubins
from model.cuda.launch import Driver
from model.cuda.row_kernels import Launcher, RowKernels
from model.cuda.row_sources import SOURCES

HERE = Path(__file__).with_name("cuda_simulated")
OPTIONS = ["-std=c++20", "-O1", "-shared", "-fPIC", "-Wall", "-Werror", "-Wno-unknown-pragmas",
           f"-I{HERE}"]
STREAM = 0x5EED


class NoCompiler(Exception):
    """This machine has no g++ that knows C++20."""


class SimulatedCompiler:
    """A model.cuda.cubins.Compiler by g++. `faults` are replacements in sources, which must apply;
    `calls` counts."""

    version = (0, 0)

    def __init__(self, folder: Path, faults: Mapping[str, str] = MappingProxyType({})) -> None:
        self._folder, self._faults = folder, dict(faults)
        self.calls = 0

    def architecture(self, capability: tuple[int, int]) -> str:
        return "sm_{}{}".format(*capability)

    def compile(self, name: str, source: str, headers: Mapping[str, str],
                options: list[str]) -> tuple[bytes, str]:
        self.calls += 1
        texts = {name: source, **headers}
        for old, new in self._faults.items():
            holder = next(one for one, text in texts.items() if old in text)
            texts[holder] = texts[holder].replace(old, new)
        parts = [*options, *texts.values()]
        folder = self._folder / hashlib.sha256("\0".join(parts).encode()).hexdigest()
        library = folder / "kernels.so"
        if not library.exists():
            folder.mkdir(parents=True)
            for one, text in texts.items():
                (folder / one).write_text(text)
            kernels = [kernel for kernel, file in SOURCES.items() if file == name]
            (folder / "all.cpp").write_text("".join(
                [f'#include "simulate.h"\n#include "{name}"\n',
                 *(f"SIMULATED({kernel})\n" for kernel in kernels)]))
            architecture = options[0].rpartition("_")[2]
            build(folder / "all.cpp", library, *options[1:], f"-D__CUDA_ARCH__={architecture}0")
        return b"\x7fELF" + str(library).encode() + b"\0", ""


def build(source: Path, library: Path, *options: str) -> None:
    """Compiles a library of C++20."""
    compiler = shutil.which("g++")
    if compiler is None:
        raise NoCompiler("no g++ is here: kernels cannot be simulated")
    done = subprocess.run([compiler, *OPTIONS, *options, "-o", str(library), str(source)],
                          capture_output=True, text=True)
    if "-std=c++20" in done.stderr:
        raise NoCompiler("this g++ does not know C++20: kernels cannot be simulated")
    assert done.returncode == 0, done.stderr


def build_driver(folder: Path) -> ctypes.CDLL:
    """The library that stands in for libcuda. Raises NoCompiler."""
    library = folder / "libcuda.so.1"
    build(HERE / "driver.cpp", library)
    found = ctypes.CDLL(str(library))
    found.stand_in_stream.restype = ctypes.c_void_p
    return found


def row_kernels(folder: Path, driver: ctypes.CDLL, codes: torch.dtype, wide: torch.dtype,
                capability: tuple[int, int] = (9, 0),
                faults: Mapping[str, str] = MappingProxyType({})) -> RowKernels:
    """Our row operations on that device, over CPU tensors."""
    made = Cubins(SimulatedCompiler(folder, faults), capability, None)
    return RowKernels(Launcher(made, Driver(driver), codes, wide, lambda: STREAM))
