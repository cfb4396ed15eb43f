"""A compiled table as one run of bytes: small values as JSON, arrays as they lie in memory.

The bytes: the length of the JSON text (8 bytes, little-endian), the text, then the arrays in the
order in which the text names them, each at the next multiple of 16.
"""

from __future__ import annotations

import json
from typing import Any

import numpy

ALIGNMENT = 16


def pack_table(table: dict[str, Any]) -> bytes:
    """The bytes of a table whose values are JSON-able, or arrays of one dimension."""
    values = {key: value for key, value in table.items() if not isinstance(value, numpy.ndarray)}
    arrays = {key: value for key, value in table.items() if key not in values}
    kinds = [[key, array.dtype.str, len(array)] for key, array in arrays.items()]
    text = json.dumps([values, kinds], ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "surrogatepass")
    parts = [len(text).to_bytes(8, "little"), text]
    size = 8 + len(text)
    for array in arrays.values():
        parts += [bytes(-size % ALIGNMENT), array.tobytes()]
        size += -size % ALIGNMENT + array.nbytes
    return b"".join(parts)


def unpack_table(buffer: bytes | memoryview) -> dict[str, Any]:
    """The table; its arrays are read-only views of the buffer, which lives as long as they."""
    view = memoryview(buffer)
    end = 8 + int.from_bytes(view[:8], "little")
    table, kinds = json.loads(bytes(view[8:end]).decode("utf-8", "surrogatepass"))
    for key, kind, count in kinds:
        end += -end % ALIGNMENT
        table[key] = numpy.frombuffer(view, dtype=kind, count=count, offset=end)
        end += table[key].nbytes
    return table
