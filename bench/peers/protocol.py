"""What the benchmark and a peer's process say to each other: frames on a pipe.

A frame is two little-endian uint32 sizes, a JSON object of the first size, and bytes of the second:
token ids on the way in, logits on the way out.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np

SIZES = struct.Struct("<II")
HEAD_BYTES_MOST = 1 << 20
BODY_BYTES_MOST = 1 << 28


def write_frame(stream: BinaryIO, head: dict[str, Any], body: bytes = b"") -> None:
    """Writes one frame and flushes."""
    text = json.dumps(head).encode()
    stream.write(SIZES.pack(len(text), len(body)) + text + body)
    stream.flush()


def read_frame(stream: BinaryIO) -> tuple[dict[str, Any], bytes]:
    """The next frame; EOFError when the other side has gone, ValueError when it talks nonsense."""
    head_bytes, body_bytes = SIZES.unpack(_exactly(stream, SIZES.size))
    if head_bytes > HEAD_BYTES_MOST or body_bytes > BODY_BYTES_MOST:
        raise ValueError(f"a frame of {head_bytes} + {body_bytes} bytes; a frame has at most "
                         f"{HEAD_BYTES_MOST} + {BODY_BYTES_MOST}: something else wrote to the pipe")
    head = json.loads(_exactly(stream, head_bytes))
    if not isinstance(head, dict):
        raise ValueError(f"a frame's head is {type(head).__name__}; it has to be an object")
    return head, _exactly(stream, body_bytes)


def write_rows(rows: Sequence[np.ndarray]) -> tuple[list[int], bytes]:
    """The lengths and the ids one after another (int32) of rows of token ids."""
    lengths = [len(row) for row in rows]
    return lengths, b"".join(np.asarray(row, "<i4").tobytes() for row in rows)


def read_rows(lengths: Sequence[int], body: bytes) -> list[np.ndarray]:
    """The rows of `write_rows`, int32 each; ValueError where the sizes disagree."""
    ids = np.frombuffer(body, "<i4")
    if sum(lengths) != len(ids):
        raise ValueError(f"rows of {sum(lengths)} ids in all, and {len(ids)} ids came")
    ends = np.cumsum(lengths)
    return [ids[end - length:end] for end, length in zip(ends, lengths)]


def _exactly(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError("the other side of the pipe has gone")
    return data
