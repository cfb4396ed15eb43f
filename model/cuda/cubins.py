"""Compiled kernels, kept from one start to the next in a folder of this user's own.

An entry's name is a hash of everything it was made from, and it holds a hash of itself: one that
was cut or changed is compiled anew. Without a folder that is surely ours, nothing is kept; a kernel
takes some 0.2 s to compile.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import Protocol

from model.cuda.row_sources import FIRST_CAPABILITY, FIRST_FP8_CAPABILITY, HEADERS
from model.cuda.row_sources import NotSupported, Variant, read

# Some ten kernels for each model, type and version of NVRTC; the oldest go.
MOST_ENTRIES = 512
HASH_BYTES = 32


class Compiler(Protocol):
    """What is asked of model.cuda.nvrtc.Nvrtc."""

    version: tuple[int, int]

    def architecture(self, capability: tuple[int, int]) -> str: ...

    def compile(self, name: str, source: str, headers: dict[str, str],
                options: list[str]) -> tuple[bytes, str]: ...


class Cubins:
    """Kernels for devices of one capability. `folder` None keeps nothing. Raises NotSupported."""

    def __init__(self, compiler: Compiler, capability: tuple[int, int],
                 folder: Path | None) -> None:
        if capability < FIRST_CAPABILITY:
            raise NotSupported(f"our kernels need compute capability 7.5, this device has "
                               f"{capability[0]}.{capability[1]}")
        self._compiler, self._folder, self._capability = compiler, folder, capability
        self._architecture = compiler.architecture(capability)
        self._headers = {name: read(name) for name in HEADERS}

    def cubin(self, variant: Variant) -> bytes:
        """The compiled file that holds this kernel. Raises NotSupported."""
        if variant.is_fp8 and self._capability < FIRST_FP8_CAPABILITY:
            raise NotSupported("8-bit floats need compute capability 8.9")
        name, source = variant.source(), read(variant.source())
        options = [f"--gpu-architecture={self._architecture}", *variant.defines()]
        parts = [*map(str, self._compiler.version), *options, name, source,
                 *self._headers, *self._headers.values()]
        key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        kept = self._kept(key)
        if kept is None:
            kept, _ = self._compiler.compile(name, source, self._headers, options)
            self._keep(key, kept)
        return kept

    def _kept(self, key: str) -> bytes | None:
        """The entry, if there is one and it is whole."""
        if self._folder is None:
            return None
        try:
            entry = (self._folder / key).read_bytes()
        except OSError:
            return None
        cubin = entry[HASH_BYTES:]
        return cubin if hashlib.sha256(cubin).digest() == entry[:HASH_BYTES] and cubin else None

    def _keep(self, key: str, cubin: bytes) -> None:
        if self._folder is None:
            return
        unfinished = self._folder / f"{key}.{os.getpid()}"
        try:
            unfinished.write_bytes(hashlib.sha256(cubin).digest() + cubin)
            unfinished.replace(self._folder / key)
            entries = sorted(self._folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
            for path in entries[:-MOST_ENTRIES]:
                path.unlink()
        except OSError:     # a full disk, or another process that tidied: it is only a cache
            pass


def private_folder() -> Path | None:
    """firebrick-kernels in $CACHE_DIRECTORY (which systemd sets), $XDG_CACHE_HOME or ~/.cache;
    None where it cannot be made, or where others could write what we would run."""
    chosen = os.environ.get("CACHE_DIRECTORY", "").split(":")[0] \
        or os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(chosen) / "firebrick-kernels"
    if not folder.is_absolute():        # a ~ without a home
        return None
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() \
        and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return folder if is_ours else None
