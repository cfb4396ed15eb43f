"""Added tokens: cut out of a text before the model sees the rest, as each one's flags say.

Two passes, as the reference makes them: tokens with normalized=false are looked for in the raw
text; each rest is normalised, and tokens with normalized=true, their own content normalised as
well, are looked for in that. In each pass the leftmost token wins, of those the longest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from loader.errors import CheckpointError, shown
from loader.tokenizers.code_points import (
    LETTERS, SPACES, WORD_BESIDE_LETTERS, character_class, code_points,
)

IDS_LIMIT = 1 << 31
# Code points searched in one piece: some 0.1 ms where few tokens begin, 5 ms at worst.
WINDOW = 1 << 16
# Nested groups of an expression; deeper, its alternatives are tried one after the other.
DEPTH_LIMIT = 40

_WORD = re.compile(character_class(LETTERS + WORD_BESIDE_LETTERS))
_SPACE_RUN = re.compile(character_class(SPACES) + "*")
_SPACES = "".join(code_points(SPACES))


class AddedToken(NamedTuple):
    """One added token with its flags; a row of a compiled table."""

    content: str
    id: int
    normalized: bool
    lstrip: bool
    rstrip: bool
    single_word: bool


class AddedTokens:
    """The added tokens of one tokeniser. `normalize` makes contents as it makes texts.

    `forms` are the texts that are looked for, in either pass.
    """

    def __init__(self, rows: Iterable[list[Any]],
                 normalize: Callable[[str], str] = lambda text: text) -> None:
        tokens = [AddedToken(*row) for row in rows]
        self.is_empty = not tokens
        self._raw = _Finder({token.content: token for token in reversed(tokens)
                             if not token.normalized})
        # Of two that are the same once normalised the first counts.
        self._normalized = _Finder({normalize(token.content): token for token in reversed(tokens)
                                    if token.normalized})
        self.forms = [*self._raw.tokens, *self._normalized.tokens]

    def has_raw(self, text: str) -> bool:
        """Whether `raw` may give anything but the text."""
        return self._raw.search is not None and self._raw.search(text) is not None

    def has_normalized(self, text: str) -> bool:
        """Whether `normalized` may give anything but the text."""
        return self._normalized.search is not None and self._normalized.search(text) is not None

    def raw(self, text: str) -> Iterator[str | int]:
        """A raw text's pieces, in order: ids of tokens with normalized=false, and what is between
        them; empty pieces left out."""
        return (piece for piece in self._raw.cut(text) if piece is not None)

    def normalized(self, text: str) -> Iterator[str | int]:
        """As `raw`, for a piece of normalised text and tokens with normalized=true."""
        return (piece for piece in self._normalized.cut(text) if piece is not None)

    def raw_steps(self, text: str) -> Iterator[str | int | None]:
        """As `raw`; None after each bounded piece of work that found nothing."""
        return self._raw.cut(text)

    def normalized_steps(self, text: str) -> Iterator[str | int | None]:
        """As `normalized`; None after each bounded piece of work that found nothing."""
        return self._normalized.cut(text)


class _Finder:
    """Finds one pass's tokens, given by what they look like in it."""

    def __init__(self, tokens: dict[str, AddedToken]) -> None:
        tokens.pop("", None)
        self.tokens = tokens
        self._longest = max(map(len, tokens), default=0)
        self.search = re.compile(_expression(tokens)).search if tokens else None

    def cut(self, text: str) -> Iterator[str | int | None]:
        """Ids of tokens, pieces of text, and None after a window without a token."""
        if self.search is None:
            if text:
                yield text
            return
        begun = at = spaces_end = 0     # where the piece begins, what is searched from, a run's end
        while at < len(text):
            stop = min(at + WINDOW, len(text))
            match = self.search(text, at, min(stop + self._longest, len(text)))
            if match is None or match.start() >= stop:
                at = stop
                yield None
                continue
            start, at = match.span()
            token = self.tokens[match.group()]
            if token.single_word and (start and _WORD.match(text, start - 1)
                                      or _WORD.match(text, at)):
                yield None
                continue    # and what it covers is not looked at again, as in the reference
            end = at
            if token.lstrip:
                start = begun + len(text[begun:start].rstrip(_SPACES)) if begun < start else begun
            if token.rstrip:
                if spaces_end < at:
                    spaces_end = _SPACE_RUN.match(text, at).end()
                end = spaces_end
            if begun < start:
                yield text[begun:start]
            # Tokens made of spaces are found among those swallowed before too, as in the reference;
            # it leaves out one that swallows to its left when nothing of it is left.
            if start < end:
                yield token.id
            begun = end
        if begun < len(text):
            yield text[begun:]


def _expression(contents: Iterable[str]) -> str:
    """A regular expression that matches the longest of the contents at its place.

    A tree of what they have in common: a text is compared with one branch, not with each content,
    and at most places one code point decides.
    """
    ordered = sorted(contents)
    tree = _branches(ordered, 0, 0)
    return "|".join(map(re.escape, sorted(ordered, key=len, reverse=True))) if tree is None \
        else "|".join(tree)


def _branches(ordered: list[str], at: int, depth: int) -> list[str] | None:
    """An expression for each code point at `at` of contents that are the same before it; None if
    they nest too deep."""
    if depth > DEPTH_LIMIT:
        return None
    groups: dict[str, list[str]] = {}
    for content in ordered:
        groups.setdefault(content[at], []).append(content)
    branches = []
    for group in groups.values():
        # The first in order is the shortest wherever it begins the last.
        first, last = group[0], group[-1]
        end = at + 1
        while end < min(len(first), len(last)) and first[end] == last[end]:
            end += 1
        branch, longer = re.escape(first[at:end]), [one for one in group if len(one) > end]
        if longer:
            inner = _branches(longer, end, depth + 1)
            if inner is None:
                return None
            branch += f"(?:{'|'.join(inner)})" + ("?" if len(longer) < len(group) else "")
        branches.append(branch)
    return branches


def compile_added(tokenizer_json: dict[str, Any],
                  where: str = "tokenizer.json") -> list[list[Any]]:
    """The rows that `AddedTokens` takes, out of a parsed tokenizer.json; `where` names another
    file that the tokens are from. Raises CheckpointError.

    The order is the reference's, special ones first. It numbers tokens that the vocabulary lacks
    behind that, whatever the file says, so a file that says otherwise is refused.
    """
    tokens = tokenizer_json.get("added_tokens") or []
    if not isinstance(tokens, list):
        raise CheckpointError(f"{where}: added_tokens is not a list; save the tokenizer again.")
    vocabulary = tokenizer_json["model"]["vocab"]
    known = vocabulary if isinstance(vocabulary, dict) else \
        {entry[0]: number for number, entry in enumerate(vocabulary)}
    rows: dict[str, AddedToken] = {}
    following, specials = len(known), []
    for token in tokens:
        row = added_row(token, where)
        if row.content in rows:
            raise CheckpointError(f"{where}: the added token {shown(row.content)} is given "
                                  "twice; save the tokenizer again.")
        expected = known.get(row.content, following)
        if row.id != expected:
            place = "in the vocabulary" if row.content in known else "by the reference's count"
            raise CheckpointError(f"{where}: {shown(row.content)} has the id {row.id} as "
                                  f"an added token and {expected} {place}; save the tokenizer "
                                  "again.")
        following += row.content not in known
        rows[row.content] = row
        if token.get("special"):
            specials.append(row.content)
    return [list(rows[content]) for content in
            (*specials, *(content for content in rows if content not in set(specials)))]


def added_row(token: Any, where: str) -> AddedToken:
    """The row of a token as files give it, flags left out false. Raises CheckpointError."""
    content = token.get("content") if isinstance(token, dict) else None
    number = token.get("id") if isinstance(token, dict) else None
    if not isinstance(content, str) or not content or type(number) is not int \
            or not 0 <= number < IDS_LIMIT:
        raise CheckpointError(f"{where}: added_tokens holds {shown(token)}, not a token "
                              "with content and id; save the tokenizer again.")
    flags = [token.get(flag, False) for flag in AddedToken._fields[2:]]
    if not all(isinstance(flag, bool) for flag in flags):
        raise CheckpointError(f"{where}: a flag of the added token {shown(content)} is "
                              "not true or false; save the tokenizer again.")
    return AddedToken(content, number, *flags)
