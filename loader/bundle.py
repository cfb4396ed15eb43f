"""A bundle: a checkpoint with quantised weights beside it, which `tools.build` measured and sealed.

    firebrick-manifest.json   what the bundle is, what was measured, the hash of every other file
    config.json, tokenizer …  as in the checkpoint
    model.safetensors         its weights, in its own types, by canonical names
    int8.safetensors          of each quantised product P: P.weight int8 [N, K], P.scales float32
                              [N] (one a channel), and P.divisors float32 [K] where its inputs are
                              divided first (smoothing); not there where 8 bits did not pass

Every byte of every file is checked against the manifest, and the manifest against itself.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping

from loader.checkpoint import Folder
from loader.errors import CheckpointError
from loader.manifest import BUILD_AGAIN, MANIFEST, read_manifest
from loader.safetensors import read_header
from loader.stored import CHUNK_BYTES, Stored

INT8_WEIGHTS = "int8.safetensors"
MANIFEST_BYTES = 64 << 20


class Bundle(Folder):
    """The folder of a bundle. Files that the manifest does not list are not there."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._hashes: dict[str, str] | None = None  # the manifest, read first, has none but its own
        self._checked: set[str] = set()
        try:
            self.manifest = read_manifest(super().read(MANIFEST, MANIFEST_BYTES))
        except BaseException:
            self.__exit__()
            raise
        self._hashes = self.manifest["files"]

    def has(self, name: str) -> bool:
        return name in self._hashes

    def open(self, name: str) -> int:
        """A descriptor of the plain file `name`, whose bytes are those of the manifest."""
        fd = super().open(name)
        try:
            self._check(name, hash_file(fd))
        except BaseException as error:
            os.close(fd)
            if isinstance(error, OSError):
                raise CheckpointError(f"{name} cannot be read: {error.strerror}; check the disk."
                                      ) from None
            raise
        return fd

    def read(self, name: str, limit: int) -> bytes:
        """As Folder.read; what comes back is what was hashed."""
        data = super().read(name, limit)
        self._check(name, hashlib.sha256(data).hexdigest())
        return data

    def check_rest(self) -> None:
        """Checks the files that were not opened: a bundle is whole, or it is refused."""
        for name in self._hashes:
            if name not in self._checked:
                os.close(self.open(name))

    def _check(self, name: str, found: str) -> None:
        if self._hashes is not None and found != self._hashes.get(name):
            raise CheckpointError(f"{name} is not the file that {MANIFEST} tells of (sha256 "
                                  f"{found[:12]}…); copy the bundle again, or {BUILD_AGAIN}.")
        self._checked.add(name)


def hash_file(fd: int) -> str:
    """sha256 of an open file's bytes, in hexadecimal; the file position is left alone."""
    digest, at = hashlib.sha256(), 0
    while part := os.pread(fd, CHUNK_BYTES, at):
        digest.update(part)
        at += len(part)
    return digest.hexdigest()


def open_folder(path: str) -> Folder:
    """The folder as a bundle where it holds a manifest, else as a plain checkpoint."""
    folder = Folder(path)
    if not folder.has(MANIFEST):
        return folder
    folder.__exit__()
    return Bundle(path)


def quantised_tensors(bundle: Bundle, fd: int,
                      wanted: Mapping[str, tuple[int, ...]]) -> dict[str, Stored]:
    """The tensors of int8.safetensors, open as `fd`, whose shapes fit those of the `wanted` wide
    weights. Raises CheckpointError: the file was written by another tool than ours."""
    found = {name: Stored.of(tensor, INT8_WEIGHTS, fd)
             for name, tensor in read_header(fd, INT8_WEIGHTS).items()}
    expected: dict[str, tuple[str, tuple[int, ...]]] = {}
    for product, kind in bundle.manifest["layers"].items():
        if kind == "int8":
            shape = wanted.get(f"{product}.weight", ())
            expected[f"{product}.weight"] = "I8", shape
            expected[f"{product}.scales"] = "F32", shape[:1]
            if f"{product}.divisors" in found:
                expected[f"{product}.divisors"] = "F32", shape[1:]
    if {name: (tensor.dtype, tensor.shape) for name, tensor in found.items()} != expected:
        raise CheckpointError(f"{INT8_WEIGHTS} does not hold the layers that {MANIFEST} lists; "
                              f"{BUILD_AGAIN}.")
    return found
