"""WordPiece against the reference's ids, against a slow one of our own, and cut at any limit."""

import gzip
import hashlib
import json
import random

import pytest

from loader.checkpoint import Folder
from loader.tokenizer_files import read_tokenizer
from loader.tokenizers import bert_words
from loader.tokenizers.bert_normalizer import Casing
from loader.tokenizers.encoding import share
from loader.tokenizers.table import TokenizerFiles, compile_tokenizer, open_tokenizer
from tests import slow_wordpiece
from tests.house import ROOT

FIXTURE = ROOT / "tests" / "fixtures" / "wordpiece"
VOCABULARY = {token: number for number, token in enumerate(
    (FIXTURE / "vocab.txt").read_text("utf-8").removesuffix("\n").split("\n"))}
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
UNLIMITED = 1 << 30
CASINGS = [(lower, strip, split) for lower in (True, False) for strip in (None, True, False)
           for split in (True, False)]


def small(casing=(True, None, True), side="right"):
    """The fixture's vocabulary under settings as tokenizer_config.json gives them."""
    lower, strip, split = casing
    return open_tokenizer(compile_tokenizer(TokenizerFiles(
        None, (FIXTURE / "vocab.txt").read_bytes(),
        {"do_lower_case": lower, "strip_accents": strip, "tokenize_chinese_chars": split,
         "truncation_side": side}, {})))


def resolved(casing):
    lower, strip, split = casing
    return Casing(lower, lower if strip is None else strip, split)


def folder_files(folder):
    def read(name):
        path = folder / name
        return json.loads(path.read_text("utf-8")) if path.exists() else None
    vocab = folder / "vocab.txt"
    return TokenizerFiles(read("tokenizer.json"), vocab.read_bytes() if vocab.exists() else None,
                          read("tokenizer_config.json") or {}, read("special_tokens_map.json")
                          or {})


def differing(tokenizer, entries):
    """What is not as the reference has it, asked twice: the second time from the cache."""
    return [(text[:60], got[:20], ids[:20]) for text, ids in entries for _ in range(2)
            if (got := tokenizer.encode(text, None, UNLIMITED).ids) != ids]


def test_wordpiece_committed_lines_have_the_references_ids_from_both_ends():
    lines = (FIXTURE / "lines.jsonl").read_text("utf-8").split("\n")[1:-1]
    by_casing = {}
    for entry in map(json.loads, lines):
        for casing, ids in entry["ids"]:
            by_casing.setdefault(tuple(casing), []).append((entry["text"], [2, *ids, 3]))
    assert len(by_casing) == 6 and len(lines) > 200
    for casing, entries in by_casing.items():
        for side in ("right", "left"):
            assert not differing(small(casing, side), entries), (casing, side)


@pytest.mark.parametrize("kind,config", [
    ("wordpiece-uncased", {}), ("wordpiece-cased", {"do_lower_case": False})])
def test_wordpiece_every_stored_line_has_the_references_ids(shared, kind, config):
    folder = shared / "tokenizers" / kind
    table = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    tokenizer = open_tokenizer(compile_tokenizer(TokenizerFiles(table, None, config, {})))
    with gzip.open(folder / "lines.jsonl.gz", "rt", encoding="utf-8") as lines:
        entries = [(entry["text"], entry["ids"]) for entry in map(json.loads, lines)]
    assert len(entries) > 1500
    assert not differing(tokenizer, entries)


def test_wordpiece_every_golden_has_its_ids_and_types(shared):
    manifest = json.loads((shared / "checkpoints" / "MANIFEST.json").read_text("utf-8"))
    names = [row["folder"] for row in manifest["folders"] if row["expected"] == "serve"
             and row["family"] in ("bert", "distilbert", "electra", "mpnet")]
    seen = 0
    for name in [*names, "minilm-trec6"]:
        golden = json.loads((shared / "checkpoints" / name / "golden.json").read_text("utf-8"))
        with Folder(str(shared / "checkpoints" / name)) as folder:
            tokenizer = open_tokenizer(compile_tokenizer(read_tokenizer(folder)[0]))
        for entry in golden["entries"]:
            got = tokenizer.encode(entry["text"], entry.get("text_pair"), golden["max_length"])
            assert got.ids == entry["input_ids"], (name, entry["id"])
            types = [0] * got.split + [1] * (len(got.ids) - got.split)
            # Some send none: then their models know of none, or of the first only.
            assert types == entry.get("token_type_ids", types if name == "distilbert" else
                                      [0] * len(types)), (name, entry["id"])
            seen += 1
    assert seen > 1700


ODD = [*SPECIALS, "[sep]", "[", "]", "[[SEP]]", "[SE", "P]", "##", "hello", "running", "a" * 101,
       "x" * 100, ".", "中国", "é", "e\u0301", "\u0301", " ", "  ", "\t", "\n", "\x00", "\u200b", "Σ",
       "İ", "ﬁ", "\U0001f600", "word-ing", "\u0f71\u0f72", "z" * 40, "a.b.c", "[CLS][PAD]",
       "\u034f", "\u302e", "\u302f", "\u0316", "\U0001d165", "\u2260", "\u037e", "\u1fef", "한국",
       "\u07fd", "\u1ac1", "\x1c", "\x85", "\u00a0", "\u3000", "\U0002b830", "\U0002b920", "\ufffd",
       "ß", "\u034f" * 120, "\u0301\u034f\u0301" * 40]
TABLES = (slow_wordpiece.CLEANED, slow_wordpiece.SPACES, slow_wordpiece.ACCENTS,
          slow_wordpiece.PUNCTUATION, slow_wordpiece.INDIVISIBLE, slow_wordpiece.IDEOGRAPHS)
POOLS = [sorted(pool) for pool in TABLES]


def random_text(rng, length):
    def part():
        chance = rng.random()
        if chance < 0.6:
            return rng.choice(ODD)
        if chance < 0.8:
            return rng.choice(rng.choice(POOLS))
        return rng.choice("abcdefghijkl ") * rng.choice((1, 1, 1, 3))
    return "".join(part() + (" " if rng.random() < 0.3 else "") for _ in range(length))


@pytest.mark.parametrize("casing", CASINGS)
def test_wordpiece_random_texts_are_as_the_slow_one_says(casing):
    rng = random.Random(str(casing))
    tokenizers = small(casing), small(casing, "left")
    for _ in range(150):
        text = random_text(rng, rng.choice((1, 2, 5, 30)))
        wanted = slow_wordpiece.ids(text, VOCABULARY, resolved(casing), SPECIALS)
        for tokenizer in tokenizers:
            assert tokenizer.encode(text, None, UNLIMITED).ids == [2, *wanted, 3], ascii(text)


def test_wordpiece_every_code_point_gives_the_references_words():
    """Between marks that NFD moves, and in front of one; the planes left out hold nothing."""
    golden = json.loads((FIXTURE / "code_points.json").read_text("utf-8"))
    for casing, digests in golden["digests"]:
        for block, digest in digests.items():
            codes = range(int(block, 16), int(block, 16) + golden["block"])
            text = " ".join(golden["text"].format(chr(code)) for code in codes)
            words = bert_words.words(text, resolved(casing))
            assert hashlib.sha256(" ".join(words).encode()).hexdigest()[:8] == digest, (
                f"of U+{block} to U+{codes[-1]:X} one is not as the reference has it", casing)


def long_text(rng, side):
    """Longer than what is tokenised whole, now dense, now sparse, now without a space."""
    parts = []
    while sum(map(len, parts)) < 9000:
        parts.append(rng.choice((
            lambda: random_text(rng, 200), lambda: " " * rng.randrange(6000),
            lambda: "a\u0301" * rng.randrange(6000), lambda: "." * rng.randrange(3000),
            lambda: "\u200b \u0301" * rng.randrange(2000), lambda: "[SEP]" * rng.randrange(900),
            lambda: "hello running " * rng.randrange(300), lambda: "中" * rng.randrange(1500)))())
    return "".join(parts[::-1] if side == "left" else parts)


@pytest.mark.parametrize("side", ["right", "left"])
def test_wordpiece_any_limit_gives_a_part_of_the_whole(side):
    rng = random.Random(11)
    casing = (True, None, True)
    tokenizer = small(casing, side)
    for number in range(60):
        text = long_text(rng, side) if number % 2 else random_text(rng, rng.choice((0, 3, 400)))
        whole = slow_wordpiece.ids(text, VOCABULARY, resolved(casing), SPECIALS)
        for limit in (2, 3, rng.randrange(4, 60), rng.randrange(60, 3000), UNLIMITED):
            got = tokenizer.encode(text, None, limit)
            assert got.ids == slow_wordpiece.encoded(whole, None, limit, side == "left")
            assert got.truncated == (len(whole) + 2 > limit) and got.split == len(got.ids)


@pytest.mark.parametrize("side", ["right", "left"])
def test_wordpiece_pairs_are_cut_as_longest_first(side):
    rng = random.Random(12)
    casing = (False, None, True)
    tokenizer = small(casing, side)

    def text():
        return long_text(rng, side) if rng.random() < 0.1 else random_text(
            rng, rng.choice((0, 2, 9, 30)))

    for _ in range(300):
        one, other = text(), text() or "x"
        first, second = (slow_wordpiece.ids(each, VOCABULARY, resolved(casing), SPECIALS)
                         for each in (one, other))
        limit = rng.choice((rng.randint(3, 50), len(first) + rng.randint(3, 9), 512,
                            max(3, min(len(first), len(second)) + rng.randint(0, 3))))
        got = tokenizer.encode(one, other, limit)
        wanted = slow_wordpiece.encoded(first, second, limit, side == "left")
        assert got.ids == wanted
        assert got.truncated == (len(first) + len(second) + 3 > limit)
        ours, _ = slow_wordpiece.share(len(first), len(second), limit - 3)
        assert got.split == ours + 2


def test_share_all_small_lengths_as_the_references_cases():
    for budget in range(24):
        for first in range(40):
            for second in range(40):
                assert share(first, second, budget) == slow_wordpiece.share(first, second, budget)


def test_wordpiece_empty_pair_is_none_and_an_empty_text_stays():
    tokenizer = small()
    assert tokenizer.encode("a", "", 64) == tokenizer.encode("a", None, 64)
    assert tokenizer.encode("", "a", 64).ids == [2, 3, VOCABULARY["a"], 3]
    assert tokenizer.encode("", " ", 64).ids == [2, 3, 3]
    assert tokenizer.encode("", None, 64).ids == [2, 3]


def test_wordpiece_steps_end_in_what_encode_gives():
    tokenizer = small()
    for text, pair, limit in (("hello", None, 64), ("a b " * 9000, "b " * 9000, 512)):
        *pauses, last = tokenizer.steps(text, pair, limit)
        assert set(pauses) <= {None} and last == tokenizer.encode(text, pair, limit)


def test_wordpiece_word_longer_than_the_limit_is_unknown_even_if_listed():
    vocabulary = (FIXTURE / "vocab.txt").read_bytes() + b"q" * 101 + b"\n" + b"q" * 100 + b"\n"
    tokenizer = open_tokenizer(compile_tokenizer(TokenizerFiles(None, vocabulary, {}, {})))
    assert tokenizer.encode("q" * 101, None, 64).ids == [2, 1, 3]
    assert tokenizer.encode("q" * 100, None, 64).ids == [2, len(VOCABULARY) + 1, 3]


@pytest.mark.parametrize("between", ["\u034f", "\u0301", "\u034f\u0301"])
def test_wordpiece_marks_of_a_long_word_keep_the_references_order(between):
    """U+034F keeps marks on its two sides apart, U+0301 does not; both are dropped."""
    tokenizer, text = small(), "a\u302e" + between * 200 + "\U0001d165"
    wanted = ["a", "##\u302e", "##\U0001d165"] if "\u034f" in between else [
        "a", "##\U0001d165", "##\u302e"]
    assert tokenizer.encode(text, None, 64).ids[1:-1] == [VOCABULARY[piece] for piece in wanted]


def test_wordpiece_lone_surrogate_is_a_letter_like_any_other():
    assert small().encode("a \ud800b \udfff", None, 64).ids == [2, VOCABULARY["a"], 1, 1, 3]
