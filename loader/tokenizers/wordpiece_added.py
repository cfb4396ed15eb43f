"""WordPiece with added tokens of any flags, which may hold letters and spaces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from loader.tokenizers.around_added import AroundAdded
from loader.tokenizers.bert_normalizer import Casing, Normalizer
from loader.tokenizers.encoding import Frame, Tokenizer
from loader.tokenizers.wordpiece import WordPiece


def open_wordpiece(table: dict[str, Any]) -> Tokenizer:
    """The tokeniser of a table of `wordpiece_table`."""
    return WordPieceAroundAdded(table) if table["added"] else WordPiece(table)


class WordPieceAroundAdded(AroundAdded):
    """Cuts out added tokens, and leaves the rests to a WordPiece that knows of none."""

    def __init__(self, table: dict[str, Any]) -> None:
        self._plain = WordPiece({**table, "specials": {}, "cuts_left": False})
        normalizer = Normalizer(Casing(*table["casing"]))
        # Without tokens that are looked for in normalised text, `_plain` may as well normalise.
        self._looks_twice = any(row[2] for row in table["added"])
        super().__init__(Frame(*table["frame"]), table["cuts_left"], table["added"],
                         normalizer.text if self._looks_twice else lambda text: text)

    def ids(self, text: str) -> list[int]:
        """All ids of a text, without specials around it; a fresh list."""
        if self._added.has_raw(text) or self._looks_twice:
            return list(chain.from_iterable(self.read(text)))
        return self._plain.ids(text)

    def joiner(self, code: str) -> Callable[[str], bytes]:
        """As `ids`, of bytes."""
        plain, general = self._plain.joiner(code), super().joiner(code)
        if self._looks_twice:
            return general
        return lambda text: general(text) if self._added.has_raw(text) else plain(text)

    def piece_ids(self, piece: str) -> Iterator[list[int]]:
        """The ids of a piece, normalised or not, some at a time after a bounded piece of work."""
        return self._plain.parts(piece)
