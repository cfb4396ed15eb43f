"""The weights of a checkpoint: which files, which tensors, and a checked copy of them in memory."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from loader.checkpoint import Folder
from loader.errors import CheckpointError
from loader.safetensors import NUMPY, layout, read_header
from loader.shards import read_shards
from loader.stored import Stored
from loader.torch_file import read_torch

WEIGHTS = "model.safetensors"
TORCH_WEIGHTS = "pytorch_model.bin"
# In the order of preference; an index names files that end as its own name before .index.json.
FILES = (WEIGHTS, f"{WEIGHTS}.index.json", TORCH_WEIGHTS, f"{TORCH_WEIGHTS}.index.json")
ALIGN = 64  # bytes; a cache line, and what every vector load is glad of
OTHER_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin", "tf_model.h5", "model.onnx",
                 "flax_model.msgpack", "model.ckpt.index")

# stored type → the type in the image, and the bits that are all set in NaN and infinity; 8-bit
# integers come out of bundles alone
FLOATS = {"F32": ("F32", np.uint32(0x7f800000)), "F16": ("F16", np.uint16(0x7c00)),
          "BF16": ("BF16", np.uint16(0x7f80)), "F64": ("F32", np.uint32(0x7f800000))}


class Weights(NamedTuple):
    """The tensors of a checkpoint by name; `file` says in messages where one would be looked for.

    Without files (a family that has none) there are no tensors.
    """

    file: str = ""
    tensors: Mapping[str, Stored] = {}


@contextlib.contextmanager
def open_weights(folder: Folder) -> Iterator[Weights]:
    """The weights of the folder, their headers read and checked, their files held open.

    safetensors go before a torch file, one file before shards. Files that together are larger than
    this machine's memory are refused. Raises CheckpointError.
    """
    file = next((name for name in FILES if folder.has(name)), None)
    if file is None:
        raise CheckpointError(_no_weights(folder))
    size_bytes = 0
    with contextlib.ExitStack() as stack:
        def read(name: str) -> dict[str, Stored]:
            nonlocal size_bytes
            fd = folder.open(name)
            stack.callback(os.close, fd)
            size_bytes += os.fstat(fd).st_size
            _check_memory(file, size_bytes)
            if name.endswith(".bin"):
                return read_torch(fd, name)
            return {key: Stored.of(tensor, name, fd)
                    for key, tensor in read_header(fd, name).items()}

        if file.endswith(".json"):
            suffix = ".bin" if file.startswith(TORCH_WEIGHTS) else ".safetensors"
            yield Weights(file, read_shards(folder, file, suffix, read))
        else:
            yield Weights(file, read(file))


def match_tensors(wanted: Mapping[str, tuple[int, ...]], prefix: str,
                  weights: Weights) -> dict[str, Stored]:
    """Canonical name → the stored tensor for it, of the wanted shape and a floating type.

    Old checkpoints call LayerNorm's weight gamma and its bias beta, and some leave the prefix out;
    anything else in the file is ignored. Raises CheckpointError that names what is missing,
    doubled, of another shape or no floating number.
    """
    file, stored = weights
    found: dict[str, Stored] = {}
    missing = []
    for name, shape in wanted.items():
        names = [alias for alias in _aliases(name, prefix) if alias in stored]
        if len(names) > 1:
            raise CheckpointError(f"{file} has both {names[0]} and {names[1]}, which mean the "
                                  "same tensor; remove one.")
        if not names:
            missing.append(name)
            continue
        tensor = stored[names[0]]
        if tensor.shape != tuple(shape):
            raise CheckpointError(f"{tensor.file}: {names[0]} has the shape {list(tensor.shape)}, "
                                  f"but config.json asks for {list(shape)}; correct config.json.")
        if tensor.dtype not in FLOATS:
            raise CheckpointError(f"{tensor.file}: {names[0]} is {tensor.dtype}, which is not "
                                  "served; save the model as F32, F16 or BF16.")
        found[name] = tensor
    if missing:
        more = f" and {len(missing) - 3} more are" if len(missing) > 3 else \
            " is" if len(missing) == 1 else " are"
        raise CheckpointError(f"{file}: {', '.join(missing[:3])}{more} missing, which "
                              "config.json asks for; this is no whole checkpoint of such a text "
                              "classifier: train or download one.")
    return found


def copy_weights(tensors: Mapping[str, Stored], target: int,
                 digest: Callable[[bytes], None]) -> int:
    """Writes the tensors as one safetensors image to `target`; returns its size in bytes.

    The types stay as stored, but F64 becomes F32; each tensor begins at a multiple of ALIGN. Every
    byte is read once, checked (no NaN, no infinity) as it will be served, and given to `digest`.
    """
    specs = {name: ("I8" if tensor.dtype == "I8" else FLOATS[tensor.dtype][0], tensor.shape)
             for name, tensor in tensors.items()}
    head, places, size = layout(specs, ALIGN)
    for tensor in tensors.values():  # a torch file may give one stored number many places
        _check_memory(tensor.file, size)
    os.ftruncate(target, size)
    _write(target, head, 0)
    digest(head)
    for name, tensor in tensors.items():
        at = places[name].begin
        for stored in tensor.chunks():
            chunk = _served(stored, tensor.dtype, f"{tensor.file}: {name}")
            _write(target, chunk, at)
            digest(chunk)
            at += len(chunk)
    return size


def _no_weights(folder: Folder) -> str:
    others = [name for name in OTHER_WEIGHTS if folder.has(name)]
    found = f" ({others[0]} is not enough)" if others else ""
    return (f"{WEIGHTS} is missing, and so is {TORCH_WEIGHTS}{found}; save the model with "
            "model.save_pretrained in transformers.")


def _check_memory(file: str, size_bytes: int) -> None:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if size_bytes > memory:
        raise CheckpointError(f"{file} asks for {size_bytes} bytes, this machine has {memory} "
                              "bytes of memory; use a larger one.")


def _served(stored: bytearray | bytes, dtype: str, where: str) -> bytearray | bytes:
    """A chunk in the image's type, or CheckpointError where it holds NaN or infinity."""
    chunk = stored
    if dtype == "I8":
        return chunk
    if dtype == "F64":
        values = np.frombuffer(stored, NUMPY["F64"])
        if np.isfinite(values).all():
            with np.errstate(over="ignore"):  # told below, as the infinity that it becomes
                chunk = values.astype(NUMPY["F32"]).tobytes()
        else:
            chunk = b"\0\0\x80\x7f"
    exponent = FLOATS[dtype][1]
    bits = np.frombuffer(chunk, exponent.dtype)
    if ((bits & exponent) == exponent).any():
        raise CheckpointError(f"{where} holds NaN, infinity or a number too large for "
                              "float32; its training failed: use another checkpoint.")
    return chunk


def _write(fd: int, data: bytes | bytearray, offset: int) -> None:
    view = memoryview(data)
    while view:
        done = os.pwrite(fd, view, offset)
        view, offset = view[done:], offset + done


def _aliases(name: str, prefix: str) -> list[str]:
    names = [name]
    if prefix and name.startswith(prefix):
        names.append(name[len(prefix):])
    old = [alias[:-len("weight")] + "gamma" if alias.endswith("LayerNorm.weight") else
           alias[:-len("bias")] + "beta"
           for alias in names if alias.endswith(("LayerNorm.weight", "LayerNorm.bias"))]
    return names + old
