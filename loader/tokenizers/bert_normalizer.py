"""BERT's normaliser and word splitter, equal to the reference's on every Python.

Order: clean, spaces around ideographs, strip accents (NFD, drop marks), lower case by code point.
Every step looks at one code point or at a run of marks, so texts may be cut at any space, and any
two pieces normalised apart.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import NamedTuple

from loader.tokenizers import bert_code_points


class Casing(NamedTuple):
    """tokenizer_config.json's settings, with the reference's defaults resolved."""

    lower_case: bool
    strip_accents: bool
    split_ideographs: bool


def _class(*tables: str) -> str:
    """A regular expression's character class of the code points in the tables."""
    spans = []
    for span in " ".join(tables).split():
        first, _, last = span.partition("-")
        spans.append(f"\\U{int(first, 16):08x}-\\U{int(last or first, 16):08x}")
    return "[" + "".join(spans) + "]"


_CLEANED = re.compile(_class(bert_code_points.CLEANED))
_SPACES = re.compile(_class(bert_code_points.SPACES))
_IDEOGRAPHS = re.compile(_class(bert_code_points.IDEOGRAPHS))
_ACCENTS = re.compile(_class(bert_code_points.ACCENTS))
_INDIVISIBLE = re.compile("(" + _class(bert_code_points.INDIVISIBLE) + ")")
_LOWER_CASE = {
    int(source, 16): "".join(chr(int(part, 16)) for part in target.split("+"))
    for source, _, target in (entry.partition(":") for entry in bert_code_points.LOWER_CASE.split())
}
_CASED_APART = re.compile("[" + "".join(map(chr, _LOWER_CASE)) + "]")
_PUNCTUATION = _class(bert_code_points.PUNCTUATION)
_WORDS = re.compile(f"{_PUNCTUATION}|[^ {_PUNCTUATION[1:]}+")


def words(text: str, casing: Casing) -> list[str]:
    """The normalised words of a text: runs between spaces, each punctuation mark alone."""
    return _WORDS.findall(normalize(text, casing))


def normalize(text: str, casing: Casing) -> str:
    """The reference's BertNormalizer with clean_text."""
    text = _SPACES.sub(" ", _CLEANED.sub("", text))
    if not text.isascii():
        if casing.split_ideographs:
            text = _IDEOGRAPHS.sub(r" \g<0> ", text)
        if casing.strip_accents:
            text = _ACCENTS.sub("", _decompose(text))
    if casing.lower_case:
        # Python's own lower case looks around a sigma, and its tables differ by version.
        text = _CASED_APART.sub(lambda found: _LOWER_CASE[ord(found.group())], text)
        text = text.lower()
    return text


def _decompose(text: str) -> str:
    """NFD of the reference's Unicode version: newer decompositions and marks stay as they are."""
    if not _INDIVISIBLE.search(text):
        return unicodedata.normalize("NFD", text)
    return "".join(part if _INDIVISIBLE.fullmatch(part) else unicodedata.normalize("NFD", part)
                   for part in _INDIVISIBLE.split(text))


@lru_cache(maxsize=8)
def word_border(casing: Casing) -> re.Pattern[str]:
    """Matches a raw code point that ends a word wherever it stands.

    Where accents are stripped, a code point that decomposes into one of those does not count here:
    a border too few only means that a longer run is looked at in one piece.
    """
    tables = [bert_code_points.SPACES, bert_code_points.PUNCTUATION, "20"]
    if casing.split_ideographs:
        tables.append(bert_code_points.IDEOGRAPHS)
    return re.compile(_class(*tables))
