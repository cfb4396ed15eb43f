"""A text's words as byte-level BPE's patterns cut it, only as far as someone reads on.

The patterns ask of a code point only whether it is a letter, a number, white space or none of
these; ASCII counts as itself. So the rest of Unicode is first written as one ASCII code point of
its class each, and one small expression cuts that, alike on every Python.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

import numpy

from loader.tokenizers.code_points import LETTERS, NUMBERS, SPACES, spans

CODE_POINTS = 0x110000
# Code points cut in one piece; some 0.5 ms. Grows while one word, or white space, fills it.
WINDOW = 4096
GROWTH = 4

# What stands for the others: a letter in no contraction, a number, space that ends no line, a mark.
LETTER, NUMBER, SPACE, MARK = "a", "0", "\v", "!"
# Long s, the only one beside ASCII that is a letter of a contraction where case does not count.
LONG_S = 0x17F

_S = r" \t\n\v\f\r"
GPT2 = (rf"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^{_S}A-Za-z0-9]+"
        rf"|[{_S}]+(?![^{_S}])|[{_S}]+")
LLAMA3 = (r"'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])|[^\r\nA-Za-z0-9]?[A-Za-z]+|[0-9]{1,3}"
          rf"| ?[^{_S}A-Za-z0-9]+[\r\n]*|[{_S}]*[\r\n]+|[{_S}]+(?![^{_S}])|[{_S}]+")
# By the name of the pattern in a compiled table.
PATTERNS = {"gpt2": GPT2, "llama3": LLAMA3}


class WordCutter:
    """Cuts normalised texts by one pattern."""

    def __init__(self, pattern: str) -> None:
        self._pattern = re.compile(PATTERNS[pattern])

    def cut(self, text: str) -> list[str]:
        """All words of a text; together they are the text."""
        if text.isascii():
            return self._pattern.findall(text)
        words, at = [], 0
        for form in self._pattern.findall(_forms(text)):
            end = at + len(form)
            words.append(text[at:end])
            at = end
        return words

    def read(self, text: str) -> Iterator[list[str]]:
        """The words of a text in order, those of a window at a time."""
        at, size = 0, WINDOW
        while at < len(text):
            words = self.cut(text[at:at + size])
            if at + size < len(text):
                # What follows may belong to the last word, to those around the white space before
                # it, or make a contraction of the last two.
                while words and not words[-1].strip():
                    words.pop()
                del words[-2:]
                size = WINDOW if words else GROWTH * size
            at += sum(map(len, words))
            yield words


def _forms(text: str) -> str:
    """The text, each code point beyond ASCII as what stands for it."""
    codes = numpy.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    return _form_table().take(codes, mode="clip").tobytes().decode("ascii")


@lru_cache(maxsize=1)
def _form_table() -> numpy.ndarray:
    """What stands for each code point: uint8 [0x110000]."""
    table = numpy.full(CODE_POINTS, ord(MARK), dtype=numpy.uint8)
    for ranges, form in ((LETTERS, LETTER), (NUMBERS, NUMBER), (SPACES, SPACE)):
        for first, last in spans(ranges):
            table[first:last + 1] = ord(form)
    table[:128] = range(128)
    table[LONG_S] = ord("S")
    return table
