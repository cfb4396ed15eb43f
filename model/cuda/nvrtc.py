"""Compiles CUDA C++ to a device's own code with the NVRTC that torch's wheel brings along.

No toolkit and no header on disk: headers are handed over as text. What is asked of NVRTC is what
its documentation calls stable since version 11.1.
"""

from __future__ import annotations

import ctypes
import glob
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p

from model.cuda.row_sources import NotSupported

# Where wheels put it, below a folder of sys.path: CUDA 13's, CUDA 12's, and a copy inside torch.
WHEEL_PLACES = ("nvidia/cu*/lib/libnvrtc.so.*", "nvidia/cuda_nvrtc/lib/libnvrtc.so.*",
                "torch/lib/libnvrtc[.-]*so*")
LOADER_NAMES = ("libnvrtc.so.13", "libnvrtc.so.12")


class Nvrtc:
    """One libnvrtc. `version`: (major, minor). Raises NotSupported where it is no such thing."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        major, minor = c_int(), c_int()
        try:
            self._do("nvrtcVersion", byref(major), byref(minor))
        except AttributeError:
            raise NotSupported(f"{library._name} is no NVRTC") from None
        self.version = (major.value, minor.value)

    def architecture(self, capability: tuple[int, int]) -> str:
        """What to compile for, as "sm_90": the device's own, or the nearest before it of the same
        major number, whose code it runs as well. Raises NotSupported."""
        count = c_int()
        self._do("nvrtcGetNumSupportedArchs", byref(count))
        known = (c_int * count.value)()
        self._do("nvrtcGetSupportedArchs", known)
        wanted = capability[0] * 10 + capability[1]
        fit = [one for one in known if one // 10 == capability[0] and one <= wanted]
        if not fit:
            raise NotSupported(f"NVRTC {self._version()} does not compile for sm_{wanted}")
        return f"sm_{max(fit)}"

    def compile(self, name: str, source: str, headers: Mapping[str, str],
                options: Sequence[str]) -> tuple[bytes, str]:
        """(cubin, what the compiler said). Raises NotSupported with its first error."""
        program = c_void_p()
        texts = (c_char_p * len(headers))(*[text.encode() for text in headers.values()])
        names = (c_char_p * len(headers))(*[one.encode() for one in headers])
        words = (c_char_p * len(options))(*[option.encode() for option in options])
        self._do("nvrtcCreateProgram", byref(program), source.encode(), name.encode(),
                 len(headers), texts, names)
        try:
            code = self._library.nvrtcCompileProgram(program, len(options), words)
            said = self._bytes(program, "ProgramLog").rstrip(b"\0").decode("utf-8", "replace")
            if code:
                lines = said.strip().splitlines() or [f"error {code}"]
                first = next((line for line in lines if "error" in line), lines[0])
                raise NotSupported(f"NVRTC {self._version()} does not compile {name}: {first}")
            return self._bytes(program, "CUBIN"), said
        finally:
            self._library.nvrtcDestroyProgram(byref(program))

    def _bytes(self, program: c_void_p, what: str) -> bytes:
        size = c_size_t()
        self._do(f"nvrtcGet{what}Size", program, byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self._do(f"nvrtcGet{what}", program, buffer)
        return buffer.raw

    def _do(self, function: str, *arguments: object) -> None:
        code = getattr(self._library, function)(*arguments)
        if code:
            raise NotSupported(f"{function} of {self._library._name} fails with error {code}")

    def _version(self) -> str:
        return f"{self.version[0]}.{self.version[1]}"


def find(major: int | None = None) -> Nvrtc:
    """The NVRTC that this process has already, or torch's wheel, or the system; of several, one of
    CUDA version `major`. Raises NotSupported."""
    return first_of(candidates(sys.path, mapped_files(), major))


def first_of(names: Sequence[str]) -> Nvrtc:
    """The first of these libraries that loads. Raises NotSupported."""
    for name in names:
        try:
            for builtins in _builtins(name):
                ctypes.CDLL(builtins)
            return Nvrtc(ctypes.CDLL(name))
        except (OSError, NotSupported):     # the next one may do
            continue
    raise NotSupported("no libnvrtc is here; a torch that is built with CUDA brings one")


def candidates(folders: Sequence[str], mapped: Sequence[str], major: int | None) -> list[str]:
    """Paths and names to try, the best first."""
    found = list(mapped)
    for folder in folders:
        for place in WHEEL_PLACES:
            found += sorted(glob.glob(os.path.join(glob.escape(folder or "."), place)))
    found = [path for path in found if _is_plain(path) and "builtins" not in path] \
        + list(LOADER_NAMES)
    return sorted(dict.fromkeys(found), key=lambda path: not path.endswith(f".so.{major}"))


def mapped_files() -> list[str]:
    """Libraries of that name in this process's memory."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as lines:
        paths = [line.split(maxsplit=5)[5].rstrip("\n") for line in lines if "/libnvrtc" in line]
    return list(dict.fromkeys(paths))


def _builtins(library: str) -> Iterator[str]:
    """What NVRTC loads when it compiles: 13's does not look beside itself, but takes what is
    loaded already."""
    folder = os.path.dirname(library)
    if folder:
        yield from filter(_is_plain, sorted(
            glob.glob(os.path.join(glob.escape(folder), "libnvrtc-builtins*.so*"))))


def _is_plain(path: str) -> bool:
    """".alt." is the same compiler by another name."""
    return ".alt." not in os.path.basename(path)
