"""JSON files as the loader accepts them: what readers could understand in two ways is refused."""

from __future__ import annotations

import json
from typing import Any

from loader.errors import CheckpointError, shown

DEEPEST = 64  # levels; the deepest tokenizer.json in the wild has 12


def read_object(data: bytes, file: str) -> dict[str, Any]:
    """The object that a JSON file holds; `file` names it in messages.

    Raises CheckpointError for an empty file, a byte order mark, bytes that are not UTF-8, NaN and
    Infinity, a key given twice, more than DEEPEST levels, and anything but an object at the top.
    """
    if not data.strip():
        raise CheckpointError(f"{file} is empty; download the checkpoint again.")
    if data.startswith(b"\xef\xbb\xbf"):
        raise CheckpointError(f"{file} begins with a byte order mark; save it as plain UTF-8.")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CheckpointError(
            f"{file} is not UTF-8 at byte {error.start}; download the checkpoint again.") from None
    value = _parse(text, file)
    if not isinstance(value, dict):
        raise CheckpointError(f"{file} holds {_kind(value)}, not an object; "
                              "download the checkpoint again.")
    _check_depth(value, file)
    return value


def _parse(text: str, file: str) -> Any:
    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(items)
        if len(table) != len(items):
            seen: set[str] = set()
            twice = next(key for key, _ in items if key in seen or seen.add(key))
            raise CheckpointError(f"{file} gives the key {shown(twice)} twice; remove one of them.")
        return table

    def constant(word: str) -> None:
        raise CheckpointError(f"{file} holds {word}, which is no JSON number; write a finite one.")

    try:
        return json.loads(text, object_pairs_hook=pairs, parse_constant=constant)
    except json.JSONDecodeError as error:
        raise CheckpointError(
            f"{file} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}; "
            "download the checkpoint again.") from None
    except RecursionError:
        raise CheckpointError(f"{file} is nested more than {DEEPEST} levels deep; "
                              "no checkpoint needs that.") from None
    except ValueError:  # Python's own limit on the digits of an integer
        raise CheckpointError(f"{file} holds a number of thousands of digits; "
                              "no checkpoint needs that.") from None


def _check_depth(value: dict[str, Any], file: str) -> None:
    """A walk by levels, not by recursion: Pythons differ in how deep their parser goes."""
    level: list[Any] = [value]
    for _ in range(DEEPEST):
        level = [child for parent in level
                 for child in (parent.values() if isinstance(parent, dict) else parent)
                 if isinstance(child, (dict, list))]
        if not level:
            return
    raise CheckpointError(f"{file} is nested more than {DEEPEST} levels deep; "
                          "no checkpoint needs that.")


def _kind(value: object) -> str:
    return {list: "a list", str: "a text", bool: "true or false",
            type(None): "null"}.get(type(value), "a number")
