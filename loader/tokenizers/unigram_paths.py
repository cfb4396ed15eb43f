"""A word's pieces: those whose scores add up to most (Viterbi), ties and sums as the reference's.

The reference goes from the left, adds up in float64, and takes another way to a place only if it is
better. Where no piece is just the next code point, that one may also be unknown, at a price; what
is unknown in a row becomes one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loader.tokenizers.piece_trie import ENDS, ROOT

# Code points whose symbols are remembered: 2 MB when full.
REMEMBERED = 1 << 14
# A long word is looked through for what is certain when so much of it is not.
UNCERTAIN = 2048

_NOWHERE = float("-inf")
_UNKNOWN = -1               # in place of a cell


class Pieces:
    """The pieces of one vocabulary, out of a compiled table.

    `symbols`, `parents`, `bases`: piece_trie's arrays; `ids`: int32, `scores`: float64, both by
    cell; `unknown`: the id; `unknown_score`: what an unknown code point adds; `longest`: the
    longest piece, in code points.
    """

    def __init__(self, table: Mapping[str, Any]) -> None:
        # Memory views: numpy takes twice as long for one element.
        self._parents, self._bases, self._ids, self._scores = (
            memoryview(table[name]) for name in ("parents", "bases", "ids", "scores"))
        self._heads = _Heads(memoryview(table["symbols"]), self._parents, self._bases,
                             self._scores)
        self._unknown: int = table["unknown"]
        self._unknown_score: float = table["unknown_score"]
        self.longest: int = table["longest"]

    def best(self, word: str) -> tuple[int, ...]:
        """The ids of the best path through a word."""
        count = len(word)
        path = Path(count)
        self.extend(path, self.heads(word), count)
        ids, end = [], count
        while end:
            cell = path.cells[end]
            number = self._ids[cell] if cell != _UNKNOWN else self._unknown
            if number == self._unknown:
                return tuple(self._fused(word, *self.trace(path, count)))
            ids.append(number)
            end = path.starts[end]
        return tuple(ids[::-1])

    def heads(self, text: str) -> list[tuple]:
        """What `extend` wants of each code point."""
        return [*map(self._heads.__getitem__, text)]

    def extend(self, path: Path, heads: list[tuple], stop: int) -> None:
        """Tries all pieces that begin in front of `stop`, from where the path stands."""
        parents, bases, piece_scores = self._parents, self._bases, self._scores
        scores, starts, cells, longest = path.scores, path.starts, path.cells, self.longest
        start = first = path.done
        symbols = [head[0] for head in heads[first:stop + longest]]
        for _, parent, base, score in heads[first:stop]:
            here, at = scores[start], start + 1
            if score is not None:
                total = here + score
                if total > scores[at]:
                    scores[at], starts[at], cells[at] = total, start, parent
            if parent != ROOT:
                for symbol in symbols[at - first:start - first + longest]:
                    cell = base + symbol
                    if parents[cell] != parent:
                        break
                    at += 1
                    parent, base = cell, bases[cell]
                    if base < 0:
                        base ^= ENDS
                        total = here + piece_scores[cell]
                        if total > scores[at]:
                            scores[at], starts[at], cells[at] = total, start, cell
            start += 1
            if score is None:
                total = here + self._unknown_score
                if total > scores[start]:
                    scores[start], starts[start], cells[start] = total, start - 1, _UNKNOWN
        path.done = stop

    def trace(self, path: Path, end: int) -> tuple[list[int], list[int]]:
        """(ids of the best way to `end`, each unknown code point one; where each begins, and
        the end)."""
        ids, bounds = [], [end]
        while end:
            cell = path.cells[end]
            ids.append(self._unknown if cell == _UNKNOWN else self._ids[cell])
            end = path.starts[end]
            bounds.append(end)
        return ids[::-1], bounds[::-1]

    def is_unknown(self, number: int) -> bool:
        """Whether it is the id of what is unknown."""
        return number == self._unknown

    def run_id(self, text: str) -> int:
        """The id of unknowns in a row, which may yet be a piece as a whole."""
        parent, base, cell = ROOT, self._bases[ROOT], ROOT
        for symbol, *_ in self.heads(text) if len(text) <= self.longest else ():
            cell = (base ^ ENDS if base < 0 else base) + symbol
            if self._parents[cell] != parent:
                return self._unknown
            parent, base = cell, self._bases[cell]
        return self._ids[cell] if cell != ROOT and base < 0 else self._unknown

    def _fused(self, word: str, ids: list[int], bounds: list[int]) -> list[int]:
        fused, run = [], None
        for number, start in zip(ids, bounds):
            if number == self._unknown:
                run = start if run is None else run
                continue
            if run is not None:
                fused.append(self.run_id(word[run:start]))
                run = None
            fused.append(number)
        if run is not None:
            fused.append(self.run_id(word[run:]))
        return fused


class Path:
    """The best way to each place of a text: its score, where its last piece begins, and that
    piece's cell. All pieces that begin in front of `done` were tried."""

    def __init__(self, count: int = 0) -> None:
        self.scores, self.starts, self.cells, self.done = [0.0], [0], [ROOT], 0
        self.grow(count)

    def grow(self, count: int) -> None:
        """Takes in so many places more."""
        self.scores += [_NOWHERE] * count
        self.starts += [0] * count
        self.cells += [_UNKNOWN] * count

    def certain(self) -> int:
        """The last place that the best way leads through whatever follows."""
        open_ends = {end for end in range(self.done, len(self.scores))
                     if self.scores[end] != _NOWHERE}
        for place in range(len(self.scores) - 1, -1, -1):
            if place in open_ends:
                if len(open_ends) == 1:
                    return place
                open_ends.remove(place)
                open_ends.add(self.starts[place])
        return 0

    def forget(self, place: int) -> None:
        """Makes `place`, that the best way leads through, the first one."""
        del self.scores[:place], self.cells[:place]
        self.starts = [start - place for start in self.starts[place:]]
        self.done -= place


class LongWord:
    """A word of any length, given in parts; its ids come as soon as they are certain."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces, self._path = pieces, Path()
        self._text, self._heads = "", []
        self._run = ""              # unknowns that may go on; no more of it than can be a piece
        self._next_look = UNCERTAIN

    def feed(self, text: str) -> list[int]:
        """Goes on in the word; ids that are certain now."""
        self._text += text
        self._heads += self._pieces.heads(text)
        self._path.grow(len(text))
        stop = len(self._text) - self._pieces.longest
        if stop <= self._path.done:
            return []
        self._pieces.extend(self._path, self._heads, stop)
        if self._path.done < self._next_look:
            return []
        place = self._path.certain()
        ids = self._take(place)
        self._path.forget(place)
        self._text, self._heads = self._text[place:], self._heads[place:]
        # Where nothing is certain for long, looking again and again would cost its square.
        self._next_look = max(UNCERTAIN, 2 * self._path.done)
        return ids

    def end(self) -> list[int]:
        """The ids left, at the word's end."""
        count = len(self._text)
        self._pieces.extend(self._path, self._heads, count)
        ids = self._take(count)
        return ids + [self._pieces.run_id(self._run)] if self._run else ids

    def _take(self, place: int) -> list[int]:
        """The ids up to a place; of unknowns that reach it none yet."""
        taken = []
        numbers, bounds = self._pieces.trace(self._path, place)
        for index, number in enumerate(numbers):
            if self._pieces.is_unknown(number):
                if len(self._run) <= self._pieces.longest:
                    self._run += self._text[bounds[index]:bounds[index + 1]]
                continue
            if self._run:
                taken.append(self._pieces.run_id(self._run))
                self._run = ""
            taken.append(number)
        return taken


class _Heads(dict):
    """Code point → (its symbol, its cell as a first one, the base there, its score alone); ROOT and
    0 if no piece begins with it, None if it is none alone."""

    def __init__(self, symbols: memoryview, parents: memoryview, bases: memoryview,
                 scores: memoryview) -> None:
        super().__init__()
        self._symbols, self._parents, self._bases, self._scores = symbols, parents, bases, scores

    def __missing__(self, letter: str) -> tuple[int, int, int, float | None]:
        code = ord(letter)
        symbol = self._symbols[code] if code < len(self._symbols) else 0
        cell = self._bases[ROOT] + symbol
        if symbol == 0 or self._parents[cell] != ROOT:
            head = symbol, ROOT, 0, None
        else:
            base = self._bases[cell]
            head = symbol, cell, base ^ ENDS if base < 0 else base, \
                self._scores[cell] if base < 0 else None
        if len(self) >= REMEMBERED:
            self.clear()
        self[letter] = head
        return head
