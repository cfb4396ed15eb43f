"""What a text costs Unigram, in code points normalised and places tried, never by the clock."""

import pytest

from loader.tokenizers import chunk_cache, unigram_normalizer, unigram_paths
from loader.tokenizers.encoding import WHOLE_CHARACTERS
from tests.test_loader_tokenizers_unigram import opened, small

LIMIT = 512
SIZE = 1 << 18


class Work:
    """Counts, by wrapping the places where texts are touched; the most of one step as well."""

    def __init__(self, monkeypatch):
        self.normalized = self.tried = self.looked = 0

        def count(place, name, what, amount):
            real = getattr(place, name)

            def counted(owner, *values):
                setattr(self, what, getattr(self, what) + amount(owner, *values))
                return real(owner, *values)
            monkeypatch.setattr(place, name, counted)

        count(unigram_normalizer.Normalizer, "form", "normalized", lambda _, part: len(part))
        count(unigram_paths.Pieces, "extend", "tried",
              lambda _, path, heads, stop: stop - path.done)
        count(unigram_paths.Path, "certain", "looked", lambda path: len(path.scores))

    def steps(self, tokenizer, text):
        """(the encoding, the most of each kind of work between two steps)."""
        most, encoding = [0, 0, 0], None
        before = self.normalized, self.tried, self.looked
        for encoding in tokenizer.steps(text, None, LIMIT):
            now = self.normalized, self.tried, self.looked
            most = [max(one, new - old) for one, new, old in zip(most, now, before)]
            before = now
        return encoding, most


DENSE = {
    "distinct words": " ".join(f"w{number}" for number in range(SIZE // 8)),
    "letters": "b" * SIZE, "tabs": "ab\t" * (SIZE // 3), "specials": "</s>" * (SIZE // 4),
    "marked": "a\u0301" * (SIZE // 2), "marks after spaces": "a \u0301" * (SIZE // 3),
    "ideographs": "中文" * (SIZE // 2), "letters behind a mark": "\u0301a" + "b" * SIZE,
}
# Nearly no tokens in it: read to the end, but only read.
SPARSE = {
    "spaces": " " * SIZE, "newlines": "\n" * SIZE, "nothings": "\x07" * SIZE,
    "spaces and nothings": " \x07" * (SIZE // 2), "unknown": "ж" * SIZE, "wide": "\u3000" * SIZE,
    "marks": "\u0301" * SIZE, "marked letter": "a" + "\u0301" * SIZE, "jamo": "\u1100" * SIZE,
    "flags": "\U0001f1e9" * SIZE, "prepended": "\u0600" * SIZE, "joined": "ж \u0301" * 9,
    "emoji": "\U0001f600\u200d" * (SIZE // 2), "syllables": "한" * SIZE,
}


@pytest.mark.parametrize("rules", ["xlm-roberta", "bge"])
@pytest.mark.parametrize("name", DENSE)
def test_unigram_reads_only_what_the_limit_can_hold(monkeypatch, name, rules):
    tokenizer, work = opened(small(rules)), Work(monkeypatch)
    got, most = work.steps(tokenizer, DENSE[name])
    assert len(got.ids) == LIMIT and got.truncated
    assert max(most) <= 3 * WHOLE_CHARACTERS
    assert work.normalized + work.tried < 12 * WHOLE_CHARACTERS


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("name", SPARSE)
def test_unigram_text_of_few_tokens_is_read_once_in_short_steps(monkeypatch, name, side):
    text = SPARSE[name]
    tokenizer, work = opened(small(), side), Work(monkeypatch)
    got, most = work.steps(tokenizer, text)
    assert len(got.ids) < LIMIT
    assert max(most) <= 3 * WHOLE_CHARACTERS
    assert work.normalized <= len(text) + 3 * WHOLE_CHARACTERS
    assert work.tried <= len(text) + 3 * WHOLE_CHARACTERS
    assert work.looked <= 4 * len(text) + WHOLE_CHARACTERS


def test_long_word_never_certain_is_looked_through_in_linear_time(monkeypatch):
    """Pairs of letters from the left or from the second on: which is better shows at the end."""
    vocabulary = [["<s>", 0], ["<pad>", 0], ["</s>", 0], ["<unk>", 0], ["aa", -1], ["a", -1000],
                  ["▁", -1]]
    table = small(vocab=vocabulary)
    table["added_tokens"] = table["added_tokens"][:4]
    tokenizer, work = opened(table), Work(monkeypatch)
    got = tokenizer.encode("a" * 50_001, None, 1 << 20)
    assert len(got.ids) == 2 + 1 + 25_001
    assert work.looked <= 4 * 50_001 and work.tried <= 50_002 + WHOLE_CHARACTERS


def test_unigram_caches_stay_bounded(monkeypatch):
    monkeypatch.setattr(chunk_cache, "CACHED_CHUNKS", 100)
    monkeypatch.setattr(unigram_paths, "REMEMBERED", 50)
    tokenizer = opened(small())
    for number in range(1000):
        tokenizer.encode(f"w{number} {chr(0x4e00 + number)} " + "y" * 200, None, 64)
    chunks = tokenizer._chunks
    assert len(chunks) + len(chunks._older) <= 101 and len(tokenizer._pieces._heads) <= 50
    assert max(map(len, chunks)) <= chunk_cache.CACHED_CHARACTERS
