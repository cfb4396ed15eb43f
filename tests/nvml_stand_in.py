"""A scripted NVML below the real pynvml: a library compiled from C, or functions in Python."""

import ctypes
import functools
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pynvml

OK, INVALID, NOT_FOUND, TIMEOUT, LOST, BAD_VERSION = 0, 2, 6, 10, 15, 25


def build_library(folder: Path) -> Path | None:
    """Compiles nvml_stub.c into `folder`; None without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    library = folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror",
                    "-Wl,-soname,libnvidia-ml.so.1", "-o", str(library),
                    str(Path(__file__).with_name("nvml_stub.c"))], check=True)
    return library


class PythonNvml:
    """What pynvml looks up in its library, read from the same script as the C stub's."""

    def __init__(self) -> None:
        self._devices: list[dict[str, Any]] = []
        self._xids: list[tuple[str, int]] = []
        self._reported = 0
        self._watched: set[str] = set()
        self.nvmlErrorString = functools.partial(b"stub error %d".__mod__)      # takes a restype

    def _begin(self, function: str) -> int:
        devices: list[dict[str, Any]] = []
        xids: list[tuple[str, int]] = []
        whole, code = -1, OK
        for line in Path(os.environ["NVML_SCRIPT"]).read_text().splitlines():
            words = line.split()
            if words[:2] == ["rc", function]:
                code = int(words[2])
            elif words[:1] == ["xid"]:
                xids.append((words[1], int(words[2])))
            elif words and words[0] in ("gpu", "mig"):
                is_slice = words[0] == "mig"
                if is_slice:
                    devices[whole]["is_cut"] = 1
                else:
                    whole = len(devices)
                devices.append({"uuid": words[1], "total": int(words[2]), "free": int(words[3]),
                                "parent": whole if is_slice else -1, "is_cut": 0})
        self._devices, self._xids = devices, xids
        return code

    def _device(self, handle: Any) -> dict[str, Any] | None:
        place = _address(handle).value - 1
        return self._devices[place] if 0 <= place < len(self._devices) else None

    def nvmlInitWithFlags(self, flags: int) -> int:
        return self._begin("nvmlInit")

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        code = self._begin("nvmlDeviceGetCount")
        count._obj.value = sum(device["parent"] < 0 for device in self._devices)
        return code

    def _nth(self, parent: int, index: int, handle: Any) -> int:
        places = [place for place, device in enumerate(self._devices)
                  if device["parent"] == parent]
        if index >= len(places):
            return INVALID if parent < 0 else NOT_FOUND
        _address(handle._obj).value = places[index] + 1
        return OK

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> int:
        return self._begin("nvmlDeviceGetHandleByIndex") \
            or self._nth(-1, getattr(index, "value", index), handle)

    def nvmlDeviceGetMigDeviceHandleByIndex(self, whole: Any, index: Any, handle: Any) -> int:
        return self._begin("nvmlDeviceGetMigDeviceHandleByIndex") \
            or self._nth(_address(whole).value - 1, getattr(index, "value", index), handle)

    def nvmlDeviceGetHandleByUUID(self, uuid: Any, handle: Any) -> int:
        code = self._begin("nvmlDeviceGetHandleByUUID")
        wanted = getattr(uuid, "value", uuid)
        wanted = wanted.decode() if isinstance(wanted, bytes) else wanted
        for place, device in enumerate(self._devices):
            if not code and device["uuid"] == wanted:
                _address(handle._obj).value = place + 1
                return OK
        return code or NOT_FOUND

    def nvmlDeviceGetUUID(self, handle: Any, text: Any, size: Any) -> int:
        return self._say("nvmlDeviceGetUUID", handle, text, "uuid")

    def nvmlDeviceGetName(self, handle: Any, text: Any, size: Any) -> int:
        return self._say("nvmlDeviceGetName", handle, text, None)

    def _say(self, function: str, handle: Any, text: Any, key: str | None) -> int:
        code, device = self._begin(function), self._device(handle)
        if code or device is None:
            return code or LOST
        text.value = device[key].encode() if key else b"Stub GPU"
        return OK

    def nvmlDeviceGetMigMode(self, handle: Any, current: Any, pending: Any) -> int:
        code, device = self._begin("nvmlDeviceGetMigMode"), self._device(handle)
        if code or device is None:
            return code or LOST
        current._obj.value = pending._obj.value = device["is_cut"]
        return OK

    def nvmlDeviceGetMemoryInfo(self, handle: Any, memory: Any) -> int:
        return self._memory("nvmlDeviceGetMemoryInfo", handle, memory)

    def nvmlDeviceGetMemoryInfo_v2(self, handle: Any, memory: Any) -> int:
        if memory._obj.version != 0x02000028:
            return BAD_VERSION
        return self._memory("nvmlDeviceGetMemoryInfo_v2", handle, memory)

    def _memory(self, function: str, handle: Any, memory: Any) -> int:
        code, device = self._begin(function), self._device(handle)
        if code or device is None:
            return code or LOST
        memory._obj.total, memory._obj.free = device["total"], device["free"]
        return OK

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, part: Any, whole: Any) -> int:
        code = self._begin("nvmlDeviceGetDeviceHandleFromMigDeviceHandle")
        device = self._device(part)
        if code or device is None:
            return code or LOST
        if device["parent"] < 0:
            return INVALID
        _address(whole._obj).value = device["parent"] + 1
        return OK

    def nvmlEventSetCreate(self, events: Any) -> int:
        self._reported, self._watched = 0, set()
        return self._begin("nvmlEventSetCreate")

    def nvmlDeviceRegisterEvents(self, handle: Any, types: Any, events: Any) -> int:
        code, device = self._begin("nvmlDeviceRegisterEvents"), self._device(handle)
        if code or device is None:
            return code or LOST
        if device["parent"] >= 0 or types.value != 8:
            return INVALID
        self._watched.add(device["uuid"])
        return OK

    def nvmlEventSetWait_v2(self, events: Any, event: Any, ms: Any) -> int:
        code = self._begin("nvmlEventSetWait")
        if code:
            return code
        for uuid, xid in self._xids[self._reported:]:
            self._reported += 1
            if uuid in self._watched:
                places = [device["uuid"] for device in self._devices]
                _address(event._obj.device).value = places.index(uuid) + 1
                event._obj.eventType, event._obj.eventData = 8, xid
                return OK
        return TIMEOUT


def _address(handle: Any) -> ctypes.c_void_p:
    """A device's handle, a pointer, as the number in it."""
    return ctypes.c_void_p.from_buffer(handle)


def stand_in(monkeypatch: Any, library: Path | None) -> None:
    """Puts the compiled library, or without one the Python functions, below pynvml."""
    below = ctypes.CDLL(str(library)) if library else PythonNvml()
    monkeypatch.setattr(pynvml, "nvmlLib", below)
    monkeypatch.setattr(pynvml, "_nvmlLib_refcount", 1)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
