"""What a tokenizer.json's post_processor puts around texts, compiled to a frame of ids.

Read: TemplateProcessing, BertProcessing, RobertaProcessing, and a Sequence with one of these;
ByteLevel, which only moves offsets, changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loader.errors import CheckpointError, shown
from loader.tokenizers.encoding import Frame

# The segments of a template as steps: a text, or the ids of a special token, each with its type.
_Steps = list[tuple[str, list[int], int]]


def file_frame(part: Any, ids: Mapping[str, int]) -> Frame:
    """The frame of a parsed post_processor; `ids` has every token's id, added ones too.

    Raises CheckpointError for a part that is not served, for one that puts nothing around a text,
    and for a pair's template that is no continuation of the single one.
    """
    found = list(_processors(part))
    if len(found) != 1:
        raise CheckpointError("tokenizer.json: the post_processor puts no special token around "
                              "texts; save the tokenizer with the one of its model."
                              if not found else "tokenizer.json: the post_processor has more than "
                              "one template, served is one; save the tokenizer again.")
    part, = found
    if part["type"] == "TemplateProcessing":
        single, pair = (_template(part, key, ids) for key in ("single", "pair"))
    else:
        first, last = (_pair(part, key, ids) for key in ("cls", "sep"))
        single = [("", first, 0), ("A", [], 0), ("", last, 0)]
        pair = [*single, ("B", [], 1), ("", last, 1)] if part["type"] == "BertProcessing" else \
            [*single, ("", last, 0), ("B", [], 0), ("", last, 0)]
    return _frame(single, pair)


def _processors(part: Any) -> list[dict[str, Any]]:
    """The parts that put tokens around texts, a Sequence flattened."""
    if part is None:
        return []
    kind = part.get("type") if isinstance(part, dict) else part
    if kind == "ByteLevel":
        return []
    if kind == "Sequence" and isinstance(part.get("processors"), list) \
            and not any(isinstance(inner, dict) and inner.get("type") == "Sequence"
                        for inner in part["processors"]):
        return [found for inner in part["processors"] for found in _processors(inner)]
    if kind in ("TemplateProcessing", "BertProcessing", "RobertaProcessing"):
        return [part]
    raise CheckpointError(f"tokenizer.json: the post_processor is {shown(kind)}, served are "
                          "TemplateProcessing, BertProcessing and RobertaProcessing.")


def _pair(part: dict[str, Any], key: str, ids: Mapping[str, int]) -> list[int]:
    """The id of a token given as [content, id]."""
    value = part.get(key)
    if not isinstance(value, list) or len(value) != 2 or not isinstance(value[0], str):
        raise CheckpointError(f"tokenizer.json: the post_processor's {key} is {shown(value)}, not "
                              "a token with its id; save the tokenizer again.")
    return [_checked(value[0], value[1], ids)]


def _template(part: dict[str, Any], key: str, ids: Mapping[str, int]) -> _Steps:
    steps, defined = part.get(key), part.get("special_tokens")
    if not isinstance(steps, list) or not isinstance(defined, dict):
        raise _no_template(key)
    found: _Steps = []
    for step in steps:
        (kind, value), = step.items() if isinstance(step, dict) and len(step) == 1 else \
            ((None, None),)
        if not isinstance(value, dict):
            raise _no_template(key)
        name, number = value.get("id"), value.get("type_id")
        if type(number) is not int or number not in (0, 1) or not isinstance(name, str):
            raise _no_template(key)
        if kind == "Sequence" and name in ("A", "B"):
            found.append((name, [], number))
        elif kind == "SpecialToken" and isinstance(defined.get(name), dict):
            found.append(("", _defined(defined[name], key, ids), number))
        else:
            raise _no_template(key)
    return found


def _defined(token: dict[str, Any], key: str, ids: Mapping[str, int]) -> list[int]:
    """The ids of a template's special token, which may be several."""
    numbers, contents = token.get("ids"), token.get("tokens")
    if not isinstance(numbers, list) or not isinstance(contents, list) \
            or len(numbers) != len(contents):
        raise _no_template(key)
    return [_checked(content, number, ids) for content, number in zip(contents, numbers)]


def _checked(content: Any, number: Any, ids: Mapping[str, int]) -> int:
    if not isinstance(content, str) or type(number) is not int or ids.get(content) != number:
        known = ids.get(content) if isinstance(content, str) else None
        raise CheckpointError(f"tokenizer.json: the post_processor gives {shown(content)} the id "
                              f"{shown(number)}, the vocabulary {shown(known)}; save the "
                              "tokenizer again.")
    return number


def _no_template(key: str) -> CheckpointError:
    return CheckpointError(f"tokenizer.json: the post_processor's {key} template is not a list of "
                           "texts and tokens that it defines, of type 0 or 1; save the tokenizer "
                           "again.")


def _frame(single: _Steps, pair: _Steps) -> Frame:
    """The frame of which both templates are made."""
    names = [name for name, _, _ in pair if name]
    if [name for name, _, _ in single if name] != ["A"] or names != ["A", "B"]:
        raise CheckpointError("tokenizer.json: the post_processor's templates are not of one text "
                              "and of two, each once and in order; save the tokenizer again.")
    text = [name for name, _, _ in single].index("A")
    first, second = ([name for name, _, _ in pair].index(name) for name in "AB")
    start, end = _ids(single[:text]), _ids(single[text + 1:])
    between = _ids(pair[first + 1:second])
    types = [number for name, numbers, number in pair for _ in (numbers if not name else " ")]
    if _ids(pair[:first]) != start or _ids(pair[second + 1:]) != end \
            or types != sorted(types) or any(number for _, _, number in single):
        raise CheckpointError("tokenizer.json: the post_processor's pair template does not begin "
                              "and end as the single one, with type 0 before type 1; such are not "
                              "served.")
    if not start and not end:
        raise CheckpointError("tokenizer.json: the post_processor puts no special token around "
                              "texts; save the tokenizer with the one of its model.")
    zeros = types.count(0) - len(start) - 1
    if types[-1] == 1 and not 0 <= zeros <= len(between):
        raise CheckpointError("tokenizer.json: the post_processor's pair template gives the second "
                              "text's type to the first, or the first's to the second; such are "
                              "not served.")
    return Frame(start, between, end, zeros if types[-1] == 1 else None)


def _ids(steps: _Steps) -> list[int]:
    return [number for _, numbers, _ in steps for number in numbers]
