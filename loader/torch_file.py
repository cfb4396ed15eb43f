"""The tensors of a torch file (pytorch_model.bin): where they lie, without torch.

Two layouts hold the same pickle: a zip file since torch 1.6 (2020), with a storage an entry, and
before that five pickles and the storages one after another.
"""

from __future__ import annotations

import math
import os
from typing import Any

from loader.errors import CheckpointError, shown
from loader.safetensors import BITS, RANK_LIMIT
from loader.stored import Stored
from loader.torch_pickle import Storage, View, read_pickle
from loader.zip_directory import Entry, read_directory

PICKLE_BYTES = 16 << 20   # 10,000 tensors take 2 MB
ZIP_MAGIC = b"PK\3\4"
# The number 0x1950a86a20f9469cfc6c as a pickle of its own: all old files begin so.
OLD_MAGIC = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
OLD_PROTOCOL = 1001
AGAIN = "save the model as safetensors"


def read_torch(fd: int, file: str) -> dict[str, Stored]:
    """Name → place of every tensor of an open torch file; values that are None are left out.

    Reads the pickle only. Each tensor is checked against its storage, and that against the file's
    size. Raises CheckpointError.
    """
    magic = os.pread(fd, len(OLD_MAGIC), 0)
    if magic.startswith(ZIP_MAGIC):
        table, places = _read_zip(fd, file)
    elif magic == OLD_MAGIC:
        table, places = _read_old(fd, file)
    else:
        raise CheckpointError(f"{file} is neither a zip file nor an old file of torch.save; "
                              "download it again, or save the model as safetensors.")
    if not isinstance(table, dict):
        raise CheckpointError(f"{file} holds {_kind(table)}, not a table of tensors; "
                              "save the model's state_dict, best as safetensors.")
    tensors = {}
    for name, value in table.items():
        if isinstance(value, View):
            tensors[name] = _stored(value, places, fd, file, f"{file}: {shown(name)}")
        elif value is not None:
            raise CheckpointError(f"{file} holds {_kind(value)} under {shown(name)}, not a tensor; "
                                  "save the model's state_dict alone.")
    return tensors


def _read_zip(fd: int, file: str) -> tuple[Any, dict[str, Entry]]:
    entries = read_directory(fd, file)
    folder = next((name[:-len("data.pkl")] for name in entries
                   if name.endswith("/data.pkl") and name.count("/") == 1), None)
    if folder is None:
        raise CheckpointError(f"{file} is a zip file without data.pkl, so torch.save did not write "
                              f"it; {AGAIN}.")
    if folder + "constants.pkl" in entries:
        raise CheckpointError(f"{file} is a TorchScript program, which is never run; save the "
                              "model's state_dict, best as safetensors.")
    order = entries.get(folder + "byteorder")
    if order is not None and os.pread(fd, min(order.size, 16), order.begin) != b"little":
        raise CheckpointError(f"{file} was written on a big-endian machine; {AGAIN}.")
    place = entries[folder + "data.pkl"]
    if place.size > PICKLE_BYTES:
        raise CheckpointError(f"{file}: its data.pkl has {place.size} bytes, more than the "
                              f"{PICKLE_BYTES} of any table of tensors; {AGAIN}.")
    table, _ = read_pickle(os.pread(fd, place.size, place.begin), 0, file)
    storages = folder + "data/"
    return table, {name[len(storages):]: entry for name, entry in entries.items()
                   if name.startswith(storages)}


def _read_old(fd: int, file: str) -> tuple[Any, dict[str, Entry]]:
    """Magic number, protocol, byte order, the table, the keys of the storages; then the storages,
    in the order of the keys, each behind its count of elements."""
    data = os.pread(fd, PICKLE_BYTES, 0)
    protocol, at = read_pickle(data, len(OLD_MAGIC), file)
    system, at = read_pickle(data, at, file)
    if protocol != OLD_PROTOCOL or not isinstance(system, dict) \
            or system.get("little_endian") is not True:
        raise CheckpointError(f"{file} was written by another torch or on a big-endian machine; "
                              f"{AGAIN}.")
    table, at = read_pickle(data, at, file)
    keys, at = read_pickle(data, at, file)
    used = {value.storage.key: value.storage for value in table.values()
            if isinstance(value, View)} if isinstance(table, dict) else {}
    places = {}
    for key in keys if isinstance(keys, list) else []:
        storage = used.get(key) if isinstance(key, str) else None
        if storage is None:
            raise CheckpointError(f"{file} holds a storage that no tensor uses; {AGAIN}.")
        if os.pread(fd, 8, at) != storage.count.to_bytes(8, "little"):
            raise CheckpointError(f"{file}: a storage has not the {storage.count} elements that "
                                  "its tensors say; download it again.")
        places[key] = Entry(at + 8, _storage_bytes(storage))
        at += 8 + _storage_bytes(storage)
    if at > os.fstat(fd).st_size:
        raise CheckpointError(f"{file} is cut short: its tensors need {at} bytes; "
                              "download it again.")
    return table, places


def _stored(view: View, places: dict[str, Entry], fd: int, file: str, where: str) -> Stored:
    """The place of one tensor in the file; `where` begins its messages."""
    storage, offset, shape, strides = view
    place = places.get(storage.key)
    if place is None or place.size != _storage_bytes(storage):
        found = "is missing" if place is None else f"has {place.size} bytes"
        raise CheckpointError(f"{where} needs a storage of {storage.count} {storage.dtype} "
                              f"elements, which {found}; download the file again.")
    if len(shape) > RANK_LIMIT:
        raise CheckpointError(f"{where} has {len(shape)} dimensions; {AGAIN}.")
    last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides))
    if math.prod(shape) and last >= storage.count:
        raise CheckpointError(f"{where} leads past its storage of {storage.count} elements; "
                              "download the file again.")
    begin = place.begin + offset * BITS[storage.dtype] // 8
    plain = 0 in shape or _is_contiguous(shape, strides)
    return Stored(file, fd, storage.dtype, shape, begin, None if plain else strides)


def _is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides)):
        if size != 1 and stride != step:
            return False
        step *= size
    return True


def _storage_bytes(storage: Storage) -> int:
    return storage.count * BITS[storage.dtype] // 8


def _kind(value: Any) -> str:
    return {dict: "a table", list: "a list", tuple: "a list", str: "a text", bool: "true or false",
            int: "a number", float: "a number"}.get(type(value), "something else")
