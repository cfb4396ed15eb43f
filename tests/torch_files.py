"""Torch files written without torch, sound or not: what tests of their reader break."""

import io
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

STORAGES = {"<f4": "FloatStorage", "<f2": "HalfStorage", "<f8": "DoubleStorage",
            "<i8": "LongStorage", "|b1": "BoolStorage"}
OLD_HEAD = (b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.", b"\x80\x02M\xe9\x03.")


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def number(value: int) -> bytes:
    return b"\x8a\x09" + value.to_bytes(9, "little", signed=True)


def items(*parts: bytes) -> bytes:
    """A tuple of what the parts push."""
    return b"(" + b"".join(parts) + b"t"


def storage(key: str, kind: str, count: int, *more: bytes) -> bytes:
    return items(text("storage"), b"ctorch\n" + kind.encode() + b"\n", text(key), text("cpu"),
                 number(count), *more) + b"Q"


def tensor(stored: bytes, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> bytes:
    return b"ctorch._utils\n_rebuild_tensor_v2\n" + items(
        stored, number(offset), items(*map(number, shape)), items(*map(number, strides)), b"\x89",
        b"ccollections\nOrderedDict\n)R") + b"R"


def table(entries: Mapping[str, bytes]) -> bytes:
    """A whole pickle of a table."""
    pairs = b"".join(text(name) + value for name, value in entries.items())
    return b"\x80\x02}(" + pairs + b"u."


def entries_of(arrays: Mapping[str, np.ndarray], *more: bytes) -> dict[str, bytes]:
    """Name → instructions for each array, whose storage has its number as key."""
    made = {}
    for index, (name, array) in enumerate(arrays.items()):
        strides = tuple(step // array.itemsize for step in array.strides)
        kept = storage(str(index), STORAGES[array.dtype.str], array.size, *more)
        made[name] = tensor(kept, 0, array.shape, strides)
    return made


def zipped(pickled: bytes, storages: Mapping[str, bytes], method: int = zipfile.ZIP_STORED,
           **more: bytes) -> bytes:
    """The zip layout; `more` are further entries, or others of the same name."""
    files = {"data.pkl": pickled, "byteorder": b"little",
             **{f"data/{key}": data for key, data in storages.items()}, **more}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(f"model/{name}", data)
    return buffer.getvalue()


def zip_bytes(arrays: Mapping[str, np.ndarray]) -> bytes:
    return zipped(table(entries_of(arrays)), {
        str(index): array.tobytes() for index, array in enumerate(arrays.values())})


def old_bytes(arrays: Mapping[str, np.ndarray], system: bytes | None = None) -> bytes:
    """The layout before torch 1.6."""
    keys = [str(index) for index in range(len(arrays))]
    return b"".join([
        *OLD_HEAD, system or b"\x80\x02}(" + text("little_endian") + b"\x88u.",
        table(entries_of(arrays, b"N")), b"\x80\x02](" + b"".join(map(text, keys)) + b"e.",
        *(struct.pack("<Q", array.size) + array.tobytes() for array in arrays.values())])


def write_torch(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    path.write_bytes(zip_bytes(arrays))
