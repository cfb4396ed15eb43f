"""A text's words, from its start or from its end, only as far as someone reads on.

Worked on in windows: the classes of a window's code points as bytes, in which the next word is
found by looking for single bytes, which C does at the speed of memory. So the work is linear in
what is read, whatever the text is made of.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from loader.tokenizers.bert_normalizer import ALONE, LETTER, SPACE, Casing, Normalizer

# Code points looked at in one piece, and the most words of one: those take about 1 ms. A window
# grows while no words begin in it, or while one word that may yet be short fills it.
WINDOW = 1024
EMPTY_WINDOW = 1 << 16
GROWTH = 4


class WordReader:
    """Cuts texts into normalised words; special tokens in them come as they stand.

    `specials` are such that `is_readable` says yes. A word of more than `limit` code points comes
    as `too_long`.
    """

    def __init__(self, normalizer: Normalizer, specials: Iterable[str] = (), limit: int = 1 << 30,
                 too_long: str = "") -> None:
        self._normalizer, self._limit, self._too_long = normalizer, limit, too_long
        ordered = sorted(specials, key=len, reverse=True)
        self._longest = len(ordered[0]) if ordered else 0
        self._first = {token[0] for token in ordered}
        self._last = {token[-1] for token in ordered}
        self._forward = re.compile("|".join(map(re.escape, ordered)) or "(?!)")
        self._backward = re.compile("|".join(re.escape(token[::-1]) for token in ordered) or "(?!)")

    def read(self, text: str, at: int = 0) -> Iterator[list[str]]:
        """The words from `at` on, those of a window at a time, in order."""
        size, is_inside = WINDOW, False
        while at < len(text):
            window = text[at:at + size]
            words, done, is_inside = self._window(
                window, at + len(window) == len(text), text, at, False, is_inside)
            size = _next_size(size, words, done)
            at += done
            yield words

    def read_back(self, text: str, end: int) -> Iterator[list[str]]:
        """The words before `end`, those of a window at a time, the last ones first."""
        size, is_inside = WINDOW, False
        while end > 0:
            window = text[max(0, end - size):end][::-1]
            words, done, is_inside = self._window(
                window, len(window) == end, text, end, True, is_inside)
            size = _next_size(size, words, done)
            end -= done
            yield words

    def _window(self, window: str, is_last: bool, text: str, at: int, is_reversed: bool,
                is_inside: bool) -> tuple[list[str], int, bool]:
        """(the first words of a window, how many code points they take, whether the rest of the
        last one follows), a word that goes on behind it left out unless it is too long already.

        The window begins at text[at], or is reversed and ends there; in it or before it ends the
        rest of a word that came before if `is_inside`.

        A word is a code point alone, or goes from a letter to the next space or code point alone.
        Reversed it takes in what leaves nothing in front of it, and leaves out what is behind it.
        """
        classes = self._normalizer.classes(window)
        size, words, here, letter, alone, space = len(window), [], 0, -1, -1, -1
        if is_inside:
            here = min(_find(classes, SPACE, 0), _find(classes, ALONE, 0))
            if here == size:
                return words, size, True
        while here < size and len(words) < WINDOW:
            # Each of these is the first of its class from `here` on; each byte is searched once.
            if letter < here:
                letter = _find(classes, LETTER, here)
            if alone < here:
                alone = _find(classes, ALONE, here)
            if alone < letter:
                word, here = self._alone(window[alone], alone, text, at, is_reversed)
            elif letter == size:
                return words, size, False
            else:
                if space < letter:
                    space = _find(classes, SPACE, letter)
                stop = min(space, alone)
                if stop == size and not is_last:
                    if classes.count(LETTER, letter) > self._limit:
                        return [*words, self._too_long], size, True
                    return words, letter, False
                step = -1 if is_reversed else 1
                word = self._normalizer.word(window[letter:stop][::step],
                                             classes[letter:stop][::step], self._limit)
                word, here = self._too_long if word is None else word, stop
            words.append(word)
        return words, here, False

    def _alone(self, mark: str, offset: int, text: str, at: int,
               is_reversed: bool) -> tuple[str, int]:
        """(the special token that this code point begins or else its own form, the offset behind
        it), which may lie outside the window."""
        if is_reversed:
            if mark in self._last:
                edge = at - offset
                found = self._backward.match(text[max(0, edge - self._longest):edge][::-1])
                if found:
                    return found.group()[::-1], offset + found.end()
        elif mark in self._first:
            found = self._forward.match(text, at + offset)
            if found:
                return found.group(), found.end() - at
        return mark if mark.isascii() else self._normalizer.form(mark), offset + 1


def _find(classes: bytes, wanted: bytes, start: int) -> int:
    """Where the class comes next, the length if it does not."""
    found = classes.find(wanted, start)
    return len(classes) if found < 0 else found


def _next_size(size: int, words: list[str], done: int) -> int:
    if not done:
        return GROWTH * size
    return WINDOW if words else max(size, min(GROWTH * size, EMPTY_WINDOW))


def is_readable(specials: Iterable[str], normalizer: Normalizer) -> bool:
    """Whether a reader finds exactly these tokens: each begins and ends with a code point that is
    a word of its own, and none holds or overlaps another (or itself, moved)."""
    tokens = list(specials)
    for token in tokens:
        if not token or normalizer.classes(token[0] + token[-1]) != 2 * ALONE:
            return False
        for other in tokens:
            if token != other and token in other:
                return False
            if any(token.endswith(other[:size]) for size in range(1, min(len(token), len(other)))):
                return False
    return True


@lru_cache(maxsize=4)
def _plain_reader(casing: Casing) -> WordReader:
    return WordReader(Normalizer(casing))


def words(text: str, casing: Casing) -> list[str]:
    """All normalised words of a text without special tokens."""
    return [word for part in _plain_reader(casing).read(text) for word in part]
