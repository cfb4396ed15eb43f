"""A text's words, from its start or from its end, only as far as someone reads on.

Worked on in windows: the classes of a window's code points as bytes, in which a regular expression
finds the next word. So the work is linear in what is read, whatever the text is made of.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from loader.tokenizers.bert_normalizer import (
    ALONE, Casing, code_point_classes, normalize_letters, normalize_word)

# Code points looked at in one piece; doubled as long as one word fills it.
WINDOW = 4096

# In classes: a code point that is a word, or a run that begins with a letter; it goes on to the
# next space or lone code point. Reversed, it takes in what leaves nothing in front of the word.
_WORD = re.compile(rb"\x03|\x00[\x00\x01\x04]*")


class WordReader:
    """Cuts texts into normalised words; special tokens in them come as they stand.

    `specials` begin and end with a code point that is a word of its own, and no occurrence of one
    can overlap another; `is_readable` says so. A word of more than `limit` code points comes as
    `too_long`.
    """

    def __init__(self, casing: Casing, specials: Iterable[str] = (), limit: int = 1 << 30,
                 too_long: str = "") -> None:
        self._casing, self._limit, self._too_long = casing, limit, too_long
        self._classes = code_point_classes(casing)
        ordered = sorted(specials, key=len, reverse=True)
        self._longest = len(ordered[0]) if ordered else 0
        self._first = {token[0] for token in ordered}
        self._last = {token[-1] for token in ordered}
        self._forward = re.compile("|".join(map(re.escape, ordered)) or "(?!)")
        self._backward = re.compile("|".join(re.escape(token[::-1]) for token in ordered) or "(?!)")

    def read(self, text: str, at: int = 0) -> Iterator[list[str]]:
        """The words from `at` on, those of a window at a time, in order."""
        size, end = WINDOW, len(text)
        while at < end:
            window = text[at:at + size]
            classes = self._classes.of(window)
            is_last, words, here = at + len(window) == end, [], 0
            while found := _WORD.search(classes, here):
                start, stop = found.span()
                if classes[start] == ALONE:
                    word = window[start]
                    if word in self._first and \
                            (special := self._forward.match(text, at + start)):
                        word, stop = special.group(), special.end() - at
                    else:
                        word = self._lone(word)
                elif stop == len(window) and not is_last:
                    here = start
                    break
                else:
                    word = self._run(window[start:stop], classes[start:stop])
                words.append(word)
                here = stop
            else:
                here = max(here, len(window))
            size = WINDOW if here else 2 * size
            at += here
            yield words

    def read_back(self, text: str, end: int) -> Iterator[list[str]]:
        """The words before `end`, those of a window at a time, the last ones first."""
        size = WINDOW
        while end > 0:
            window = text[max(0, end - size):end][::-1]
            classes = self._classes.of(window)
            is_last, words, here = len(window) == end, [], 0
            while found := _WORD.search(classes, here):
                start, stop = found.span()
                if classes[start] == ALONE:
                    word, edge = window[start], end - start
                    special = word in self._last and self._backward.match(
                        text[max(0, edge - self._longest):edge][::-1])
                    if special:
                        word, stop = special.group()[::-1], start + special.end()
                    else:
                        word = self._lone(word)
                elif stop == len(window) and not is_last:
                    here = start
                    break
                else:
                    word = self._run(window[start:stop][::-1], classes[start:stop][::-1])
                words.append(word)
                here = stop
            else:
                here = max(here, len(window))
            size = WINDOW if here else 2 * size
            end -= here
            yield words

    def _lone(self, mark: str) -> str:
        return mark if mark.isascii() else normalize_letters(mark, self._casing)

    def _run(self, raw: str, classes: bytes) -> str:
        word = normalize_word(raw, classes, self._casing, self._limit)
        return self._too_long if word is None else word


def is_readable(specials: Iterable[str], casing: Casing) -> bool:
    """Whether a reader finds exactly these tokens: each begins and ends with a code point that is
    a word of its own, and none holds or overlaps another (or itself, moved)."""
    tokens, classes = list(specials), code_point_classes(casing)
    for token in tokens:
        edges = classes.of(token[:1] + token[-1:])
        if edges.count(ALONE) < 2:
            return False
        for other in tokens:
            if token != other and token in other:
                return False
            if any(token.endswith(other[:size]) for size in range(1, min(len(token), len(other)))):
                return False
    return True


def words(text: str, casing: Casing) -> list[str]:
    """All normalised words of a text without special tokens."""
    return [word for part in WordReader(casing).read(text) for word in part]
