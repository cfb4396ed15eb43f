"""The weights of a checkpoint: which file, which tensors, and a checked copy of them in memory."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from loader.checkpoint import Folder
from loader.errors import CheckpointError
from loader.safetensors import NUMPY, Tensor, layout

WEIGHTS = "model.safetensors"
CHUNK_BYTES = 4 << 20
ALIGN = 64  # bytes; a cache line, and what every vector load is glad of
OTHER_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin", "tf_model.h5", "model.onnx",
                 "flax_model.msgpack", "model.ckpt.index")

# stored type → the type in the image, and the bits that are all set in NaN and infinity
FLOATS = {"F32": ("F32", np.uint32(0x7f800000)), "F16": ("F16", np.uint16(0x7c00)),
          "BF16": ("BF16", np.uint16(0x7f80)), "F64": ("F32", np.uint32(0x7f800000))}


@contextlib.contextmanager
def open_weights(folder: Folder) -> Iterator[int]:
    """A descriptor of model.safetensors; says what to do where only other weights are there.

    A file that is larger than this machine's memory is refused, before anything is read of it.
    """
    if not folder.has(WEIGHTS):
        raise CheckpointError(_other_weights(folder))
    fd = folder.open(WEIGHTS)
    try:
        size = os.fstat(fd).st_size
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if size > memory:
            raise CheckpointError(f"{WEIGHTS} has {size} bytes, this machine has {memory} bytes of "
                                  "memory; use a larger one.")
        yield fd
    finally:
        os.close(fd)


def match_tensors(wanted: Mapping[str, tuple[int, ...]], prefix: str,
                  stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Canonical name → the stored tensor for it, of the wanted shape and a floating type.

    Old checkpoints call LayerNorm's weight gamma and its bias beta, and some leave the prefix out;
    anything else in the file is ignored. Raises CheckpointError that names what is missing,
    doubled, of another shape or no floating number.
    """
    found: dict[str, Tensor] = {}
    missing = []
    for name, shape in wanted.items():
        names = [alias for alias in _aliases(name, prefix) if alias in stored]
        if len(names) > 1:
            raise CheckpointError(f"{WEIGHTS} has both {names[0]} and {names[1]}, which mean the "
                                  "same tensor; remove one.")
        if not names:
            missing.append(name)
            continue
        tensor = stored[names[0]]
        if tensor.shape != tuple(shape):
            raise CheckpointError(f"{WEIGHTS}: {names[0]} has the shape {list(tensor.shape)}, but "
                                  f"config.json asks for {list(shape)}; correct config.json.")
        if tensor.dtype not in FLOATS:
            raise CheckpointError(f"{WEIGHTS}: {names[0]} is {tensor.dtype}, which is not served; "
                                  "save the model as F32, F16 or BF16.")
        found[name] = tensor
    if missing:
        more = f" and {len(missing) - 3} more are" if len(missing) > 3 else \
            " is" if len(missing) == 1 else " are"
        raise CheckpointError(f"{WEIGHTS}: {', '.join(missing[:3])}{more} missing, which "
                              "config.json asks for; this is no whole checkpoint of such a text "
                              "classifier: train or download one.")
    return found


def copy_weights(source: int | None, tensors: Mapping[str, Tensor], target: int,
                 digest: Callable[[bytes], None]) -> int:
    """Writes the tensors as one safetensors image to `target`; returns its size in bytes.

    The types stay as stored, but F64 becomes F32; each tensor begins at a multiple of ALIGN. Every
    byte is read once, checked (no NaN, no infinity) as it will be served, and given to `digest`.
    Without a source there are no tensors.
    """
    specs = {name: (FLOATS[tensor.dtype][0], tensor.shape) for name, tensor in tensors.items()}
    head, places, size = layout(specs, ALIGN)
    os.ftruncate(target, size)
    _write(target, head, 0)
    digest(head)
    for name, tensor in tensors.items():
        at = places[name].begin
        for begin in range(tensor.begin, tensor.end, CHUNK_BYTES):
            stored = _read(source, min(CHUNK_BYTES, tensor.end - begin), begin)
            chunk = _served(stored, tensor.dtype, name)
            _write(target, chunk, at)
            digest(chunk)
            at += len(chunk)
    return size


def _other_weights(folder: Folder) -> str:
    for name in ("model.safetensors.index.json", "pytorch_model.bin",
                 "pytorch_model.bin.index.json"):
        if folder.has(name):
            return (f"{name}: weights in this form are not read yet; save the model as one "
                    f"{WEIGHTS} (model.save_pretrained in transformers).")
    others = [name for name in OTHER_WEIGHTS if folder.has(name)]
    found = f" ({others[0]} is not enough)" if others else ""
    return (f"{WEIGHTS} is missing{found}; save the model with model.save_pretrained in "
            "transformers.")


def _served(stored: bytearray, dtype: str, name: str) -> bytearray | bytes:
    """A chunk in the image's type, or CheckpointError where it holds NaN or infinity."""
    chunk: bytearray | bytes = stored
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
        raise CheckpointError(f"{WEIGHTS}: {name} holds NaN, infinity or a number too large for "
                              "float32; its training failed: use another checkpoint.")
    return chunk


def _read(fd: int | None, count: int, offset: int) -> bytearray:
    data = bytearray(count)
    done = 0
    while done < count:
        try:
            part = os.preadv(fd, [memoryview(data)[done:]], offset + done)
        except OSError as error:
            raise CheckpointError(f"{WEIGHTS} cannot be read: {error.strerror}; "
                                  "check the disk.") from None
        if part == 0:
            raise CheckpointError(f"{WEIGHTS} became shorter while it was read; start again.")
        done += part
    return data


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
