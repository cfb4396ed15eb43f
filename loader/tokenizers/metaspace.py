"""Spaces of a normalised text as a mark in front of words, text by text or part by part.

What comes out are words that each begin at a mark or behind a U+0020, which is none of their own.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from loader.tokenizers.code_points import SPACES, character_class

_SPACE_RUN = re.compile(character_class(SPACES) + "+")


class Metaspace(NamedTuple):
    """How the pre-tokeniser marks words: with `mark`, in front of a text's first word too if
    `prepends`; `splits` first at white space; `collapses` runs of U+0020 before that."""

    mark: str
    prepends: bool
    splits: bool
    collapses: bool

    def words(self) -> re.Pattern[str]:
        """Finds the words of a marked text."""
        mark = re.escape(self.mark)
        return re.compile(f"{mark}[^{mark} ]*|[^{mark} ]+")

    def rest_of_word(self) -> re.Pattern[str]:
        """Matches what still belongs to a word that began before."""
        return re.compile(f"[^{re.escape(self.mark)} ]*")


class Marker:
    """Marks one normalised text that comes in parts; `is_first` if nothing of it came before."""

    def __init__(self, metaspace: Metaspace, is_first: bool = True) -> None:
        self._rules, self._is_first = metaspace, is_first
        self._is_inside = False     # a word goes on, where text is split
        # A space that came, but is marked only where something follows or the text ends.
        self._has_space = not is_first

    def feed(self, form: str) -> str:
        """The next part, marked as far as what follows cannot matter."""
        if not form:
            return ""
        return self._split(form) if self._rules.splits else self._whole(form)

    def end(self) -> str:
        """What is left to mark at the end of the text."""
        has_space, self._has_space = self._has_space, False
        return self._rules.mark if has_space and not self._rules.splits else ""

    def _split(self, form: str) -> str:
        mark, prepends, _, _ = self._rules
        form = _SPACE_RUN.sub(" ", form)
        begins_word = not self._is_inside and form[0] != " "
        self._is_inside = form[-1] != " "
        if not prepends:
            return form
        # Each word gets its own mark, unless it has one.
        form = form.replace(" ", " " + mark).replace(" " + 2 * mark, " " + mark)
        if not self._is_inside:
            form = form[:-1]        # no word yet behind the last space
        return mark + form if begins_word and form[0] != mark else form

    def _whole(self, form: str) -> str:
        mark, prepends, _, collapses = self._rules
        if collapses:
            if "  " in form:
                form = re.sub("  +", " ", form)
            form = form[1:] if self._has_space and form[0] == " " else form
            form = " " + form if self._has_space and form else form
            if not form:
                return ""
            self._has_space = form[-1] == " "
            form = form[:-1] if self._has_space else form
        elif self._has_space:
            form, self._has_space = " " + form, False
        form = form.replace(" ", mark)
        if self._is_first and form:
            self._is_first = False
            if prepends and form[0] != mark:
                form = mark + form
        return form
