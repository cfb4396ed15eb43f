"""Unigram: the likeliest pieces of words (Kudo 2018), as sentencepiece and the reference have it.

Where no added token, joined code point or white space of another kind meets a U+0020, nothing
reaches across it, and a text is looked up chunk by chunk between spaces in a cache. Other texts
are left to `Reader`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from typing import Any

from loader.tokenizers.added import AddedTokens
from loader.tokenizers.chunk_cache import ChunkCache
from loader.tokenizers.encoding import WHOLE_CHARACTERS, Frame, Tokenizer
from loader.tokenizers.grapheme_clusters import FOLLOWING, PREPENDED
from loader.tokenizers.metaspace import Marker, Metaspace
from loader.tokenizers.unigram_normalizer import SPACE_SET, Normalizer
from loader.tokenizers.unigram_paths import Pieces
from loader.tokenizers.unigram_reader import Reader


class _Joined(Exception):
    """A chunk is not for itself: what stands beside it counts."""


class Unigram(Tokenizer):
    """The kind of XLM-RoBERTa, CamemBERT, ALBERT and DeBERTa-v2."""

    def __init__(self, table: dict[str, Any]) -> None:
        super().__init__(Frame(*table["frame"]), table["cuts_left"])
        normalizer = self._normalizer = Normalizer(table["normalizer"])
        rules = self._rules = Metaspace(*table["metaspace"], normalizer.collapses)
        self._pieces = Pieces(table)
        added = AddedTokens(table["added"], normalizer.whole)
        self._has_normalized = any(is_normalized for _, _, is_normalized, *_ in table["added"])
        self._reader = Reader(normalizer, rules, self._pieces, added, self._has_normalized)
        self._words = rules.words()
        self._mark_ids = self._pieces.best(rules.mark)
        contents = [content for content, *_ in table["added"]]
        contents = [*contents, *filter(None, map(normalizer.whole, contents))]
        self._added_part = re.compile("|".join(map(re.escape, contents)) or "(?!)")
        # An added token that holds white space would reach from one chunk into the next.
        self._has_chunks = (rules.prepends or rules.splits) \
            and all(map(SPACE_SET.isdisjoint, contents))
        firsts = {content[0] for content in contents}
        # Most chunks are of these alone, which stay what they are.
        plain = "".join(re.escape(letter) for letter in map(chr, range(0x21, 0x7F)) if letter not in
                        {rules.mark, *firsts} and normalizer.stays(letter))
        self._plain = re.compile(f"[{plain}]+" if plain else "(?!)")
        self._prefix = rules.mark if rules.prepends else ""
        # As good as spaces, and commoner as a chunk's end.
        self._blanks = [blank for blank in "\n\r\t" if normalizer.form(blank) == " "
                        and rules.collapses or normalizer.form(blank).isspace() and rules.splits]
        self._chunks = ChunkCache(self._chunk_ids)

    def ids(self, text: str) -> list[int]:
        """All ids of a text, without specials around it; a fresh list."""
        text = self._normalizer.strip(text)
        if self._has_chunks:
            try:
                return self._chunked(text, True, True)
            except _Joined:
                pass
        return list(chain.from_iterable(self._reader.read(text)))

    def parts(self, text: str) -> Iterator[list[int]]:
        """The ids some at a time, after a bounded piece of work; last ones first if so cut."""
        text = self._normalizer.strip(text)
        # Tokens are looked for in the normal form of all that is between two others.
        has_chunks = self._has_chunks and not (self._has_normalized
                                               and len(text) > WHOLE_CHARACTERS)
        yield from self._parts_back(text, has_chunks) if self.cuts_left else \
            self._parts(text, has_chunks)

    def _parts(self, text: str, has_chunks: bool) -> Iterator[list[int]]:
        at = 0
        while has_chunks:
            end = len(text)
            if end - at > WHOLE_CHARACTERS:
                end = text.rfind(" ", at, at + WHOLE_CHARACTERS)
            try:
                ids = self._chunked(text[at:end], at == 0, end == len(text)) if end >= 0 else None
            except _Joined:
                ids = None
            if ids is None:
                break
            yield ids
            if end == len(text):
                return
            at = end + 1
        yield from self._reader.read(text, at)

    def _parts_back(self, text: str, has_chunks: bool) -> Iterator[list[int]]:
        end = len(text)
        while has_chunks:
            at = -1
            if end > WHOLE_CHARACTERS:
                at = text.find(" ", end - WHOLE_CHARACTERS, end)
                if at < 0 or at > 0 and text[at - 1] in PREPENDED:
                    break
            try:
                ids = self._chunked(text[at + 1:end], at < 0, end == len(text))
            except _Joined:
                break
            yield ids[::-1]
            if at < 0:
                return
            end = at
        yield from self._reader.read_back(text, end)

    def _chunked(self, text: str, is_first: bool, is_last: bool) -> list[int]:
        """The ids of a text, or of a part of one between two spaces. Raises _Joined."""
        for blank in self._blanks:
            if blank in text:
                text = text.replace(blank, " ")
        chunks = text.split(" ")
        if self._rules.splits:
            return list(chain.from_iterable(map(self._chunks.__getitem__, chunks)))
        if is_first and not chunks[0] and not self._rules.collapses:
            del chunks[0]       # the first space is the first word's own mark
        ids = list(chain.from_iterable(map(self._chunks.__getitem__, chunks)))
        # The last of several spaces, or the one before this part, marks the end.
        if is_last and not chunks[-1] and (len(chunks) > 1 or not is_first) \
                and self._rules.collapses:
            ids += self._mark_ids
        return ids

    def _chunk_ids(self, chunk: str) -> tuple[int, ...]:
        """The ids of what is between two spaces of a text. Raises _Joined."""
        if not chunk:
            return () if self._rules.splits or self._rules.collapses else self._mark_ids
        if self._plain.fullmatch(chunk):
            return self._pieces.best(self._prefix + chunk)
        form = self._normalizer.form(chunk)
        if chunk[0] in FOLLOWING or chunk[-1] in PREPENDED \
                or self._added_part.search(chunk) or self._added_part.search(form):
            raise _Joined
        if not self._rules.splits and (
                not form or form[0] == self._rules.mark
                or not SPACE_SET.isdisjoint((chunk[0], chunk[-1], form[0], form[-1]))):
            raise _Joined
        words = self._words.findall(Marker(self._rules, self._rules.splits).feed(form))
        return tuple(chain.from_iterable(map(self._pieces.best, words)))
