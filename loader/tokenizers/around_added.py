"""Reads texts around their added tokens: what every kind with such tokens of any flags shares.

Added tokens are cut out of the raw text, the rests normalised, those with normalized=true cut out
of these. A long text is first cut in front of spaces where nothing reaches across.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from loader.tokenizers.added import AddedTokens
from loader.tokenizers.code_points import LETTERS, spans
from loader.tokenizers.encoding import WHOLE_CHARACTERS, Frame, Tokenizer

# Code points of a long piece that are normalised in one piece of work, some ms at worst.
NORMALIZED = 1 << 14
# So many spaces are looked at for one that a long text can be cut at.
SPACES_TRIED = 64

# Code points that never change with what is before them, enough of them to find one soon: ASCII,
# spaces, pictures, and letters, of which only vowels and final consonants of Hangul compose with
# one before them. Beyond U+FFFF few ranges, for an expression goes through these one by one.
_FREE = re.compile("[" + "".join(
    f"{chr(first)}-{chr(last)}" for first, last in spans("A0-2FF 2000-206F 3000-3029 1F000-1FAFF")
    + [span for span in spans(LETTERS) if 0x2FF < span[0] and span[1] < 0x10000
       and not span[0] <= 0x11FF <= span[1]]) + "\x00-\x7f]")


class AroundAdded(Tokenizer):
    """What a kind adds is `ids` and `piece_ids`. `rows` are those of `AddedTokens`; nothing but
    added tokens may reach across U+0020 between two printable ASCII code points, and `normalize`
    may but compose or decompose neighbours, and order marks."""

    def __init__(self, frame: Frame, cuts_left: bool, rows: list[list[Any]],
                 normalize: Callable[[str], str]) -> None:
        super().__init__(frame, cuts_left)
        self._normalize = normalize
        self._added = AddedTokens(rows, normalize)
        self._places = _Places(self._added.forms)

    def piece_ids(self, piece: str) -> Iterator[list[int]]:
        """The ids of a normalised piece without added tokens, some at a time, or none, after each
        bounded piece of work."""
        raise NotImplementedError

    def parts(self, text: str) -> Iterator[list[int]]:
        """The ids some at a time, after a bounded piece of work; last ones first if so cut."""
        yield from self._parts_back(text) if self.cuts_left else self._parts(text)

    def read(self, text: str) -> Iterator[list[int]]:
        """The ids in order, some or none at a time, the text never cut but at added tokens."""
        for raw in self._added.raw_steps(text):
            if not isinstance(raw, str):
                yield [] if raw is None else [raw]
                continue
            parts = []
            for part in self._normalized(raw):
                parts.append(part)
                if len(raw) > NORMALIZED:
                    yield []
            for piece in self._added.normalized_steps("".join(parts)):
                if isinstance(piece, str):
                    yield from self.piece_ids(piece)
                else:
                    yield [] if piece is None else [piece]

    def _normalized(self, raw: str) -> Iterator[str]:
        """A raw piece normalised some at a time, cut in front of what never changes with
        what is before it."""
        at = 0
        while at < len(raw):
            found = _FREE.search(raw, at + NORMALIZED)
            end = found.start() if found else len(raw)
            yield self._normalize(raw[at:end])
            at = end

    def _parts(self, text: str) -> Iterator[list[int]]:
        at = 0
        while len(text) - at > WHOLE_CHARACTERS:
            end = self._places.last(text, at, at + WHOLE_CHARACTERS)
            if end is None:
                break
            yield from self.read(text[at:end])
            at = end
        yield from self.read(text[at:])

    def _parts_back(self, text: str) -> Iterator[list[int]]:
        end = len(text)
        while end:
            at = self._places.first(text, end - WHOLE_CHARACTERS, end) \
                if end > WHOLE_CHARACTERS else None
            ids: list[int] = []
            for part in self.read(text[at:end]):
                ids += part
                yield []
            yield ids[::-1]
            end = at or 0


class _Places:
    """Finds spaces in front of which a text can be cut, the added tokens' forms given.

    One may reach across if it ends in front of the space, begins with it, or holds both sides. Case
    does not count here, so that it need not be known how a text is normalised.
    """

    def __init__(self, forms: list[str]) -> None:
        forms = [form.lower() for form in forms]
        self._ends = {form[-1] for form in forms}
        self._starts = {form[1:2] for form in forms if form[0] == " "}
        self._inside = {(form[at - 1], form[at + 1:at + 2]) for form in forms
                        for at in range(1, len(form)) if form[at] == " "}

    def last(self, text: str, start: int, stop: int) -> int | None:
        """The last place in (start, stop), None if there is none among SPACES_TRIED."""
        at = stop
        for _ in range(SPACES_TRIED):
            at = text.rfind(" ", start + 1, at)
            if at < 0:
                return None
            if self._is_free(text, at):
                return at
        return None

    def first(self, text: str, start: int, stop: int) -> int | None:
        """The first place in (start, stop), None if there is none among SPACES_TRIED."""
        at = start
        for _ in range(SPACES_TRIED):
            at = text.find(" ", at + 1, stop)
            if at < 0:
                return None
            if self._is_free(text, at):
                return at
        return None

    def _is_free(self, text: str, at: int) -> bool:
        # What is behind the code point behind the space could be a mark that changes that one.
        around = text[at - 1:at + 3].lower()
        if len(around) < 4 or not around.isascii() or not around.isprintable() \
                or around[0] == " " or around[2] == " ":
            return False
        return around[0] not in self._ends and not {"", around[2]} & self._starts \
            and (around[0], around[2]) not in self._inside
