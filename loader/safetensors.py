"""The safetensors format: a reader that believes nothing, and a writer."""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from loader.errors import CheckpointError, shown
from loader.strict_json import read_object

HEADER_LIMIT = 100_000_000  # bytes; the format's own limit
RANK_LIMIT = 32             # dimensions; what every numpy can hold
DIM_LIMIT = 1 << 48         # so that no product is ever large enough to matter

BITS = {"BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F4": 4,
        "F6_E2M3": 6, "F6_E3M2": 6, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32,
        "U32": 32, "F32": 32, "F64": 64, "I64": 64, "U64": 64, "C64": 64}
NUMPY = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4",
         "I16": "<i2", "I8": "i1", "U8": "u1", "BOOL": "?"}
PAD = "pad."  # names of the fillers that align a sealed image; the format allows no gaps


@dataclass(frozen=True)
class Tensor:
    """Where one tensor lies in its file.

    `dtype` is the format's word ("F32", "BF16"), `begin` and `end` are bytes from the start of the
    file, not of its data part.
    """

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def read_header(fd: int, file: str) -> dict[str, Tensor]:
    """All tensors of an open safetensors file, checked against the file's present size.

    Reads the header only, by pread: a file that is cut meanwhile gives an error, not SIGBUS.
    Raises CheckpointError.
    """
    size = os.fstat(fd).st_size
    length = _header_length(os.pread(fd, 8, 0), size, file)
    head = bytearray()
    while len(head) < length:
        part = os.pread(fd, length - len(head), 8 + len(head))
        if not part:
            raise CheckpointError(f"{file} became shorter while it was read; start again.")
        head += part
    return _tensors(bytes(head), size, file)


def open_image(buffer: Any) -> dict[str, Tensor]:
    """The tensors of a whole image in memory (a sealed one that `prepare` wrote), without fillers.

    Raises CheckpointError where it is no sound image.
    """
    view = memoryview(buffer).cast("B")
    length = _header_length(bytes(view[:8]), len(view), "the image")
    tensors = _tensors(bytes(view[8:8 + length]), len(view), "the image")
    return {name: tensor for name, tensor in tensors.items() if not name.startswith(PAD)}


def stored_array(buffer: Any, tensor: Tensor) -> np.ndarray:
    """The tensor as a view of the buffer, in its stored type; BF16 as the uint16 of its bits."""
    count = math.prod(tensor.shape)
    flat = np.frombuffer(buffer, NUMPY[tensor.dtype], count, tensor.begin)
    return flat.reshape(tensor.shape)


def float32_array(buffer: Any, tensor: Tensor) -> np.ndarray:
    """The tensor widened to float32; a view where it is F32 already. F32, F16, BF16, F64 only."""
    stored = stored_array(buffer, tensor)
    if tensor.dtype == "BF16":  # the upper half of a float32
        return (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return stored.astype(np.float32, copy=False)


def layout(specs: Mapping[str, tuple[str, tuple[int, ...]]], align: int = 1,
           metadata: Mapping[str, str] | None = None) -> tuple[bytes, dict[str, Tensor], int]:
    """The head of a file (length and header), the place of each tensor, and the file's size.

    `specs` is name → (dtype, shape), laid out in its order. With `align` > 1 each tensor begins at
    a multiple of that many bytes of the file; fillers named PAD + number make up for the gaps.
    """
    entries: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    at, places = 0, {}
    for name, (dtype, shape) in specs.items():
        gap = -at % align
        if gap:
            entries[f"{PAD}{len(entries)}"] = _entry("U8", (gap,), at, at + gap)
        begin = at + gap
        at = begin + math.prod(shape) * BITS[dtype] // 8
        entries[name] = _entry(dtype, shape, begin, at)
        places[name] = (dtype, tuple(shape), begin, at)
    header = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    header += b" " * (-(8 + len(header)) % max(align, 8))
    start = 8 + len(header)
    tensors = {name: Tensor(dtype, shape, start + begin, start + end)
               for name, (dtype, shape, begin, end) in places.items()}
    return struct.pack("<Q", len(header)) + header, tensors, start + at


def file_bytes(arrays: Mapping[str, np.ndarray],
               metadata: Mapping[str, str] | None = None) -> bytes:
    """A whole safetensors file of float32, float16 and int8 arrays, largest elements first.

    `metadata` is {"format": "pt"} unless given: transformers refuses a file without it.
    """
    words = {np.dtype("<f4"): "F32", np.dtype("<f2"): "F16", np.dtype("i1"): "I8"}
    plain = {name: np.asarray(array, array.dtype.newbyteorder("<"), order="C")
             for name, array in arrays.items()}
    names = sorted(plain, key=lambda name: (-plain[name].itemsize, name))
    specs = {name: (words[plain[name].dtype], plain[name].shape) for name in names}
    head, _, _ = layout(specs, metadata=metadata or {"format": "pt"})
    return head + b"".join(plain[name].tobytes() for name in names)


def _entry(dtype: str, shape: tuple[int, ...], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def _header_length(first: bytes, size: int, file: str) -> int:
    if len(first) < 8:
        raise CheckpointError(f"{file} has {size} bytes, too few for a safetensors file; "
                              "download it again.")
    length = struct.unpack("<Q", first)[0]
    if length > HEADER_LIMIT:
        raise CheckpointError(f"{file} is no safetensors file: its header would have {length} "
                              f"bytes, the format allows {HEADER_LIMIT}; download it again.")
    if length > size - 8:
        raise CheckpointError(f"{file} ends inside its header ({size} bytes, the header needs "
                              f"{8 + length}); download it again.")
    return length


def _tensors(head: bytes, size: int, file: str) -> dict[str, Tensor]:
    """Every entry of the header, checked alone and against its neighbours."""
    if not head.startswith(b"{"):
        raise CheckpointError(f"{file} is no safetensors file: its header does not begin with "
                              "'{'; download it again.")
    entries = read_object(head, f"{file}'s header")
    metadata = entries.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise CheckpointError(f"{file} has a __metadata__ that is no table of texts; "
                              "save the model again.")
    start = 8 + len(head)
    tensors = {name: _tensor(entry, start, size, f"{file}: {shown(name)}")
               for name, entry in entries.items()}
    end = start
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].begin, item[1].end)):
        if tensor.begin != end:
            fault = "overlaps another tensor" if tensor.begin < end else \
                f"begins {tensor.begin - end} bytes after the tensor before it"
            raise CheckpointError(f"{file}: {shown(name)} {fault}, which the format does not "
                                  "allow; save the model again.")
        end = tensor.end
    if end != size:
        raise CheckpointError(f"{file} has {size - end} bytes after its last tensor; "
                              "download it again.")
    return tensors


def _tensor(entry: Any, start: int, size: int, where: str) -> Tensor:
    """One entry; `where` begins its messages, `start` is where the data part begins."""
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise CheckpointError(f"{where} is not described by dtype, shape and data_offsets; "
                              "save the model again.")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in BITS:
        raise CheckpointError(f"{where} has the unknown dtype {shown(dtype)}; "
                              "save the model as F32, F16 or BF16.")
    if not _whole_numbers(shape) or len(shape) > RANK_LIMIT or max(shape, default=0) > DIM_LIMIT:
        raise CheckpointError(f"{where} has a shape that is not a list of at most {RANK_LIMIT} "
                              "sizes; save the model again.")
    if not _whole_numbers(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise CheckpointError(f"{where} has data_offsets that are not a beginning and an end; "
                              "save the model again.")
    begin, end = offsets
    if end > size - start:
        raise CheckpointError(f"{where} ends past the end of the file ({size} bytes); "
                              "download it again.")
    bits = math.prod(shape) * BITS[dtype]
    if bits != 8 * (end - begin):
        raise CheckpointError(f"{where} is {dtype} of shape {_shape(shape)}, which takes "
                              f"{bits / 8:.0f} bytes, but its data_offsets give {end - begin}; "
                              "save the model again.")
    return Tensor(dtype, tuple(shape), start + begin, start + end)


def _whole_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _shape(shape: list[int]) -> str:
    return str(shape) if len(shape) <= 8 else f"of {len(shape)} dimensions"
