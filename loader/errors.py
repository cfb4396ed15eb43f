"""The loader's two errors, and how they show a value that somebody else wrote."""

from __future__ import annotations

SHOWN_CHARS = 60


class CheckpointError(Exception):
    """A checkpoint that is refused: one sentence that names the file, the fault and the way out."""


class WireError(ValueError):
    """Bytes that are no sound records of the wire format: one sentence with record and byte."""


def shown(value: object) -> str:
    """A value out of a file, fit for a message: ASCII, one line, at most SHOWN_CHARS characters."""
    if isinstance(value, (dict, list)):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    if isinstance(value, str):
        value = value[:SHOWN_CHARS]
    elif value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    elif isinstance(value, int) and abs(value) >> 128:
        return "a number of more than 38 digits"
    text = ascii(value)
    return text if len(text) <= SHOWN_CHARS else text[:SHOWN_CHARS - 3] + "..."
