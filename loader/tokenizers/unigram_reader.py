"""The long way through a text: any added token, joined code point or space, any length of word.

A text is read part by part, from its start or from its end, only as far as someone asks. What is
held is one part, what cannot be cut, and what is not certain of a long word; read backwards also
the ids of what lies between two spaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain

from loader.tokenizers.added import AddedTokens
from loader.tokenizers.encoding import WHOLE_CHARACTERS
from loader.tokenizers.metaspace import Marker, Metaspace
from loader.tokenizers.unigram_normalizer import GROWTH, Normalizer
from loader.tokenizers.unigram_paths import LongWord, Pieces

_LONE_SPACE = re.compile("(?<! ) (?! )")


class Reader:
    """Reads texts into ids."""

    def __init__(self, normalizer: Normalizer, rules: Metaspace, pieces: Pieces,
                 added: AddedTokens, has_normalized: bool) -> None:
        self._normalizer, self._rules, self._pieces = normalizer, rules, pieces
        self._added, self._has_normalized = added, has_normalized
        self._words, self._rest_of_word = rules.words(), rules.rest_of_word()

    def read(self, text: str, at: int = 0) -> Iterator[list[int]]:
        """The ids of a stripped text, or of what follows a space in front of `at`, in order."""
        is_first = at == 0
        for piece in self._added.raw_steps(text[at - 1:] if at else text):
            if piece is None:
                yield []
            elif isinstance(piece, int):
                yield [piece]
            elif is_first:
                yield from self._rest(piece)
            else:
                # With the space in front, so that what is behind it may be joined to it.
                yield from self._marked(self._forms(piece, False, True), True)
            is_first = is_first or piece is not None

    def read_back(self, text: str, end: int) -> Iterator[list[int]]:
        """The ids of a stripped text, or of what a space at `end` follows, last ones first."""
        found = []
        for piece in self._added.raw_steps(text[:end + 1]):
            if piece is None:
                yield []
            else:
                found.append(piece)
        is_last = end == len(text)
        for piece in reversed(found):
            if isinstance(piece, int):
                yield [piece]
            else:
                # With the space behind, as above, if one more makes no difference.
                rest = piece if is_last or self._rules.collapses else piece[:-1]
                yield from self._rest_back(rest, is_last)
            is_last = True

    def _rest(self, rest: str) -> Iterator[list[int]]:
        """The ids of a text between two added tokens."""
        forms = self._forms(rest, True, True)
        if not self._has_normalized:
            yield from self._marked(forms, True)
            return
        whole = []
        for form in forms:
            whole.append(form)
            yield []
        for piece in self._added.normalized_steps(self._normalizer.collapsed("".join(whole))):
            if piece is None:
                yield []
            elif isinstance(piece, int):
                yield [piece]
            else:
                yield from self._marked([piece], True)

    def _rest_back(self, rest: str, is_last: bool) -> Iterator[list[int]]:
        if self._has_normalized:
            yield from _backwards(self._rest(rest))
            return
        rest = self._normalizer.strip(rest, True, is_last)
        end = len(rest)
        while end >= 0:
            cut = self._cut_back(rest, end)
            forms = self._forms(rest[cut + 1:end], cut < 0, is_last)
            yield from _backwards(self._marked(forms, cut < 0, is_last))
            end, is_last = cut, False

    def _cut_back(self, rest: str, end: int) -> int:
        """Where a space is that nothing reaches across, not too far before the end; −1 if
        nowhere."""
        size = WHOLE_CHARACTERS
        while end > size:
            for match in _LONE_SPACE.finditer(rest, end - size, end - 1):
                if self._normalizer.is_loose_space(rest, match.start()):
                    return match.start()
            size *= GROWTH
        return -1

    def _forms(self, text: str, is_first: bool, is_last: bool) -> Iterator[str]:
        return self._normalizer.forms(self._normalizer.strip(text, is_first, is_last))

    def _marked(self, forms: Iterable[str], is_first: bool, is_last: bool = True
                ) -> Iterator[list[int]]:
        """The ids of normal forms that follow each other; behind a space, or in front of one, if
        not the first or last of their text."""
        marker, held, long_word = Marker(self._rules, is_first), "", None
        # What is unmarked at the end is a space; if one follows that counts for both.
        ends = [None] if is_last or not self._rules.collapses else []
        for form in chain(forms, ends):
            marked = marker.end() if form is None else marker.feed(form)
            if long_word is not None:
                rest = self._rest_of_word.match(marked).end()
                yield from _fed(long_word, marked[:rest])
                if rest == len(marked):
                    continue
                yield long_word.end()
                long_word, marked = None, marked[rest:]
            words = self._words.findall(held + marked)
            held = words.pop() if words and marked[-1:] != " " else ""
            yield from self._ids(words)
            if len(held) > WHOLE_CHARACTERS:
                long_word = LongWord(self._pieces)
                yield from _fed(long_word, held)
                held = ""
        if long_word is not None:
            yield long_word.end()
        elif held:
            yield list(self._pieces.best(held))

    def _ids(self, words: list[str]) -> Iterator[list[int]]:
        ids, characters = [], 0
        for word in words:
            if len(word) > WHOLE_CHARACTERS:
                long_word = LongWord(self._pieces)
                yield ids
                yield from _fed(long_word, word)
                ids, characters = long_word.end(), 0
                continue
            ids += self._pieces.best(word)
            characters += len(word)
            if characters > WHOLE_CHARACTERS:
                yield ids
                ids, characters = [], 0
        yield ids


def _fed(long_word: LongWord, text: str) -> Iterator[list[int]]:
    for at in range(0, len(text), WHOLE_CHARACTERS):
        yield long_word.feed(text[at:at + WHOLE_CHARACTERS])


def _backwards(parts: Iterator[list[int]]) -> Iterator[list[int]]:
    """The same ids the last one first, once all are there."""
    ids = []
    for part in parts:
        ids += part
        yield []
    yield ids[::-1]
