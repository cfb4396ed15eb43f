"""What a text costs byte-level BPE, in code points cut and bytes merged, never by the clock."""

import random

import pytest

from loader.tokenizers import bpe_merges, bpe_words, encoding
from loader.tokenizers.table import TokenizerFiles, compile_tokenizer, open_tokenizer
from tests.tiny_bpe import FILE_CLASS, tiny_table

LIMIT = 128
SIZE = 1 << 19
DOUBLED = 7     # the longest token of dashes has 2 ** DOUBLED


class Work:
    """Counts, by wrapping the places where texts are touched."""

    def __init__(self, monkeypatch):
        self.cut = self.merged = 0
        cut, pieces = bpe_words.WordCutter.cut, bpe_merges.Merges.pieces

        def counted_cut(cutter, text):
            self.cut += len(text)
            return cut(cutter, text)

        def counted_pieces(merges, word):
            self.merged += len(word)
            return pieces(merges, word)
        monkeypatch.setattr(bpe_words.WordCutter, "cut", counted_cut)
        monkeypatch.setattr(bpe_merges.Merges, "pieces", counted_pieces)


def doubling(composes=False, side="right"):
    """Tokens of two letters, and of 2, 4, 8 … dashes and a's."""
    sizes = [2 ** power for power in range(DOUBLED)]
    tokens = [letter * 2 * size for letter in "-a" for size in sizes] + ["ab", "ba", "cd"]
    merges = [[token[:len(token) // 2], token[len(token) // 2:]] for token in tokens]
    table = tiny_table(tokens=tokens, merges=merges,
                       normalizer={"type": "NFC"} if composes else None)
    config = {"tokenizer_class": FILE_CLASS, "truncation_side": side}
    return open_tokenizer(compile_tokenizer(TokenizerFiles(table, None, config, {})))


LETTERS = "".join(random.Random(1).choices("abcd", k=SIZE))
# As much of them is read as one window has, or one block between spaces.
MANY_WORDS = {
    "words": "ab cd " * (SIZE // 6), "marks apart": "a\u0301 " * (SIZE // 3),
    "punctuation": ".a" * (SIZE // 2), "kana": "あ、い。" * (SIZE // 4), "digits": "a1" * (SIZE // 2),
}
# The end of the first word has to be found; no more than the limit holds of it is merged.
ONE_WORD = {
    "letters": LETTERS, "dashes": "-" * SIZE, "a's": "a" * SIZE, "ab": "ab" * (SIZE // 2),
    "ideographs": "中" * (SIZE // 3), "marks": "\u0301" * (SIZE // 2), "spaces": " " * SIZE,
    "unordered": "a" + "\u0301\u0323" * (SIZE // 4), "lines": "\r\n" * (SIZE // 2),
}


@pytest.mark.parametrize("composes", [False, True])
@pytest.mark.parametrize("name", MANY_WORDS)
def test_bpe_reads_only_what_the_limit_can_hold(monkeypatch, name, composes):
    tokenizer, work = doubling(composes), Work(monkeypatch)
    got = tokenizer.encode(MANY_WORDS[name], None, LIMIT)
    assert len(got.ids) == LIMIT and got.truncated
    assert work.cut <= 2 * encoding.WHOLE_CHARACTERS
    assert work.merged <= encoding.WHOLE_CHARACTERS


@pytest.mark.parametrize("composes", [False, True])
@pytest.mark.parametrize("name", ONE_WORD)
def test_bpe_giant_word_is_found_once_and_merged_as_far_as_the_limit_can_hold(
        monkeypatch, name, composes):
    text = ONE_WORD[name]
    tokenizer, work = doubling(composes), Work(monkeypatch)
    got = tokenizer.encode(text, None, LIMIT)
    assert len(got.ids) == LIMIT and got.truncated
    # Windows that grow fourfold look at the begin again.
    assert work.cut <= 2.4 * len(text)
    longest = 2 ** DOUBLED if name in ("dashes", "a's") else 2
    assert work.merged <= 8 * longest * LIMIT + 4 * bpe_merges.LONGEST_STRETCH


@pytest.mark.parametrize("name", ["letters", "dashes"])
def test_bpe_steps_of_a_giant_word_are_small(monkeypatch, name):
    tokenizer, work = doubling(), Work(monkeypatch)
    largest = 0
    for _ in tokenizer.steps(ONE_WORD[name], None, LIMIT):
        largest, work.merged = max(largest, work.merged), 0
    assert 0 < largest <= bpe_merges.LONGEST_STRETCH


def test_bpe_left_side_of_many_words_is_not_read(monkeypatch):
    tokenizer, work = doubling(side="left"), Work(monkeypatch)
    assert len(tokenizer.encode("ab cd " * (SIZE // 6), None, LIMIT).ids) == LIMIT
    assert work.cut <= 2 * encoding.WHOLE_CHARACTERS
