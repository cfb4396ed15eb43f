"""A WordPiece vocabulary learnt from texts: merges of frequent neighbours, by word counts.

Schuster and Nakajima 2012 choose merges by likelihood; counting, as every current trainer does,
gives nearly the same pieces and is simple to repeat exactly. Ties go to the smaller pair, so the
result depends on the words alone, not on their order.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# A character or pair seen less often than this makes no token: one vector could not be learnt.
RAREST = 2
# WordPiece makes [UNK] of a longer word whatever the vocabulary holds.
LONGEST_WORD = 100


def learn(words: Iterable[str], size: int) -> list[str]:
    """At most `size` tokens: the specials, characters, then merges in the order they were made.

    Worked example: "low" × 5, "lower" × 2 and size for one merge: the pairs (##o, ##w) and
    (l, ##o) both count 7; "##o" is the smaller beginning, so "##ow" is made.
    """
    counts = Counter(word for word in words if 0 < len(word) <= LONGEST_WORD)
    spelled = {word: [word[0], *("##" + mark for mark in word[1:])] for word in counts}
    marks: Counter[str] = Counter()
    for word, count in counts.items():
        for mark in spelled[word]:
            marks[mark] += count
    common = sorted((mark for mark, count in marks.items() if count >= RAREST),
                    key=lambda mark: (-marks[mark], mark))
    alphabet = sorted(common[:max(0, size - len(SPECIALS))])
    tokens = [*SPECIALS, *alphabet]
    return tokens + _merges(counts, spelled, size - len(tokens), set(tokens))


def _merges(counts: Counter[str], spelled: dict[str, list[str]], wanted: int, known: set[str]
            ) -> list[str]:
    """Up to `wanted` new tokens; `spelled` (word → its pieces) is joined in place."""
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
            continue  # counted anew since, and queued anew
        if -count < RAREST:
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
        if token not in known:  # "ab" + "##c" and "a" + "##bc" spell the same one
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
