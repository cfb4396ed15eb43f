"""A bundle: a checkpoint with quantised weights beside it, which `tools.build` measured and sealed.

    firebrick-manifest.json   what the bundle is, what was measured, the hash of every other file
    config.json, tokenizer …  as in the checkpoint
    model.safetensors         its weights, in its own types, by canonical names
    int8.safetensors          of each quantised product P: P.weight int8 [N, K], P.scales float32
                              [N] (one a channel), and P.divisors float32 [K] where its inputs are
                              divided first (smoothing); not there where 8 bits did not pass

Every byte that is read is checked against the manifest, and the manifest against itself.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

from loader.checkpoint import Folder
from loader.errors import CheckpointError, shown
from loader.safetensors import read_header
from loader.stored import CHUNK_BYTES, Stored
from loader.strict_json import read_object

MANIFEST = "firebrick-manifest.json"
INT8_WEIGHTS = "int8.safetensors"
FORMAT = 1
MANIFEST_BYTES = 64 << 20
# Key → type of what a manifest must say. "self" is the hash of all the rest of it.
FACTS = {"format": int, "name": str, "version": str, "source": dict, "labels": list, "files": dict,
         "bits": int, "layers": dict, "precisions": dict, "goldens": list, "made_with": dict,
         "self": str}
BUILD_AGAIN = "build the bundle again with python -m tools.build"


class Bundle(Folder):
    """The folder of a bundle. Files that the manifest does not list are not there."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._hashes: dict[str, str] | None = None  # the manifest, read first, has none but its own
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
            digest = hashlib.sha256()
            at = 0
            while part := os.pread(fd, CHUNK_BYTES, at):
                digest.update(part)
                at += len(part)
            self._check(name, digest.hexdigest())
        except BaseException:
            os.close(fd)
            raise
        return fd

    def read(self, name: str, limit: int) -> bytes:
        """As Folder.read; what comes back is what was hashed."""
        data = super().read(name, limit)
        self._check(name, hashlib.sha256(data).hexdigest())
        return data

    def _check(self, name: str, found: str) -> None:
        if self._hashes is not None and found != self._hashes.get(name):
            raise CheckpointError(f"{name} is not the file that {MANIFEST} tells of (sha256 "
                                  f"{found[:12]}…); copy the bundle again, or {BUILD_AGAIN}.")


def open_folder(path: str) -> Folder:
    """The folder as a bundle where it holds a manifest, else as a plain checkpoint."""
    folder = Folder(path)
    if not folder.has(MANIFEST):
        return folder
    folder.__exit__()
    return Bundle(path)


def manifest_bytes(manifest: Mapping[str, Any]) -> bytes:
    """The manifest with its own hash, as it is written."""
    facts = {key: value for key, value in manifest.items() if key != "self"}
    facts["self"] = _hash(facts)
    return (json.dumps(facts, ensure_ascii=False, indent=1, allow_nan=False) + "\n").encode()


def read_manifest(data: bytes) -> dict[str, Any]:
    """A manifest that is whole and that this version understands. Raises CheckpointError."""
    manifest = read_object(data, MANIFEST)
    if manifest.get("format") != FORMAT:
        raise CheckpointError(f"{MANIFEST} has the format {shown(manifest.get('format'))}, this "
                              f"version reads {FORMAT}; {BUILD_AGAIN}.")
    wrong = [key for key, kind in FACTS.items() if type(manifest.get(key)) is not kind]
    if wrong or data != manifest_bytes(manifest):
        what = f": {wrong[0]} is missing or of another type" if wrong else ""
        raise CheckpointError(f"{MANIFEST} was changed after it was written{what}; copy the bundle "
                              f"again, or {BUILD_AGAIN}.")
    return manifest


def passed_precisions(manifest: Mapping[str, Any]) -> list[str]:
    """The precisions that the gate let pass, fp32 first."""
    return ["fp32", *(name for name, facts in manifest["precisions"].items()
                      if name != "fp32" and facts["passed"])]


def quantised_tensors(bundle: Bundle, fd: int,
                      wanted: Mapping[str, tuple[int, ...]]) -> dict[str, Stored]:
    """The tensors of int8.safetensors, open as `fd`, whose shapes fit those of the `wanted` wide
    weights. Raises CheckpointError: the file was written by another tool than ours."""
    found = {name: Stored.of(tensor, INT8_WEIGHTS, fd)
             for name, tensor in read_header(fd, INT8_WEIGHTS).items()}
    expected: dict[str, tuple[str, tuple[int, ...]]] = {}
    for product, kind in bundle.manifest["layers"].items():
        if kind == "int8":
            outputs, inputs = wanted.get(f"{product}.weight", (0, 0))
            expected[f"{product}.weight"] = "I8", (outputs, inputs)
            expected[f"{product}.scales"] = "F32", (outputs,)
            if f"{product}.divisors" in found:
                expected[f"{product}.divisors"] = "F32", (inputs,)
    if {name: (tensor.dtype, tensor.shape) for name, tensor in found.items()} != expected:
        raise CheckpointError(f"{INT8_WEIGHTS} does not hold the layers that {MANIFEST} lists; "
                              f"{BUILD_AGAIN}.")
    return found


def _hash(facts: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, ensure_ascii=False, allow_nan=False).encode()
                          ).hexdigest()
