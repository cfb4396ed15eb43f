"""BERT's normaliser for one word at a time, equal to the reference's on every Python.

The reference's order: clean, spaces around ideographs, strip accents (NFD, drop marks), lower case
by code point, then split at spaces and punctuation. All but NFD looks at one code point alone, and
NFD only orders marks between two starters. So a text can first be cut into raw words by the
classes of its code points, and each raw word normalised apart.
"""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

import numpy

from loader.tokenizers import bert_code_points as tables
from loader.tokenizers.code_points import character_class, spans
from loader.tokenizers.mark_runs import ordered

# Classes of code points, a byte each. A letter is what leaves at least one code point in a word.
LETTER = b"\0"
# Leaves nothing, and what stands beside it is the same without it.
NOTHING = b"\1"
SPACE = b"\2"
# A word of its own.
ALONE = b"\3"
# A mark that leaves nothing, but keeps the marks on its two sides from being ordered as one run.
BARRIER = b"\4"

CODE_POINTS = 0x110000
# Code points whose normal form is remembered: 2 MB when full.
REMEMBERED = 1 << 14


class Casing(NamedTuple):
    """tokenizer_config.json's settings, with the reference's defaults resolved."""

    lower_case: bool
    strip_accents: bool
    split_ideographs: bool


_ACCENTS = re.compile(character_class(tables.ACCENTS))
_CLEANED = re.compile(character_class(tables.CLEANED))
_SPACES = re.compile(character_class(tables.SPACES))
_IDEOGRAPHS = re.compile(character_class(tables.IDEOGRAPHS))
_INDIVISIBLE = re.compile("(" + character_class(tables.INDIVISIBLE) + ")")
_KEPT_MARKS = frozenset(chr(code) for first, last in spans(tables.KEPT_MARKS)
                        for code in range(first, last + 1))
_LOWER_CASE = {
    int(source, 16): "".join(chr(int(part, 16)) for part in target.split("+"))
    for source, _, target in (entry.partition(":") for entry in tables.LOWER_CASE.split())
}


class Normalizer:
    """The classes of code points under one casing, and what is left of words. 1.1 MB, 3 ms."""

    def __init__(self, casing: Casing) -> None:
        self.casing = casing
        self._classes = _class_table(casing)                # uint8 [0x110000]
        self._ascii = self._classes[:256].tobytes()
        self._forms = _Forms(casing)

    def classes(self, text: str) -> bytes:
        """The class of each code point of the text, a byte each."""
        if text.isascii():
            return text.encode().translate(self._ascii)
        codes = numpy.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
        # No code point is out of range; "clip" spares numpy the check, and takes half as long.
        return self._classes.take(codes, mode="clip").tobytes()

    def word(self, raw: str, classes: bytes, limit: int) -> str | None:
        """What is left of a run of letters, nothings and barriers with these classes.

        None if it has more than `limit` code points: each letter leaves at least one, so a word of
        millions is not looked at further.
        """
        if len(raw) > limit:
            if classes.count(LETTER, 0, 8 * limit) > limit or classes.count(LETTER) > limit:
                return None
            raw = _squeezed(raw, classes)
        word = self.form(raw)
        return word if len(word) <= limit else None

    def form(self, raw: str) -> str:
        """The raw word cleaned, accents stripped, in lower case, as the casing says."""
        if self.casing.strip_accents and not _KEPT_MARKS.isdisjoint(raw):
            return "".join(map(self._lowered, _ACCENTS.sub("", _decompose(_CLEANED.sub("", raw)))))
        return raw.translate(self._forms)

    def text(self, raw: str) -> str:
        """A whole text normalised: words as `form` makes them, spaces around ideographs."""
        if self.casing.split_ideographs:
            raw = _IDEOGRAPHS.sub(r" \g<0> ", raw)
        return " ".join(self.form(ordered(word)) for word in _SPACES.sub(" ", raw).split(" "))

    def _lowered(self, letter: str) -> str:
        return _lower(letter) if self.casing.lower_case else letter


class _Forms(dict):
    """Code point → what is left of it, for `str.translate`; exact where no two marks are kept."""

    def __init__(self, casing: Casing) -> None:
        super().__init__()
        self._casing = casing

    def __missing__(self, code: int) -> str:
        form = _CLEANED.sub("", chr(code))
        if self._casing.strip_accents:
            form = _ACCENTS.sub("", _decompose(form))
        if self._casing.lower_case:
            form = "".join(map(_lower, form))
        if len(self) >= REMEMBERED:
            self.clear()
        self[code] = form
        return form


def _class_table(casing: Casing) -> numpy.ndarray:
    table = numpy.zeros(CODE_POINTS, dtype=numpy.uint8)     # all letters

    def put(ranges: str, name: bytes) -> None:
        for first, last in spans(ranges):
            table[first:last + 1] = name[0]

    put(tables.PUNCTUATION, ALONE)
    if casing.split_ideographs:
        put(tables.IDEOGRAPHS, ALONE)
    if casing.strip_accents:
        put(tables.ACCENTED_PUNCTUATION, ALONE)
        put(tables.ACCENTS, NOTHING)
        for first, last in spans(tables.ACCENTS):
            for code in range(first, last + 1):
                if not unicodedata.combining(unicodedata.normalize("NFD", chr(code))[0]):
                    table[code] = BARRIER[0]
    put(tables.CLEANED, NOTHING)
    put(tables.SPACES + "20", SPACE)
    return table


def _squeezed(raw: str, classes: bytes) -> str:
    """The letters of a raw word, and one barrier between two where there are any."""
    kept, at = [], 0
    while at >= 0:
        kept.append(raw[at])
        following = classes.find(LETTER, at + 1)
        barrier = classes.find(BARRIER, at + 1, following if following >= 0 else len(classes))
        if barrier >= 0:
            kept.append(raw[barrier])
        at = following
    return "".join(kept)


def _lower(letter: str) -> str:
    # By code point: Python's own lower case looks around a sigma, and its tables differ by version.
    return _LOWER_CASE.get(ord(letter)) or letter.lower()


def _decompose(text: str) -> str:
    """NFD of the reference's Unicode version: newer decompositions and marks stay as they are."""
    if not _INDIVISIBLE.search(text):
        return unicodedata.normalize("NFD", text)
    return "".join(part if _INDIVISIBLE.fullmatch(part) else unicodedata.normalize("NFD", part)
                   for part in _INDIVISIBLE.split(text))
