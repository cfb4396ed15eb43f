"""A Unigram tokeniser's normaliser: read from tokenizer.json, and applied part by part.

A text is normalised in parts that are cut where nothing joins the code points on both sides, so
that the parts' forms, put together, are the whole's form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from loader.errors import CheckpointError, shown
from loader.tokenizers.charsmap import Charsmap, read_charsmap
from loader.tokenizers.code_points import SPACES, character_class, code_points
from loader.tokenizers.encoding import WHOLE_CHARACTERS
from loader.tokenizers.grapheme_clusters import (
    FOLLOWING, FOLLOWING_RUN, JAMO, JOINABLE, JOINERS, PREPENDED, REGIONAL,
)
from loader.tokenizers.mark_runs import ordered
from loader.tokenizers.unicode_forms import lower_case, normal_form, without_marks

BLANKS = r"\s{2,}|[\n\r\t]"
RUNS = " {2,}"
FORMS = ("NFC", "NFD", "NFKC", "NFKD")
GROWTH = 4
# What decomposes into jamo that join.
COMPATIBLE_JAMO = "3131-318E FFA0-FFDC"

SPACE_SET = code_points(SPACES)
_ALL_SPACES = "".join(sorted(SPACE_SET))
_BLANKS = re.compile(f"{character_class(SPACES)}{{2,}}|[\\n\\r\\t]")


def read_normalizer(part: Any) -> dict[str, Any]:
    """The JSON-able table that `Normalizer` takes. Raises CheckpointError.

    Served are Strip, Replace, NFC, NFD, NFKC, NFKD, Lowercase, StripAccents and Precompiled, in a
    Sequence or alone, in the orders that the reference's converters write.
    """
    found = [] if part is None else list(_flat(part))
    table: dict[str, Any] = {"strips": [False, False], "blanks": False, "replaced": [],
                             "steps": [], "collapses": False}
    names = []
    for step in found:
        name = step["type"]
        if name == "Replace":
            name = _read_replace(step, table, names)
        elif name == "Strip":
            sides = [step.get("strip_left"), step.get("strip_right")]
            if not all(isinstance(side, bool) for side in sides) or "Strip" in names \
                    or not {"blanks", "NFC", "NFD"}.issuperset(names):
                raise _wrong_order("Strip")
            table["strips"] = sides
        elif "runs" in names:
            raise _wrong_order(name)
        elif name == "Precompiled":
            table["steps"].append([name, read_charsmap(step.get("precompiled_charsmap"))])
        elif name in (*FORMS, "Lowercase", "StripAccents"):
            table["steps"].append([name])
        else:
            raise CheckpointError(f"tokenizer.json: the normalizer {shown(name)} is not served "
                                  "with a Unigram model; use the model's own tokenizer files.")
        names.append(name)
    if Normalizer(table).form("a b") != Normalizer(table).form("a") + " " \
            + Normalizer(table).form("b"):
        raise CheckpointError("tokenizer.json: the normalizer changes spaces, which is not served; "
                              "use the model's own tokenizer files.")
    return table


def _flat(part: Any) -> Iterator[dict[str, Any]]:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "Sequence" and isinstance(part.get("normalizers"), list):
        for inner in part["normalizers"]:
            if isinstance(inner, dict) and inner.get("type") == "Sequence":
                raise CheckpointError("tokenizer.json: the normalizer is a Sequence in a Sequence, "
                                      "which is not served; write it as one.")
            yield from _flat(inner)
    elif isinstance(kind, str):
        yield part
    else:
        raise CheckpointError(f"tokenizer.json: the normalizer holds {shown(part)}, not a part "
                              "with a type; save the tokenizer again.")


def _read_replace(step: dict[str, Any], table: dict[str, Any], names: list[str]) -> str:
    """Puts a Replace into the table; its name among the steps."""
    pattern, content = step.get("pattern"), step.get("content")
    (kind, sought), = pattern.items() if isinstance(pattern, dict) and len(pattern) == 1 else \
        ((None, None),)
    if kind == "Regex" and content == " " and sought == RUNS:
        table["collapses"] = True
        return "runs"
    if kind == "Regex" and content == " " and sought == BLANKS:
        if not {"Strip"}.issuperset(names):
            raise _wrong_order("Replace")
        table["collapses"] = table["blanks"] = True
        return "blanks"
    if kind != "String" or not isinstance(sought, str) or not isinstance(content, str) \
            or not sought or " " in sought:
        raise CheckpointError(f"tokenizer.json: the normalizer replaces {shown(sought)} by "
                              f"{shown(content)}, which is not served; use the model's own "
                              "tokenizer files.")
    if not {"String"}.issuperset(names) or any(set(content) & set(later) or set(sought) & set(was)
                                               for later, was in table["replaced"]):
        raise _wrong_order("Replace")
    table["replaced"].append([sought, content])
    return "String"


def _wrong_order(name: str) -> CheckpointError:
    return CheckpointError(f"tokenizer.json: the normalizer's {name} is not served where it stands "
                           "among the others; use the model's own tokenizer files.")


class Normalizer:
    """The normaliser of a table that `read_normalizer` made."""

    def __init__(self, table: dict[str, Any]) -> None:
        self._left, self._right = table["strips"]
        self.collapses: bool = table["collapses"]
        self._steps: list[Callable[[str], str]] = []
        joining = set(JOINERS)
        if table["blanks"]:
            joining |= SPACE_SET
            self._steps.append(lambda text: _BLANKS.sub(" ", text))
        for sought, content in table["replaced"]:
            self._steps.append(lambda text, pair=(sought, content): text.replace(*pair))
            joining |= set(sought)
        for name, *values in table["steps"]:
            self._steps.append(_step(name, *values))
            if name in ("NFKC", "NFKD"):
                joining |= code_points(COMPATIBLE_JAMO)
        self._joining = frozenset(joining)
        # Runs of these can be cut in the middle: what is left of a cluster on both sides is too
        # long to be looked up whole. Normal forms reach across, but for the last.
        reaches = any(name not in ("Precompiled", "Lowercase") for name, *_ in table["steps"])
        self._runs = [REGIONAL] if reaches else [REGIONAL, FOLLOWING, JAMO, PREPENDED]

    def strip(self, text: str, left: bool = True, right: bool = True) -> str:
        """The text without the white space that is stripped off, if at all, on these sides."""
        if self._left and left:
            text = text.lstrip(_ALL_SPACES)
        return text.rstrip(_ALL_SPACES) if self._right and right else text

    def form(self, part: str) -> str:
        """The form of a stripped part; runs of spaces are left to who marks them."""
        for step in self._steps:
            part = step(part)
        return part

    def forms(self, text: str) -> Iterator[str]:
        """The forms of a stripped text's parts, each after a bounded piece of work, or as much as
        nothing can be cut in."""
        at, size, run_end = 0, WHOLE_CHARACTERS, 0
        while len(text) - at > size:
            end = at + size
            while end > at and not self._is_loose(text, end):
                end -= 1
                if self._is_in_run(text, end):
                    if end >= run_end:
                        run_end = FOLLOWING_RUN.match(text, end).end() \
                            if text[end] in FOLLOWING else end
                    # A run can join what is on its two sides.
                    if text[run_end:run_end + 1] not in JOINABLE:
                        break
            if end == at:
                size *= GROWTH
                continue
            yield self.form(text[at:end])
            at, size = end, WHOLE_CHARACTERS
        yield self.form(text[at:])

    def _is_loose(self, text: str, at: int) -> bool:
        """Whether nothing joins the code points before and behind a place in the text."""
        before, behind = at - 1, text[at]
        if behind in self._joining:
            return False
        if text[before] not in self._joining:
            return True
        if min(behind, text[at - 2:at - 1] or " ") >= "\U00010000" and text[before] == "\u200d":
            return True     # emoji: joined or not, too many bytes to be looked up whole
        # What follows something could be dropped, and then that stands here.
        while before > at - 8 and before and text[before] in FOLLOWING:
            before -= 1
        return behind not in JOINABLE and text[before] not in PREPENDED \
            and text[before] not in FOLLOWING

    def _is_in_run(self, text: str, at: int) -> bool:
        around = text[at - 3:at + 3]
        return len(around) == 6 and any(run.issuperset(around) for run in self._runs)

    def stays(self, letter: str) -> bool:
        """Whether a code point is its own form, and nothing joins it."""
        return letter not in self._joining and self.form(letter) == letter

    def is_loose_space(self, text: str, at: int) -> bool:
        """Whether the space at a place in the text, not at its ends, has loose neighbours."""
        return text[at + 1] not in self._joining and text[at - 1] not in self._joining

    def collapsed(self, form: str) -> str:
        """The form with runs of spaces made one, if they are."""
        return re.sub("  +", " ", form) if self.collapses else form

    def whole(self, text: str) -> str:
        """The form of a whole text."""
        return self.collapsed(self.form(self.strip(text)))


def _step(name: str, replacements: dict[str, str] | None = None) -> Callable[[str], str]:
    if name == "Precompiled":
        return Charsmap(replacements).apply
    if name in FORMS:
        return lambda text: normal_form(name, ordered(text))
    return lower_case if name == "Lowercase" else without_marks
