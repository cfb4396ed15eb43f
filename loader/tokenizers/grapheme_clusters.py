"""Extended grapheme clusters of Unicode 17 (UAX 29), the same on every Python.

As one regular expression, linear in the text: what may follow is told by the class of the next
code point, and what was tried in vain is shorter than what is taken instead.
"""

from __future__ import annotations

import re

from loader.tokenizers import grapheme_code_points as tables
from loader.tokenizers.code_points import character_class, code_points

_SYLLABLES = range(0xAC00, 0xD7A4)
_TRAILING_FORMS = 28


def _class(*tables: str) -> str:
    return character_class(" ".join(tables))


_OPEN_SYLLABLES = " ".join(f"{code:X}" for code in _SYLLABLES[::_TRAILING_FORMS])
_CLOSED_SYLLABLES = " ".join(f"{code + 1:X}-{code + _TRAILING_FORMS - 1:X}"
                             for code in _SYLLABLES[::_TRAILING_FORMS])
_L, _V, _T = map(_class, (tables.HANGUL_LEADING, tables.HANGUL_VOWELS, tables.HANGUL_TRAILING))
_EXTENDER, _PICTOGRAPH = _class(tables.EXTENDERS), _class(tables.PICTOGRAPHS)
_CONSONANT, _LINKER = _class(tables.CONSONANTS), _class(tables.LINKERS)
_JOINT = _class(tables.EXTENDERS, "200D")       # U+200C, an extender, joins no consonants
_CONJOINING = f"(?:(?![\\u200C]|{_LINKER}){_JOINT})"
_JOINED = f"(?:(?!\\u200C){_JOINT})"
_CORE = "|".join((
    f"{_L}*(?:{_V}+|{_class(_OPEN_SYLLABLES)}{_V}*|{_class(_CLOSED_SYLLABLES)}){_T}*",
    f"{_L}+", f"{_T}+", f"{_class(tables.REGIONAL)}{{2}}",
    f"{_PICTOGRAPH}(?:{_EXTENDER}*\\u200D{_PICTOGRAPH})*",
    f"{_CONSONANT}(?:{_CONJOINING}*{_LINKER}{_JOINED}*{_CONSONANT})*",
    "[^" + _class(tables.CONTROLS, "A D")[1:],
))
_PREPENDED = _class(tables.PREPENDED)
_FOLLOWING = _class(tables.EXTENDERS, tables.SPACING_MARKS, "200D")
CLUSTER = re.compile(f"\\r\\n|{_PREPENDED}*(?:{_CORE}){_FOLLOWING}*|.", re.DOTALL)

# Code points that are in one cluster with what is behind them.
PREPENDED = code_points(tables.PREPENDED)
# Those in one with what is before them.
FOLLOWING = code_points(f"{tables.EXTENDERS} {tables.SPACING_MARKS} 200D")
JAMO = code_points(" ".join((tables.HANGUL_LEADING, tables.HANGUL_VOWELS, tables.HANGUL_TRAILING)))
REGIONAL = code_points(tables.REGIONAL)
# A text without any of these is made of clusters of one code point. (A set, because a character
# class is slow for what is not in it: beyond U+FFFF its ranges are tried one by one.)
JOINERS = PREPENDED | FOLLOWING | JAMO | REGIONAL | {"\r"}
# Those that can be in one cluster with what is before them only if that ends in a joiner.
JOINABLE = code_points(f"{tables.CONSONANTS} {tables.PICTOGRAPHS} AC00-D7A3")
FOLLOWING_RUN = re.compile(f"{_FOLLOWING}+")
