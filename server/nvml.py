"""Devices and their free memory by NVML, whatever the driver leaves out; for the watch alone.

Any call here can block for as long as the driver likes. Only `total` and `free` are used: what
`used` counts differs between versions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psutil
import pynvml

from server.device_source import DeviceLost, NoDevices, Unread
from server.visible import visible
from server.xids import Xids

# By number, because older pynvml has no names for the newer ones.
UNINITIALIZED, NOT_SUPPORTED, TIMEOUT, FUNCTION_NOT_FOUND, UNKNOWN = 1, 3, 10, 13, 999
GONE_CODES = (15, 16, 28)           # GPU_IS_LOST, RESET_REQUIRED, GPU_NOT_FOUND
MISSING_CODES = (NOT_SUPPORTED, FUNCTION_NOT_FOUND, 25)     # 25: ARGUMENT_VERSION_MISMATCH
VERSION_2 = 0x02000028              # nvmlMemory_v2_t: 40 bytes, version 2
MAX_SLICES = 16


class Nvml:
    """The devices that this process may use; raises NoDevices."""

    def __init__(self, variable: str | None) -> None:
        try:
            pynvml.nvmlInit()
            whole, mig = _list_devices()
        except pynvml.NVMLError as error:
            raise NoDevices(f"NVML: {error}") from None
        self.uuids = visible(variable, whole, mig)
        if not self.uuids:
            raise NoDevices("NVML lists no device" if variable is None else
                            f"CUDA_VISIBLE_DEVICES={variable} names none of NVML's "
                            f"{len(whole) + len(mig)} devices")
        self._handles: dict[str, Any] = {}
        # The way to ask for memory that worked last, by device.
        self._ways: dict[str, int] = {}
        self._xids = Xids(self.uuids, self._handle)

    def name(self, uuid: str) -> str:
        """The product's name; empty where the driver does not tell."""
        try:
            return _text(pynvml.nvmlDeviceGetName(self._handle(uuid)))
        except pynvml.NVMLError:
            return ""

    def lost(self) -> dict[str, str]:
        """Why each device is lost that the driver has given up since the last look."""
        return self._xids.take()

    def memory(self, uuid: str) -> tuple[int, int]:
        """(total, free) in bytes. Raises DeviceLost or Unread.

        Where CPU and GPU share memory (NOT_SUPPORTED in both versions) it is the host's.
        """
        try:
            return self._memory(uuid)
        except pynvml.NVMLError as error:
            if error.value in GONE_CODES:
                raise DeviceLost(str(error)) from None
            self._handles.pop(uuid, None)
            if error.value == UNINITIALIZED:
                self._handles.clear()
                _initialise_again()
                self._xids = Xids(self.uuids, self._handle)
            raise Unread(str(error)) from None

    def _memory(self, uuid: str) -> tuple[int, int]:
        handle = self._handle(uuid)
        ways: tuple[Callable[[Any], tuple[int, int]], ...] = (_version_2, _version_1)
        for number in range(self._ways.get(uuid, 0), len(ways)):
            try:
                found = ways[number](handle)
            except pynvml.NVMLError as error:
                if error.value not in MISSING_CODES:
                    raise
                continue
            self._ways[uuid] = number
            return found
        self._ways[uuid] = len(ways)
        host = psutil.virtual_memory()
        return host.total, host.available

    def _handle(self, uuid: str) -> Any:
        handle = self._handles.get(uuid)
        if handle is None:
            handle = self._handles[uuid] = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        return handle


def _list_devices() -> tuple[list[str], list[str]]:
    """(UUIDs of whole devices, UUIDs of slices), in PCI order; a lost device is left out."""
    whole: list[str] = []
    mig: list[str] = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            uuid = _text(pynvml.nvmlDeviceGetUUID(handle))
        except pynvml.NVMLError as error:
            if error.value in (UNINITIALIZED, TIMEOUT, UNKNOWN):
                raise
            continue
        slices = _slices(handle)
        if slices is None:
            whole.append(uuid)
        else:
            mig += slices
    return whole, mig


def _slices(handle: Any) -> list[str] | None:
    """The slices of a device in MIG mode, which then computes nothing itself; None without."""
    try:
        if not pynvml.nvmlDeviceGetMigMode(handle)[0]:
            return None
    except pynvml.NVMLError:
        return None
    found = []
    for index in range(MAX_SLICES):
        try:
            part = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            found.append(_text(pynvml.nvmlDeviceGetUUID(part)))
        except pynvml.NVMLError:
            continue        # slices need not be numbered without gaps
    return found


def _version_2(handle: Any) -> tuple[int, int]:
    found = pynvml.nvmlDeviceGetMemoryInfo(handle, version=VERSION_2)
    return int(found.total), int(found.free)


def _version_1(handle: Any) -> tuple[int, int]:
    found = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return int(found.total), int(found.free)


def _initialise_again() -> None:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise Unread(str(error)) from None


def _text(value: str | bytes) -> str:
    """Older pynvml gives bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
