"""What a text costs, in code points looked at and words made, never by the clock."""

import pytest

from loader.tokenizers import bert_normalizer, bert_words, chunk_cache, encoding, wordpiece
from tests.test_loader_tokenizers import VOCABULARY, small

LIMIT = 512
SIZE = 1 << 20


class Work:
    """Counts, by wrapping the places where texts are touched."""

    def __init__(self, monkeypatch):
        self.classified = self.formed = self.cached = self.words = 0

        def count(place, name, what, amount):
            real = getattr(place, name)

            def counted(owner, *values):
                setattr(self, what, getattr(self, what) + amount(*values))
                return real(owner, *values)
            monkeypatch.setattr(place, name, counted)

        count(bert_normalizer.Normalizer, "classes", "classified", len)
        count(bert_normalizer.Normalizer, "form", "formed", len)
        count(wordpiece.WordPiece, "ids", "cached", len)
        count(wordpiece.WordPiece, "_pieces", "words", lambda word: 1)


NORMAL = {
    "distinct words": " ".join(f"w{number}" for number in range(SIZE // 8)),
    "one word": "hello " * (SIZE // 6),
    "punctuation": "." * SIZE, "ideographs": "中" * SIZE, "specials": "[SEP]" * (SIZE // 5),
    "brackets": "[" * SIZE, "signs": "\u2260" * SIZE, "marked": "a\u0301." * (SIZE // 3),
    "other spaces": "ab\u00a0" * (SIZE // 3), "long words": ("ab" * 50 + " ") * (SIZE // 101),
}
# Nearly no tokens in it: read to the end, but only read.
SPARSE = {
    "spaces": " " * SIZE, "newlines": "\n" * SIZE, "nothings": "\x01" * SIZE,
    "spaces and nothings": " \x01" * (SIZE // 2), "zero width": "\u200b " * (SIZE // 2),
    "marks": "\u0301" * SIZE, "marked letter": "a" + "\u0301" * SIZE,
    "barriers": "a" + "\u034f\u0301" * (SIZE // 2), "letters": "a" * SIZE,
    "kept marks": "a" + "\u302e\u302f" * (SIZE // 2), "hangul": "한" * SIZE,
    "emoji": "\U0001f600" * SIZE, "far apart": ("a" + " " * 9000) * (SIZE // 9001),
}


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("name", NORMAL)
def test_wordpiece_reads_only_what_the_limit_can_hold(monkeypatch, name, side):
    tokenizer, work = small(side=side), Work(monkeypatch)
    got = tokenizer.encode(NORMAL[name], None, LIMIT)
    assert len(got.ids) == LIMIT and got.truncated
    assert work.classified + work.formed + work.cached < 200 * LIMIT
    assert work.words <= 2 * encoding.WHOLE_CHARACTERS


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("name", SPARSE)
def test_wordpiece_text_of_few_tokens_is_read_once_and_never_normalised_whole(
        monkeypatch, name, side):
    text = SPARSE[name]
    tokenizer, work = small(side=side), Work(monkeypatch)
    assert len(tokenizer.encode(text, None, LIMIT).ids) < LIMIT
    # Windows that grow fourfold look at a word's begin again: a third of it more, at the most
    # where the last one is a bit too small.
    assert work.classified <= 2.4 * len(text)
    assert work.formed < 100 * LIMIT and work.cached <= 2 * encoding.WHOLE_CHARACTERS
    assert work.words < 2 * LIMIT


def test_wordpiece_steps_are_small_between_words(monkeypatch):
    work = Work(monkeypatch)
    for text in (*NORMAL.values(), " " * 70_000 + "." * 70_000):
        # The odd token is the longer one's, so both are read to the end of the shorter.
        text = text[:90_000]
        before, words = work.classified, work.words
        for _ in small().steps(text, text + " a", LIMIT):
            assert work.classified - before <= \
                bert_words.EMPTY_WINDOW + 2 * encoding.WHOLE_CHARACTERS
            assert work.words - words <= encoding.WHOLE_CHARACTERS + 2
            before, words = work.classified, work.words


def test_wordpiece_word_with_a_letter_of_no_piece_is_not_sought(monkeypatch):
    sought = []

    class Watched(dict):
        def get(self, key, default=None):
            sought.append(key)
            return super().get(key, default)

    tokenizer = small()
    tokenizer._vocabulary = Watched(VOCABULARY)
    assert tokenizer.encode("ab" * 49 + "\u0416x", None, LIMIT).ids[1:-1] == tokenizer.encode(
        "ab" * 49 + "жx", None, LIMIT).ids[1:-1]
    sought.clear()
    assert tokenizer.encode("ab" * 49 + "\u0fff", None, LIMIT).ids == [2, 1, 3]
    assert len(sought) == 1
    sought.clear()
    tokenizer.encode("ab" * 50, None, LIMIT)
    assert len(sought) <= 1 + 2 * 50


def test_wordpiece_caches_stay_bounded(monkeypatch):
    monkeypatch.setattr(chunk_cache, "CACHED_CHUNKS", 100)
    monkeypatch.setattr(bert_normalizer, "REMEMBERED", 50)
    tokenizer = small()
    for number in range(1000):
        tokenizer.encode(f"w{number} {chr(0x4e00 + number)} " + "y" * 200, None, 64)
    chunks = tokenizer._chunks
    assert len(chunks) + len(chunks._older) <= 101
    assert max(map(len, chunks)) <= chunk_cache.CACHED_CHARACTERS
    assert len(tokenizer._reader._normalizer._forms) <= 50


def test_wordpiece_chunk_in_use_outlives_the_ones_that_fill_the_cache(monkeypatch):
    monkeypatch.setattr(chunk_cache, "CACHED_CHUNKS", 20)
    tokenizer, work = small(), Work(monkeypatch)
    tokenizer.encode("hello", None, 64)
    for number in range(100):
        work.words = 0
        tokenizer.encode(f"w{number} hello", None, 64)
        assert work.words <= 1          # the new one alone
