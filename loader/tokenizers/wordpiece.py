"""WordPiece: greedy longest pieces of normalised words (Wu et al. 2016; BERT's tokenization.py).

Nothing in the normaliser, the special tokens or the words reaches across U+0020, so a text is
looked up chunk by chunk between spaces in a cache; `WordReader` reads what is not in it, and what
is too long or too sparse for it.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from loader.tokenizers.bert_normalizer import Casing, Normalizer
from loader.tokenizers.bert_words import WordReader
from loader.tokenizers.chunk_cache import ChunkCache
from loader.tokenizers.encoding import WHOLE_CHARACTERS, Frame, Tokenizer

# A block with fewer ids than this is no text: the rest is left to the reader, which does not mind.
SPARSE_IDS = WHOLE_CHARACTERS // 64
# Pieces are looked for from the longest that begins with the same so many code points.
HEAD = 3

_PLAIN = re.compile(r"[\x21-\x7e]+")
_ASCII_WORDS = re.compile(r"[0-9A-Za-z]+|[^0-9A-Za-z]")


class WordPiece(Tokenizer):
    """The kind of BERT, cased and uncased."""

    cuts_at_spaces = True

    def __init__(self, table: dict) -> None:
        super().__init__(Frame(*table["frame"]), table["cuts_left"])
        casing, specials = Casing(*table["casing"]), table["specials"]
        self._vocabulary: dict[str, int] = table["vocabulary"]
        self._unknown = self._vocabulary[table["unknown"]]
        self._lower_case = casing.lower_case
        self._word_limit: int = table["word_limit"]
        self._longest = _longest_pieces(self._vocabulary)
        self._alphabet = set().union(*self._vocabulary)
        self._special_start = re.compile("|".join(
            sorted({re.escape(token[0]) for token in specials})) or "(?!)")
        self._reader = WordReader(Normalizer(casing), specials, self._word_limit,
                                  table["unknown"])
        self._chunks = ChunkCache(self._chunk_ids)

    def ids(self, text: str) -> list[int]:
        """All ids of a text, without specials around it; a fresh list."""
        if "\n" in text:
            text = text.replace("\n", " ")  # as good a space, and commoner as a chunk's end
        return list(chain.from_iterable(map(self._chunks.__getitem__, text.split(" "))))

    def joiner(self, code: str) -> Callable[[str], bytes]:
        """As `ids`, of bytes."""
        chunks = ChunkCache(lambda chunk: array(code, self._chunk_ids(chunk)).tobytes())
        look_up = chunks.__getitem__
        start, end = (array(code, ids).tobytes() for ids in (self.frame.start, self.frame.end))

        def join(text: str) -> bytes:
            if "\n" in text:
                text = text.replace("\n", " ")
            return b"".join((start, *map(look_up, text.split(" ")), end))
        return join

    def parts(self, text: str) -> Iterator[list[int]]:
        """The ids some at a time, after a bounded piece of work; last ones first if so cut."""
        yield from self._parts_back(text) if self.cuts_left else self._parts(text)

    def _parts(self, text: str) -> Iterator[list[int]]:
        at = 0
        while len(text) - at > WHOLE_CHARACTERS:
            end = text.rfind(" ", at, at + WHOLE_CHARACTERS)
            if end < 0:
                break
            ids = self.ids(text[at:end])
            at = end + 1
            yield ids
            if len(ids) < SPARSE_IDS:
                break
        else:
            yield self.ids(text[at:])
            return
        for words in self._reader.read(text, at):
            yield list(chain.from_iterable(map(self._pieces, words)))

    def _parts_back(self, text: str) -> Iterator[list[int]]:
        end = len(text)
        while end > WHOLE_CHARACTERS:
            at = text.find(" ", end - WHOLE_CHARACTERS, end)
            if at < 0:
                break
            ids = self.ids(text[at + 1:end])
            end = at
            yield ids[::-1]
            if len(ids) < SPARSE_IDS:
                break
        else:
            yield self.ids(text[:end])[::-1]
            return
        for words in self._reader.read_back(text, end):
            yield [piece for word in words for piece in reversed(self._pieces(word))]

    def _chunk_ids(self, chunk: str) -> tuple[int, ...]:
        if _PLAIN.fullmatch(chunk) and not self._special_start.search(chunk):
            words = _ASCII_WORDS.findall(chunk.lower() if self._lower_case else chunk)
        else:
            words = chain.from_iterable(self._reader.read(chunk))
        return tuple(chain.from_iterable(map(self._pieces, words)))

    def _pieces(self, word: str) -> tuple[int, ...]:
        """Longest pieces from the left, those behind the first with ##; [UNK] if one is missing."""
        vocabulary = self._vocabulary
        known = vocabulary.get(word)
        if known is not None and len(word) <= self._word_limit:
            return known,
        # Most unknown words have a letter of no piece; the loop would find that out at its end.
        if len(word) > self._word_limit or not self._alphabet.issuperset(word):
            return self._unknown,
        pieces, at, behind = [], 0, ""
        while at < len(word):
            end = at + self._longest.get(behind + word[at:at + HEAD], HEAD - 1)
            while True:
                found = vocabulary.get(behind + word[at:end])
                if found is not None:
                    break
                end -= 1
                if end <= at:
                    return self._unknown,
            pieces.append(found)
            at, behind = min(end, len(word)), "##"
        return tuple(pieces)


def _longest_pieces(vocabulary: Iterable[str]) -> dict[str, int]:
    """The length, without ##, of the longest token by its first HEAD code points behind its ##."""
    longest: dict[str, int] = {}
    for token in vocabulary:
        behind = 2 if token.startswith("##") else 0
        head, length = token[:behind + HEAD], len(token) - behind
        if length >= HEAD and length > longest.get(head, 0):
            longest[head] = length
    return longest
