"""Loads compiled kernels and launches them through CUDA's driver, in the context torch made.

A launch goes to the stream it is given, so a capture of that stream takes it in. Modules are loaded
before any capture and stay for the life of the process.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, byref, c_char_p, c_int, c_uint, c_void_p
from typing import NoReturn

from model.cuda.row_sources import NotSupported
from model.device.port import CaptureFailed, DeviceBroken, OutOfMemory

# CUresult's numbers. What one kernel cannot have on this device and driver, and no other suffers
# from: a feature, an image, an architecture, PTX, a symbol, launch resources, a call.
OUT_OF_MEMORY = 2
LACKING = frozenset({98, 200, 209, 218, 221, 222, 223, 300, 301, 302, 303, 500, 701, 801})
CAPTURE = range(900, 909)

Argument = c_void_p | c_int | ctypes.c_float


class Driver:
    """libcuda. Raises NotSupported where there is none."""

    def __init__(self, library: ctypes.CDLL | None = None) -> None:
        try:
            self._library = library or ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise NotSupported(f"CUDA's driver cannot be loaded: {error}") from None
        cuda = self._library
        cuda.cuModuleLoadData.argtypes = [POINTER(c_void_p), c_char_p]
        cuda.cuModuleGetFunction.argtypes = [POINTER(c_void_p), c_void_p, c_char_p]
        cuda.cuLaunchKernel.argtypes = [c_void_p, *[c_uint] * 7, c_void_p, POINTER(c_void_p),
                                        POINTER(c_void_p)]
        cuda.cuGetErrorName.argtypes = [c_int, POINTER(c_char_p)]

    def load(self, cubin: bytes) -> Module:
        """A module of the current context. Raises NotSupported, OutOfMemory or DeviceBroken."""
        module = c_void_p()
        self.check("loading a kernel", self._library.cuModuleLoadData(byref(module), cubin))
        return Module(self, self._library, module)

    def check(self, doing: str, code: int) -> None:
        """Raises what the driver's answer means: NotSupported, OutOfMemory, CaptureFailed, or else
        DeviceBroken, as after a failed kernel every later call fails."""
        if code:
            self._fail(doing, code)

    def _fail(self, doing: str, code: int) -> NoReturn:
        name = c_char_p()
        self._library.cuGetErrorName(code, byref(name))
        known = (name.value or b"an error without a name").decode()
        words = f"{doing}: {known} ({code})"
        if code == OUT_OF_MEMORY:
            raise OutOfMemory(words)
        if code in LACKING:
            raise NotSupported(words)
        if code in CAPTURE:
            raise CaptureFailed(words)
        raise DeviceBroken(words)


class Module:
    """A loaded cubin."""

    def __init__(self, driver: Driver, library: ctypes.CDLL, handle: c_void_p) -> None:
        self._driver, self._library, self._handle = driver, library, handle

    def function(self, name: str) -> Function:
        """Its kernel of that name. Raises as Driver.load."""
        handle = c_void_p()
        self._driver.check(f"looking up kernel {name}", self._library.cuModuleGetFunction(
            byref(handle), self._handle, name.encode()))
        return Function(self._driver, self._library, handle, name)


class Function:
    """A kernel that can be launched."""

    def __init__(self, driver: Driver, library: ctypes.CDLL, handle: c_void_p, name: str) -> None:
        self._driver, self._library, self._handle, self._name = driver, library, handle, name

    def launch(self, blocks: int, threads: int, stream: int, *arguments: Argument) -> None:
        """Enqueues it. Arguments are what the kernel declares, as ctypes: the driver copies as many
        bytes of each. Raises OutOfMemory, CaptureFailed, NotSupported or DeviceBroken."""
        places = (c_void_p * len(arguments))(*map(ctypes.addressof, arguments))
        self._driver.check(f"launching kernel {self._name}", self._library.cuLaunchKernel(
            self._handle, blocks, 1, 1, threads, 1, 1, 0, stream, places, None))
