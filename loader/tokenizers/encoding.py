"""What a tokeniser answers: ids with specials around them, cut to the model's limit.

What a kind of tokeniser adds is `ids` and `parts`. A long text comes in parts, from the side that
is kept, and only as many are asked for as the limit can hold.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from typing import NamedTuple

# Texts up to this long, in code points, are tokenised whole at once.
WHOLE_CHARACTERS = 4096


class Encoding(NamedTuple):
    """`ids` with specials, `split` how many of them have type 0 (all, without a pair), the others
    type 1, `truncated` whether something was cut off."""

    ids: list[int]
    split: int
    truncated: bool


class Frame(NamedTuple):
    """The special ids before a text, behind the first one of a pair, and at the end.

    Of a pair, `zeros` of `between` still have type 0, all behind them type 1; all ids have type 0
    if it is None.
    """

    start: list[int]
    between: list[int]
    end: list[int]
    zeros: int | None = None

    @property
    def pair_specials(self) -> int:
        """How many ids stand around and between the texts of a pair."""
        return len(self.start) + len(self.between) + len(self.end)


class Tokenizer:
    """One vocabulary with its settings. Not for several threads at once."""

    # Whether a text's ids are those of what stands between its U+0020, one after the other.
    cuts_at_spaces = False

    def __init__(self, frame: Frame, cuts_left: bool) -> None:
        self.frame = frame
        self.cuts_left = cuts_left
        self._around = len(frame.start) + len(frame.end)

    def ids(self, text: str) -> list[int]:
        """All ids of a text, without specials around it; a fresh list."""
        raise NotImplementedError

    def joiner(self, code: str) -> Callable[[str], bytes]:
        """A function that gives the ids of a short text, in their frame and never cut, as
        array(code, …).tobytes() does; a kind that remembers chunks of texts remembers their bytes
        for it."""
        start, end = self.frame.start, self.frame.end
        return lambda text: array(code, [*start, *self.ids(text), *end]).tobytes()

    def parts(self, text: str) -> Iterator[list[int]]:
        """The same ids some at a time, or none, after a bounded piece of work; where the left side
        is cut, from the last one to the first."""
        raise NotImplementedError

    def encode(self, text: str, pair: str | None, max_tokens: int) -> Encoding:
        """The text, with its pair, as at most `max_tokens` ids; an empty pair is none.

        The longer loses first, as the reference's longest_first (`share`). `max_tokens` has room
        for the specials. The work is linear in what the limit can hold, and in what leaves no
        token; only two texts that both lose an odd number are read until the shorter ends.
        """
        if pair or len(text) > WHOLE_CHARACTERS:
            for encoding in self.steps(text, pair, max_tokens):
                if encoding is not None:
                    return encoding
        ids, kept = self.ids(text), max_tokens - self._around
        is_cut = len(ids) > kept
        if is_cut:
            ids = ids[len(ids) - kept:] if self.cuts_left else ids[:kept]
        ids = [*self.frame.start, *ids, *self.frame.end]
        return Encoding(ids, len(ids), is_cut)

    def steps(self, text: str, pair: str | None, max_tokens: int) -> Iterator[Encoding | None]:
        """As `encode`, in pieces of some milliseconds at most: None while there is more to do."""
        start, between, end, zeros = self.frame
        first, second = _Counted(self, text), _Counted(self, pair or "")
        budget = max_tokens - self._around - (len(between) if pair else 0)
        yield from first.reach(budget + 1)
        yield from second.reach(budget + 1)
        ours, theirs = len(first.ids), len(second.ids)
        is_cut = ours + theirs > budget
        if pair and budget % 2 and min(ours, theirs) > budget:
            # Neither was read to its end, and the longer one gets the odd token: which is it?
            while len(first.ids) == ours and len(second.ids) == theirs:
                common = min(ours, theirs) + 1
                yield from first.reach(common)
                yield from second.reach(common)
                if len(first.ids) < common or len(second.ids) < common:
                    break
                ours, theirs = len(first.ids), len(second.ids)
            ours, theirs = len(first.ids), len(second.ids)
        ours, theirs = share(ours, theirs, budget) if pair else (min(ours, budget), 0)
        ids = [*start, *self._kept(first.ids, ours)]
        if pair:
            split = None if zeros is None else len(ids) + zeros
            ids += between
            ids += self._kept(second.ids, theirs)
        ids += end
        yield Encoding(ids, split if pair and split is not None else len(ids), is_cut)

    def _kept(self, ids: list[int], count: int) -> list[int]:
        """`count` ids of those read, in the order of the text."""
        return ids[:count][::-1] if self.cuts_left else ids[:count]


class _Counted:
    """The ids of one text, read only as far as someone asks; the kept side first."""

    def __init__(self, tokenizer: Tokenizer, text: str) -> None:
        self.ids: list[int] = []
        self._parts = tokenizer.parts(text)
        self._has_more = True

    def reach(self, count: int) -> Iterator[None]:
        """Reads until there are `count` ids or no more; yields after each part."""
        while len(self.ids) < count and self._has_more:
            part = next(self._parts, None)
            if part is None:
                self._has_more = False
            else:
                self.ids += part
                yield


def share(first: int, second: int, budget: int) -> tuple[int, int]:
    """How many ids each text of a pair keeps of its own number of them.

    The shorter keeps all up to budget ÷ 2, the longer what is left; of equals the second counts as
    longer. Of 7 and 3, a budget of 9 keeps 6 and 3; of 5 and 8, 4 and 5; of 5 and 5, 4 and 5.
    Equal to the reference's rule of three cases for all numbers (a test holds that).
    """
    if first + second <= budget:
        return first, second
    shorter = min(first, second, budget // 2)
    longer = budget - shorter
    return (longer, shorter) if first > second else (shorter, longer)
