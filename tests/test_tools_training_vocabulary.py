"""The vocabulary learner: worked examples, order does not matter, every word can be spelled."""

import random
from collections import Counter

import pytest

from loader.tokenizers.bert_normalizer import Casing
from loader.tokenizers.bert_words import words
from tools.training.tokens import from_vocabulary
from tools.training.vocabulary import LONGEST_WORD, RAREST, SPECIALS, learn

LOW = ["low"] * 5 + ["lower"] * 2


def test_vocabulary_worked_example_merges_the_commonest_pair() -> None:
    assert learn(LOW, 11) == [*SPECIALS, "##e", "##o", "##r", "##w", "l", "##ow"]


def test_vocabulary_whole_words_come_next() -> None:
    assert learn(LOW, 100)[11:] == ["low", "##er", "lower"]


def test_vocabulary_token_spelled_in_two_ways_stands_once() -> None:
    learnt = learn(["aaaa"] * 4 + ["aaa"] * 5 + ["aa"] * 2, 100)
    assert len(learnt) == len(set(learnt)) and "aaaa" in learnt


def test_vocabulary_no_words_leaves_the_specials() -> None:
    assert learn([], 100) == list(SPECIALS)


def test_vocabulary_rare_character_makes_no_token() -> None:
    assert not any("é" in token for token in learn(["née", "nee", "nee"], 100))


def test_vocabulary_small_size_keeps_the_commonest_characters() -> None:
    assert learn(["z"] * 9 + ["a"] * 2, len(SPECIALS) + 1) == [*SPECIALS, "z"]


def test_vocabulary_word_that_wordpiece_never_splits_is_not_learnt_from() -> None:
    assert learn(["x" * (LONGEST_WORD + 1)] * 5, 100) == list(SPECIALS)


def random_words(rng: random.Random) -> list[str]:
    letters = "abcé中"[:rng.randint(1, 5)]
    return ["".join(rng.choices(letters, k=rng.randint(1, 7))) for _ in range(rng.randint(0, 80))]


@pytest.mark.parametrize("seed", range(40))
def test_vocabulary_order_of_words_does_not_matter(seed: int) -> None:
    rng = random.Random(seed)
    found = random_words(rng)
    size = rng.randint(5, 120)
    learnt = learn(found, size)
    rng.shuffle(found)
    assert learn(found, size) == learnt
    assert len(learnt) == len(set(learnt)) <= size
    assert learn(found, size + 20)[:len(learnt)] == learnt or size < 25


def plain_merges(found: list[str], count: int) -> list[str]:
    """The same by counting everything anew for each merge: slow and plain."""
    spelled = {word: [word[0], *("##" + mark for mark in word[1:])] for word in found}
    counts = Counter(found)
    known = {piece for pieces in spelled.values() for piece in pieces}
    merged: list[str] = []
    while len(merged) < count:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, pieces in spelled.items():
            for pair in zip(pieces, pieces[1:]):
                pairs[pair] += counts[word]
        if not pairs or max(pairs.values()) < RAREST:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        token = best[0] + best[1][2:]
        for word, pieces in spelled.items():
            at = 0
            while at < len(pieces) - 1:
                if (pieces[at], pieces[at + 1]) == best:
                    pieces[at:at + 2] = [token]
                at += 1
        if token not in known:
            known.add(token)
            merged.append(token)
    return merged


@pytest.mark.parametrize("seed", range(40))
def test_vocabulary_merges_equal_those_of_plain_counting(seed: int) -> None:
    found = random_words(random.Random(seed))
    alphabet = {mark for word in found for mark in [word[0], *("##" + m for m in word[1:])]}
    learnt = [token for token in learn(found, 60) if token not in alphabet | set(SPECIALS)]
    assert learnt == plain_merges(found, len(learnt))


@pytest.mark.parametrize("size", [40, 80, 400])
def test_vocabulary_our_tokenizer_spells_every_word_it_learnt_from(size: int) -> None:
    texts = ["Free entry! Win a prize, free free", "are you free to win an entry?"] * 3
    casing = Casing(True, True, True)
    listed = learn((word for text in texts for word in words(text, casing)), size)
    tokens = from_vocabulary("".join(f"{token}\n" for token in listed).encode(), True, 64)
    for row in tokens.encode(texts):
        assert tokens.unknown not in row and max(row) < tokens.size
