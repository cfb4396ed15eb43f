"""A bundle's folder: written beside its place and renamed, so that no half of one is ever there."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shutil
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from loader.bundle import INT8_WEIGHTS
from loader.manifest import FORMAT, MANIFEST, manifest_bytes
from loader.safetensors import file_bytes, layout, open_image
from loader.weights import WEIGHTS
from server.version import VERSION
from tools.building.source import Source


def image_pieces(image: Any) -> Iterable[bytes | memoryview]:
    """A sealed image as a safetensors file: the same tensors, without fillers."""
    tensors = open_image(image)
    head, _, _ = layout({name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()},
                        metadata={"format": "pt"})
    yield head
    for tensor in tensors.values():
        yield memoryview(image)[tensor.begin:tensor.end]


def write_bundle(place: Path, source: Source, image: Any, quantised: Mapping[str, np.ndarray],
                 facts: Mapping[str, Any]) -> str:
    """Writes the folder and returns its version.

    The source's small files are copied; `image` holds the wide weights, `quantised` the tensors of
    8-bit products; `facts` are the manifest's, to which the rest is added.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    scratch = place.with_name(f".{place.name}.{os.getpid()}")
    scratch.mkdir()
    try:
        version = _fill(scratch, source, image, quantised, facts)
        scratch.rename(place)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    return version


def cpu_model() -> str:
    """The processor's name as the kernel tells it."""
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    return names[0] if names else "unknown"


def _fill(folder: Path, source: Source, image: Any, quantised: Mapping[str, np.ndarray],
          facts: Mapping[str, Any]) -> str:
    hashes = {}
    pieces: dict[str, Iterable[bytes | memoryview]] = {
        **{name: [data] for name, data in source.files.items()}, WEIGHTS: image_pieces(image),
        INT8_WEIGHTS: [file_bytes(quantised)]}
    for name, parts in sorted(pieces.items()):
        digest = hashlib.sha256()
        with open(folder / name, "xb") as file:
            for part in parts:
                file.write(part)
                digest.update(part)
        hashes[name] = digest.hexdigest()
    whole = hashlib.sha256("".join(f"{hashes[name]} {name}\n" for name in hashes).encode())
    version = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{whole.hexdigest()[:8]}"
    (folder / MANIFEST).write_bytes(manifest_bytes({
        "format": FORMAT, **facts, "version": version, "source": source.hashes, "files": hashes,
        "made_with": {"torch": importlib.metadata.version("torch"), "firebrick": VERSION,
                      "cpu": cpu_model()}}))
    return version
