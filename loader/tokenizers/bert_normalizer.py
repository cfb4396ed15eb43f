"""BERT's normaliser for one word at a time, equal to the reference's on every Python.

The reference's order: clean, spaces around ideographs, strip accents (NFD, drop marks), lower case
by code point, then split at spaces and punctuation. All but NFD looks at one code point alone, and
NFD only orders marks between two starters. So a text can first be cut into raw words by classes of
its code points (`CodePointClasses`), and each word normalised apart.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import NamedTuple

import numpy

from loader.tokenizers import bert_code_points as tables

# Classes of code points. A letter is whatever leaves at least one code point in a word.
LETTER = 0
# Leaves nothing, and what stands beside it is the same without it.
NOTHING = 1
SPACE = 2
# A word of its own.
ALONE = 3
# A mark that leaves nothing, but keeps marks on its two sides from being ordered as one run.
BARRIER = 4

CODE_POINTS = 0x110000


class Casing(NamedTuple):
    """tokenizer_config.json's settings, with the reference's defaults resolved."""

    lower_case: bool
    strip_accents: bool
    split_ideographs: bool


def _spans(table: str) -> list[tuple[int, int]]:
    """The ranges of a table as (first, last)."""
    return [(int(first, 16), int(last or first, 16))
            for first, _, last in (span.partition("-") for span in table.split())]


def _class(table: str) -> str:
    """A regular expression's character class of the code points in the table."""
    return "[" + "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in _spans(table)) + "]"


_ACCENTS = re.compile(_class(tables.ACCENTS))
_INDIVISIBLE = re.compile("(" + _class(tables.INDIVISIBLE) + ")")
_LOWER_CASE = {
    int(source, 16): "".join(chr(int(part, 16)) for part in target.split("+"))
    for source, _, target in (entry.partition(":") for entry in tables.LOWER_CASE.split())
}
# In a class [x] of a word: a letter, or barriers with what lies between them.
_KEPT = re.compile(rb"\x00|\x04[\x01\x04]*")


class CodePointClasses:
    """The class of each code point under one casing."""

    def __init__(self, casing: Casing) -> None:
        table = numpy.zeros(CODE_POINTS, dtype=numpy.uint8)

        def put(ranges: str, name: int) -> None:
            for first, last in _spans(ranges):
                table[first:last + 1] = name

        put(tables.PUNCTUATION, ALONE)
        if casing.split_ideographs:
            put(tables.IDEOGRAPHS, ALONE)
        if casing.strip_accents:
            put(tables.ACCENTED_PUNCTUATION, ALONE)
            for first, last in _spans(tables.ACCENTS):
                for code in range(first, last + 1):
                    table[code] = NOTHING if _is_ordered(chr(code)) else BARRIER
        put(tables.CLEANED, NOTHING)
        put(tables.SPACES + "20", SPACE)
        self._table = table                                 # uint8 [0x110000]
        self._ascii = table[:256].tobytes()

    def of(self, text: str) -> bytes:
        """The class of each code point of the text, a byte each."""
        if text.isascii():
            return text.encode().translate(self._ascii)
        codes = numpy.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
        return self._table[codes].tobytes()


def _is_ordered(mark: str) -> bool:
    """Whether NFD orders the mark among its neighbours; where it does not, nothing passes it."""
    return unicodedata.combining(unicodedata.normalize("NFD", mark)[0]) != 0


@lru_cache(maxsize=8)
def code_point_classes(casing: Casing) -> CodePointClasses:
    """The classes under a casing, made once a process: 1.1 MB, 3 ms."""
    return CodePointClasses(casing)


def normalize_word(raw: str, classes: bytes, casing: Casing, limit: int) -> str | None:
    """The word that is left of `raw`, a run of letters, nothings and barriers with these classes.

    None if it has more than `limit` code points: each letter leaves at least one, so a word of
    millions is not looked at further.
    """
    letters = classes.count(LETTER)
    if letters > limit:
        return None
    if letters < len(raw):
        raw = "".join([raw[found.start()] for found in _KEPT.finditer(classes)])
    word = normalize_letters(raw, casing)
    return word if len(word) <= limit else None


def normalize_letters(raw: str, casing: Casing) -> str:
    """Accents stripped, then lower case, as the casing says."""
    if casing.strip_accents and not raw.isascii():
        raw = _ACCENTS.sub("", _decompose(raw))
    if casing.lower_case:
        # Python's own lower case looks around a sigma, and its tables differ by version.
        raw = raw.lower() if raw.isascii() else raw.translate(_LOWER_CASE).lower()
    return raw


def _decompose(text: str) -> str:
    """NFD of the reference's Unicode version: newer decompositions and marks stay as they are."""
    if not _INDIVISIBLE.search(text):
        return unicodedata.normalize("NFD", text)
    return "".join(part if _INDIVISIBLE.fullmatch(part) else unicodedata.normalize("NFD", part)
                   for part in _INDIVISIBLE.split(text))
