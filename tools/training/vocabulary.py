"""A WordPiece vocabulary learnt from texts: merges of frequent neighbours, by word counts.

Schuster and Nakajima 2012 choose merges by likelihood; counting, as every current trainer does,
gives nearly the same pieces and is simple to repeat exactly. Ties go to the smaller pair, so the
result depends on the texts alone.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# A character seen less often than this is [UNK]: one vector could not be learnt from it.
RAREST_CHARACTER = 2


def learn(words: Iterable[str], size: int) -> list[str]:
    """At most `size` tokens: the specials, characters, then merges in the order they were made.

    Worked example: "low" × 5, "lower" × 2 and size for one merge: the pairs (l, ##o) and
    (##o, ##w) both count 7; (##o, ##w) is smaller, so "##ow" is made.
    """
    counts = Counter(words)
    spelled = {word: [word[0], *("##" + mark for mark in word[1:])] for word in counts}
    marks: Counter[str] = Counter()
    for word, count in counts.items():
        for mark in spelled[word]:
            marks[mark] += count
    alphabet = [mark for mark, count in marks.items() if count >= RAREST_CHARACTER]
    tokens = [*SPECIALS, *sorted(alphabet)][:size]
    tokens += _merges(counts, spelled, size - len(tokens), set(tokens))
    return tokens


def _merges(counts: Counter, spelled: dict[str, list[str]], wanted: int, known: set[str]
            ) -> list[str]:
    pairs: Counter[tuple[str, str]] = Counter()
    where: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for word, pieces in spelled.items():
        for pair in zip(pieces, pieces[1:]):
            pairs[pair] += counts[word]
            where[pair].add(word)
    queue = [(-count, pair) for pair, count in pairs.items()]
    heapq.heapify(queue)
    merged: list[str] = []
    while queue and len(merged) < wanted:
        count, pair = heapq.heappop(queue)
        if -count != pairs[pair]:
            continue                    # counted anew since, and queued anew
        if -count < 2:
            break
        token = pair[0] + pair[1].removeprefix("##")
        touched: set[tuple[str, str]] = set()
        for word in where.pop(pair):
            pieces = spelled[word]
            for old in zip(pieces, pieces[1:]):
                pairs[old] -= counts[word]
                touched.add(old)
            spelled[word] = pieces = _join(pieces, pair, token)
            for new in zip(pieces, pieces[1:]):
                pairs[new] += counts[word]
                where[new].add(word)
                touched.add(new)
        for other in touched:
            if pairs[other] > 0:
                heapq.heappush(queue, (-pairs[other], other))
        if token not in known:
            known.add(token)
            merged.append(token)
    return merged


def _join(pieces: list[str], pair: tuple[str, str], token: str) -> list[str]:
    joined, at = [], 0
    while at < len(pieces):
        if tuple(pieces[at:at + 2]) == pair:
            joined.append(token)
            at += 2
        else:
            joined.append(pieces[at])
            at += 1
    return joined
