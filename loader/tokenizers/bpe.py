"""Byte-level BPE: the kind of GPT-2 and RoBERTa, of ModernBERT, and of Llama-3.

A piece without added tokens is cut into words, and each word's bytes are merged, unless the cache
has it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from itertools import chain

from loader.tokenizers.around_added import AroundAdded
from loader.tokenizers.bpe_merges import STRETCH, Merges
from loader.tokenizers.bpe_words import WordCutter
from loader.tokenizers.chunk_cache import ChunkCache
from loader.tokenizers.encoding import Frame
from loader.tokenizers.mark_runs import ordered
from loader.tokenizers.unicode_forms import normal_form

# Words beyond this many code points may have more bytes than are merged in one piece.
LONG_WORD = STRETCH // 4


def _composed(text: str) -> str:
    # What a newer Unicode than the reference's leaves as it is, the reference leaves.
    if text.isascii() or unicodedata.is_normalized("NFC", text):
        return text
    return normal_form("NFC", ordered(text))


def _unchanged(text: str) -> str:
    return text


class BPE(AroundAdded):
    """Made of a table as `bpe_files` compiles it."""

    def __init__(self, table: dict) -> None:
        super().__init__(Frame(*table["frame"]), table["cuts_left"], table["added"],
                         _composed if table["composes"] else _unchanged)
        self._words = WordCutter(table["pattern"])
        self._merges = Merges(table["vocabulary"], table["ranks"], table["cuts"], table["others"])
        self._takes_whole: bool = table["takes_whole"]
        self._adds_space: bool = table["adds_space"]
        self._cache = ChunkCache(self._word_ids)

    def ids(self, text: str) -> list[int]:
        """All ids of a text, without specials around it; a fresh list."""
        if not self._added.has_raw(text):
            text = self._normalize(text)
            if not self._added.has_normalized(text):
                words = self._words.cut(self._spaced(text))
                return list(chain.from_iterable(map(self._cache.__getitem__, words)))
        return list(chain.from_iterable(self.read(text)))

    def piece_ids(self, piece: str) -> Iterator[list[int]]:
        """The ids of a normalised piece, some at a time, or none, after a piece of work."""
        for words in self._words.read(self._spaced(piece)):
            ids: list[int] = []
            for word in words:
                if len(word) <= LONG_WORD:
                    ids += self._cache[word]
                    continue
                yield ids
                ids = []
                if self._takes_whole and (whole := self._whole(word)) is not None:
                    ids.append(whole)
                    continue
                for pieces in self._merges.read(_bytes(word)):
                    yield list(map(self._merges.vocabulary.__getitem__, pieces))
            yield ids

    def _word_ids(self, word: str) -> tuple[int, ...]:
        if self._takes_whole and (whole := self._whole(word)) is not None:
            return whole,
        merges = self._merges
        pieces = merges.pieces(_bytes(word)) if len(word) <= LONG_WORD else \
            chain.from_iterable(merges.read(_bytes(word)))
        return tuple(map(merges.vocabulary.__getitem__, pieces))

    def _whole(self, word: str) -> int | None:
        return self._merges.vocabulary.get(_bytes(word))

    def _spaced(self, piece: str) -> str:
        return " " + piece if self._adds_space and piece and not piece.startswith(" ") else piece


def _bytes(word: str) -> str:
    """The word's UTF-8 bytes as code points 0 to 255."""
    return word if word.isascii() else word.encode("utf-8", "surrogatepass").decode("latin-1")
