"""WordPiece: greedy longest pieces of normalised words (Wu et al. 2016; BERT's tokenization.py).

A text is worked on from one space to the next, because nothing in the normaliser, in the special
tokens or in the words reaches across a space. That gives a cache of whole chunks, and it gives
laziness: a text of 4 MiB is read only as far as the model's limit reaches.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from loader.tokenizers.bert_normalizer import Casing, word_border, words

# Chunks up to this long are remembered; the caches are emptied when full, so they stay bounded.
CACHED_CHARACTERS = 48
CACHED_CHUNKS = 1 << 15
# A text is cut into blocks of about this many characters at spaces.
BLOCK_CHARACTERS = 4096
# A chunk without a space is cut at word borders once it is longer than this.
RUN_CHARACTERS = 8192


class Encoding(NamedTuple):
    """`ids` with specials, `split` how many of them belong to the first segment (all, without a
    pair), `truncated` whether something was cut off."""

    ids: list[int]
    split: int
    truncated: bool


class WordPiece:
    """One vocabulary with its settings; `encode` is what fronts call."""

    def __init__(self, table: dict) -> None:
        self._vocabulary: dict[str, int] = table["vocabulary"]
        self._unknown: int = self._vocabulary[table["unknown"]]
        self._cls, self._sep = table["cls"], table["sep"]
        self._casing = Casing(*table["casing"])
        self._cuts_left: bool = table["cuts_left"]
        self._word_limit: int = table["word_limit"]
        specials: dict[str, int] = table["specials"]
        self._specials = specials
        self._special = re.compile("(" + "|".join(
            re.escape(token) for token in sorted(specials, key=len, reverse=True)) + ")")
        self._longest_special = max(map(len, specials), default=0)
        self._longest_piece = max(map(len, self._vocabulary), default=1)
        self._border = word_border(self._casing)
        self._chunks: dict[str, list[int]] = {}

    def encode(self, text: str, pair: str | None, max_tokens: int) -> Encoding:
        """[CLS] text [SEP], or [CLS] text [SEP] pair [SEP], at most `max_tokens` ids.

        Longest first: a pair is cut so that neither text loses while the other is longer; the
        longer gets the odd token, of equals the second. An empty pair is none.
        """
        if not pair:
            budget = max_tokens - 2
            ids, is_whole = self._first(text, budget)
            return Encoding([self._cls, *ids, self._sep], len(ids) + 2, not is_whole)
        budget = max_tokens - 3
        first, second = _Counted(self, text), _Counted(self, pair)
        lengths = fit(first, second, budget)
        first_ids, second_ids = (self._keep(part.ids, length)
                                 for part, length in zip((first, second), lengths))
        ids = [self._cls, *first_ids, self._sep, *second_ids, self._sep]
        is_cut = len(first_ids) < len(first.ids) or len(second_ids) < len(second.ids)
        return Encoding(ids, len(first_ids) + 2, is_cut)

    def _first(self, text: str, budget: int) -> tuple[list[int], bool]:
        """(the ids that fit, whether those are all)."""
        ids: list[int] = []
        for part in self.parts(text):
            ids += part
            if len(ids) > budget:
                return self._keep(ids, budget), False
        return self._keep(ids, len(ids)), True

    def _keep(self, ids: list[int], count: int) -> list[int]:
        """`count` ids of those read, from the side that is kept, in the order of the text."""
        kept = ids[:count]
        if self._cuts_left:
            kept.reverse()
        return kept

    def parts(self, text: str) -> Iterator[list[int]]:
        """The ids of a text, some at a time; last ones first where the left side is cut."""
        remembered = self._chunks
        for block in _blocks(text, self._cuts_left):
            chunks = block.split(" ")
            if self._cuts_left:
                chunks.reverse()
            found: list[int] = []
            for chunk in chunks:
                ids = remembered.get(chunk)
                if ids is None:
                    if len(chunk) > CACHED_CHARACTERS:
                        if found:
                            yield found
                            found = []
                        yield from self._long(chunk)
                        continue
                    ids = self._remember(chunk)
                found += ids
            yield found

    def _remember(self, chunk: str) -> list[int]:
        if len(self._chunks) >= CACHED_CHUNKS:
            self._chunks.clear()
        ids = self._ids(chunk)
        if self._cuts_left:
            ids.reverse()
        self._chunks[chunk] = ids
        return ids

    def _long(self, chunk: str) -> Iterator[list[int]]:
        """A chunk too long to remember, in pieces that end where a word does.

        A run of many characters without a border is one word; the reference gives [UNK] for it
        whatever its end is, so only its end is looked for.
        """
        if len(chunk) <= RUN_CHARACTERS or self._cuts_left:
            ids = self._ids(chunk)
            if self._cuts_left:
                ids.reverse()
            yield ids
            return
        at = 0
        while at < len(chunk):
            end = self._piece_end(chunk, at)
            yield self._ids(chunk[at:end])
            at = end

    def _piece_end(self, chunk: str, at: int) -> int:
        """Where a piece that starts at `at` may end: behind a border, outside any special token."""
        while len(chunk) - at > RUN_CHARACTERS:
            found = self._border.search(chunk, at + RUN_CHARACTERS)
            if found is None:
                break
            end = found.end()
            # A mark may be a part of a special token, as both brackets of [SEP] are.
            low = max(0, end - self._longest_special)
            inside = any(special.start() < end - low < special.end() for special in
                         self._special.finditer(chunk[low:end + self._longest_special]))
            if not inside and not _is_mark_next(chunk, end):
                return end
            return self._behind(chunk, end)
        return len(chunk)

    def _behind(self, chunk: str, end: int) -> int:
        """The next good place for a cut behind `end`, found one border at a time."""
        while True:
            found = self._border.search(chunk, end)
            if found is None:
                return len(chunk)
            end = found.end()
            low = max(0, end - self._longest_special)
            if not _is_mark_next(chunk, end) and not any(
                    special.start() < end - low < special.end() for special in
                    self._special.finditer(chunk[low:end + self._longest_special])):
                return end

    def _ids(self, chunk: str) -> list[int]:
        ids: list[int] = []
        if "[" in chunk or "<" in chunk:
            for part in self._special.split(chunk):
                special = self._specials.get(part)
                if special is not None:
                    ids.append(special)
                elif part:
                    self._add_words(part, ids)
        else:
            self._add_words(chunk, ids)
        return ids

    def _add_words(self, part: str, ids: list[int]) -> None:
        vocabulary = self._vocabulary
        for word in words(part, self._casing):
            known = vocabulary.get(word)
            if known is not None and len(word) <= self._word_limit:
                ids.append(known)
            else:
                ids += self._pieces(word)

    def _pieces(self, word: str) -> list[int]:
        """Longest pieces from the left, those behind the first with ##; [UNK] if one is missing."""
        if len(word) > self._word_limit:
            return [self._unknown]
        vocabulary, pieces, at = self._vocabulary, [], 0
        while at < len(word):
            end = min(len(word), at + self._longest_piece)
            while end > at:
                piece = word[at:end] if not at else "##" + word[at:end]
                found = vocabulary.get(piece)
                if found is not None:
                    pieces.append(found)
                    break
                end -= 1
            else:
                return [self._unknown]
            at = end
        return pieces


class _Counted:
    """The ids of one text of a pair, read only as far as someone asks."""

    def __init__(self, tokenizer: WordPiece, text: str) -> None:
        self.ids: list[int] = []
        self._parts = tokenizer.parts(text)
        self._has_more = True

    def has(self, count: int) -> bool:
        """Whether the text has at least `count` ids."""
        while len(self.ids) < count and self._has_more:
            part = next(self._parts, None)
            if part is None:
                self._has_more = False
            else:
                self.ids += part
        return len(self.ids) >= count


def fit(first: _Counted, second: _Counted, budget: int) -> tuple[int, int]:
    """How many ids each text of a pair keeps, as the reference's longest_first.

    With lengths n1 ≤ n2 and more than `budget` in all: the longer keeps max(n1, budget − n1); if
    that is still too much, the shorter keeps budget ÷ 2 and the longer the rest.
    """
    first.has(budget + 1)
    second.has(budget + 1)
    ours, theirs = len(first.ids), len(second.ids)
    if ours + theirs <= budget:
        return ours, theirs
    swapped = _is_longer(first, second, budget)
    shorter, longer = (theirs, ours) if swapped else (ours, theirs)
    longer = shorter if shorter > budget else max(shorter, budget - shorter)
    if shorter + longer > budget:
        shorter = budget // 2
        longer = shorter + budget % 2
    return (longer, shorter) if swapped else (shorter, longer)


def _is_longer(first: _Counted, second: _Counted, budget: int) -> bool:
    """Whether the first text is the longer; read on only where an odd token depends on it."""
    count = min(len(first.ids), len(second.ids))
    if count > budget and budget % 2 == 0:
        return False
    while first.has(count + 1) and second.has(count + 1):
        count = min(len(first.ids), len(second.ids))
    return len(first.ids) > len(second.ids)


def _blocks(text: str, from_end: bool) -> Iterator[str]:
    """The text in blocks that end at spaces; a chunk without a space stays whole."""
    if len(text) <= BLOCK_CHARACTERS:
        yield text
        return
    if from_end:
        end = len(text)
        while end >= 0:
            at = text.rfind(" ", 0, max(end - BLOCK_CHARACTERS, 0)) + 1 \
                if end > BLOCK_CHARACTERS else 0
            yield text[at:end].strip(" ")
            end = at - 1
        return
    at = 0
    while at < len(text):
        end = text.find(" ", at + BLOCK_CHARACTERS)
        end = len(text) if end < 0 else end
        yield text[at:end].strip(" ")
        at = end + 1


def _is_mark_next(chunk: str, at: int) -> bool:
    """Whether a combining mark follows: it belongs to what stands before a cut."""
    return at < len(chunk) and ord(chunk[at]) >= 0x300 and not chunk[at].isalnum()
