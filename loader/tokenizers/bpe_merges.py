"""Byte-pair merges of one word (Sennrich et al. 2016): lowest rank first, of equals the leftmost.

Words are texts of code points 0 to 255, one a byte. Long ones are merged a stretch at a time, which
gives the same pieces: where no merge crosses a place, the two sides know nothing of each other.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import numpy

# Words longer than this, in bytes, are merged in stretches of so many; one takes some 3 ms.
STRETCH = 512
# Doubled up to this where many tokens reach across its end, as in lines of dashes.
LONGEST_STRETCH = 1 << 13
# How far in front of a stretch's end a place is looked for that what follows cannot change.
TAIL = 64

# Tokens that begin a stretch's end are sought by so many first bytes.
HEAD = 2

_NEVER = (1 << 31) - 1


class Merges:
    """The vocabulary and merges of one tokeniser; `ranks`, `cuts` and `others` as `merge_table`
    gives them."""

    def __init__(self, vocabulary: dict[str, int], ranks: numpy.ndarray, cuts: numpy.ndarray,
                 others: list[list[Any]]) -> None:
        self.vocabulary = vocabulary
        # Views of the table's memory, which processes share, and quicker than arrays to index.
        self._ranks, self._cuts = memoryview(ranks), memoryview(cuts)
        self._others = {(left, right): rank for left, right, rank in others}
        self._longest: dict[str, int] | None = None

    def pieces(self, word: str) -> list[str]:
        """The word's pieces. Quadratic, if fast: for words up to some STRETCH."""
        pieces, rank = list(word), self._rank
        ranks = [rank(left, right) for left, right in zip(pieces, pieces[1:])]
        while ranks:
            best = min(ranks)
            if best == _NEVER:
                break
            at = ranks.index(best)
            while True:
                pieces[at] += pieces.pop(at + 1)
                del ranks[at]
                lowest = best
                if at < len(ranks):
                    lowest = ranks[at] = rank(pieces[at], pieces[at + 1])
                if at:
                    left = ranks[at - 1] = rank(pieces[at - 1], pieces[at])
                    lowest = min(lowest, left)
                # The same pair's next place, unless what was made here goes before it.
                try:
                    at = ranks.index(best, at)
                except ValueError:
                    break
                if lowest < best:
                    break
        return pieces

    def read(self, word: str) -> Iterator[list[str]]:
        """The pieces of a long word in order, some or none after each bounded piece of work.

        A stretch is merged as if the word ended with it. The last end of a piece of the whole word
        that lies in the stretch is its end or one of a few other places; what words that end at
        these have in common, the whole word has.
        """
        at, size = 0, STRETCH
        while at + size < len(word):
            end = at + size
            places = self._last_ends(word, at, end)
            yield []
            if size < min(len(places) ** 2 // 2, LONGEST_STRETCH):
                # Comparing so many ends would cost more than the stretch itself.
                size *= 2
                continue
            pieces = self.pieces(word[at:end])
            yield []
            ends = [at + offset for offset in accumulate(map(len, pieces))]
            count = 0
            for count in self._settled(word, places, ends):
                yield []
            if count:
                yield pieces[:count]
                at, size = ends[count - 1], STRETCH
            else:
                size *= 2
        yield self.pieces(word[at:])

    def _settled(self, word: str, places: list[int], ends: list[int]) -> Iterator[int]:
        """The last number given: how many of the stretch's pieces, whose ends are given, are the
        whole word's as well. Before it comes 0 after each piece of work.

        The whole word ends a piece at one of `places`, the last first, and up to there it has the
        pieces of the word that ends there. It is enough to compare the last of these. Let a piece
        of the stretch end at A and another behind it at B, and let the word from A to some other
        place have an end of a piece at B too. Then between A and B the same happens in both, at A
        as well, which no merge crosses in the one: so none crosses it in the other.
        """
        others = sorted(set(places).difference(ends))
        if not others:
            # Up to an end of a piece here that is the whole word's last one too, all is the same.
            yield bisect_right(ends, places[-1])
            return
        count = bisect_left(ends, min(places[0] - TAIL, places[-1]))
        while count > 0:
            start, known = ends[count - 1], set(ends[count:])
            for other in others:
                pieces = self.pieces(word[start:other])
                yield 0
                if known.isdisjoint(accumulate(map(len, pieces), initial=start)):
                    break
            else:
                yield count
                return
            count = bisect_left(ends, start - TAIL)

    def _last_ends(self, word: str, at: int, end: int) -> list[int]:
        """Where the whole word's last end of a piece in a stretch may be, the last first: at its
        end, or where a token begins that goes on behind it."""
        if self._longest is None:
            self._longest = _longest_pieces(self.vocabulary)
        found = [end]
        for start in range(end - 1, max(at, end - self._longest[""]), -1):
            reach = min(start + self._longest.get(word[start:start + HEAD], 1), len(word))
            if any(word[start:stop] in self.vocabulary for stop in range(end + 1, reach + 1)):
                found.append(start)
        return found

    def _rank(self, left: str, right: str) -> int:
        token = self.vocabulary.get(left + right)
        if token is None:
            return _NEVER
        if self._cuts[token] == len(left):
            return self._ranks[token]
        return self._others.get((left, right), _NEVER) if self._others else _NEVER


def merge_table(vocabulary: dict[str, int], pairs: list[tuple[str, str]],
                ) -> tuple[numpy.ndarray, numpy.ndarray, list[list[Any]]]:
    """(ranks, cuts, others) of pairs in the order of their ranks.

    Of most tokens one pair makes them: its rank and the bytes of its left part, by the token's id,
    int32 [ids]. The others are of tokens that several pairs make: [left, right, rank].
    """
    size = max(vocabulary.values(), default=0) + 1
    ranks, cuts = numpy.full(size, _NEVER, numpy.int32), numpy.zeros(size, numpy.int32)
    made: dict[str, list[list[Any]]] = {}
    for rank, (left, right) in enumerate(pairs):
        made.setdefault(left + right, []).append([left, right, rank])
        ranks[vocabulary[left + right]], cuts[vocabulary[left + right]] = rank, len(left)
    return ranks, cuts, [pair for several in made.values() if len(several) > 1 for pair in several]


def _longest_pieces(vocabulary: dict[str, int]) -> dict[str, int]:
    """The length of the longest token by its first HEAD bytes, of all under ""."""
    longest = {"": 0}
    for token in vocabulary:
        for head in ("", token[:HEAD]):
            longest[head] = max(longest.get(head, 0), len(token))
    return longest
