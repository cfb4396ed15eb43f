"""Byte-level BPE against the reference's ids, against slow merges of our own, cut and in parts."""

import gzip
import json
import random

import pytest

from loader.checkpoint import Folder
from loader.tokenizer_files import read_tokenizer
from loader.tokenizers import around_added, bpe_merges, bpe_words
from loader.tokenizers.bpe_merges import Merges, merge_table
from loader.tokenizers.bpe_words import WordCutter
from loader.tokenizers.table import TokenizerFiles, compile_tokenizer, open_tokenizer
from tests.tiny_bpe import FILE_CLASS, tiny_table

UNLIMITED = 1 << 30
KINDS = ("bpe-gpt2", "bpe-llama3", "bpe-modernbert")


def opened(table, **config):
    return open_tokenizer(compile_tokenizer(TokenizerFiles(table, None, config, {})))


def stored(shared, kind, **config):
    """A stored kind's tokeniser and its lines as (text, ids)."""
    folder = shared / "tokenizers" / kind
    table = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    with gzip.open(folder / "lines.jsonl.gz", "rt", encoding="utf-8") as lines:
        entries = [(entry["text"], entry["ids"]) for entry in map(json.loads, lines)]
    return opened(table, tokenizer_class=FILE_CLASS, **config), entries


@pytest.mark.parametrize("kind", KINDS)
def test_bpe_every_stored_line_has_the_references_ids_from_both_ends(shared, kind):
    tokenizer, entries = stored(shared, kind)
    left, _ = stored(shared, kind, truncation_side="left")
    assert len(entries) > 1500
    for text, ids in entries:
        for one in (tokenizer, tokenizer, left):    # the second time from the cache
            assert one.encode(text, None, UNLIMITED).ids == ids, text


@pytest.mark.parametrize("kind", KINDS)
def test_bpe_long_text_read_in_parts_has_the_ids_of_the_whole(shared, kind, monkeypatch):
    for module, name, value in ((around_added, "WHOLE_CHARACTERS", 50), (bpe_words, "WINDOW", 30),
                                (bpe_merges, "STRETCH", 16), (bpe_merges, "TAIL", 4)):
        monkeypatch.setattr(module, name, value)
    tokenizer, entries = stored(shared, kind)
    left, _ = stored(shared, kind, truncation_side="left")
    rng = random.Random(3)
    for _ in range(60):
        text = "".join(rng.choice(entries)[0] for _ in range(3))
        ids = tokenizer.ids(text)
        assert [one for part in tokenizer.parts(text) for one in part] == ids, text
        assert [one for part in left.parts(text) for one in part] == ids[::-1], text


def test_bpe_every_golden_has_its_ids_and_types(shared):
    folders = [folder for folder in sorted((shared / "checkpoints").iterdir())
               if folder.name.startswith(("roberta", "modernbert", "ce-roberta"))]
    assert len(folders) == 12
    for folder in folders:
        with Folder(str(folder)) as files:
            tokenizer = open_tokenizer(compile_tokenizer(read_tokenizer(files)[0]))
        golden = json.loads((folder / "golden.json").read_text("utf-8"))
        for entry in golden["entries"]:
            encoding = tokenizer.encode(entry["text"], entry.get("text_pair"),
                                        golden["max_length"])
            where = (folder.name, entry["id"])
            assert encoding.ids == entry["input_ids"], where
            if folder.name.startswith(("roberta", "ce-roberta")):
                assert encoding.split == len(encoding.ids), where


GPT2_WORDS = [
    ("it's IT'S I'll", ["it", "'s", " IT", "'", "S", " I", "'ll"]),
    ("a  b\n\n c ", ["a", " ", " b", "\n\n", " c", " "]),
    ("a1234!? é²x", ["a", "1234", "!?", " é", "²", "x"]),
    ("  \t a", ["  \t", " a"]),
    ("a\n\nb", ["a", "\n", "\n", "b"]),
    ("a\x1cb\x85 \u3000c", ["a", "\x1c", "b", "\x85 ", "\u3000", "c"]),
    ("日本、東京 ｘ", ["日本", "、", "東京", " ｘ"]),
    ("e\u0301a", ["e", "\u0301", "a"]),
]
LLAMA3_WORDS = [
    ("it'S I'Ll 'ſa", ["it", "'S", " I", "'Ll", " '", "ſa"]),
    ("x'ſ", ["x", "'ſ"]),
    ("12345 !a\n.\r\nb \n  c", ["123", "45", " !", "a", "\n", ".\r\n", "b", " \n", " ", " c"]),
    ("\tabc (def", ["\tabc", " (", "def"]),
    ("a  ", ["a", "  "]),
]


@pytest.mark.parametrize("pattern,text,words", [
    *(("gpt2", *case) for case in GPT2_WORDS), *(("llama3", *case) for case in LLAMA3_WORDS)])
def test_bpe_pattern_cuts_words(pattern, text, words):
    assert WordCutter(pattern).cut(text) == words


@pytest.mark.parametrize("pattern", ["gpt2", "llama3"])
def test_bpe_words_read_in_windows_are_those_of_the_whole(pattern, monkeypatch):
    monkeypatch.setattr(bpe_words, "WINDOW", 4)
    cutter, rng = WordCutter(pattern), random.Random(5)
    letters = ["a", "l", "'", "'ll", "1", "12", ".", " ", "  ", "\n", "\r\n", "é", "\u3000", "、"]
    for _ in range(3000):
        text = "".join(rng.choices(letters, k=rng.randint(0, 20)))
        assert [word for words in cutter.read(text) for word in words] == cutter.cut(text), text


def slow_pieces(word, ranks):
    """One merge after the other: the lowest rank, of equals the leftmost."""
    pieces = list(word)
    while True:
        places = [(ranks[pair], at) for at, pair in enumerate(zip(pieces, pieces[1:]))
                  if pair in ranks]
        if not places:
            return pieces
        _, at = min(places)
        pieces[at:at + 2] = ["".join(pieces[at:at + 2])]


def random_merges(rng, is_sound):
    """(merges, ranks by pair) over three letters; sound ones make each token of earlier ones, in
    one way."""
    tokens, ranks = ["a", "b", "c"], {}
    for _ in range(rng.randint(1, 25)):
        left, right = rng.choice(tokens), rng.choice(tokens)
        if (left, right) in ranks or is_sound and left + right in tokens:
            continue
        if left + right not in tokens:
            tokens.append(left + right)
        ranks[left, right] = len(ranks)
    if not is_sound:
        pairs = list(ranks)
        rng.shuffle(pairs)
        ranks = {pair: rank for rank, pair in enumerate(pairs)}
    vocabulary = {token: number for number, token in enumerate(tokens)}
    return Merges(vocabulary, *merge_table(vocabulary, list(ranks))), ranks


@pytest.mark.parametrize("is_sound", [True, False])
def test_bpe_pieces_are_those_of_slow_merges_whole_and_in_stretches(is_sound, monkeypatch):
    monkeypatch.setattr(bpe_merges, "STRETCH", 12)
    monkeypatch.setattr(bpe_merges, "TAIL", 2)
    rng, stretches = random.Random(11), 0
    for _ in range(400):
        merges, ranks = random_merges(rng, is_sound)
        for _ in range(6):
            letters = rng.choice(["a", "ab", "abc"])
            word = "".join(rng.choices(letters, k=rng.randint(1, 90)))
            if rng.random() < .3:
                word = word[:5] * 15
            wanted = slow_pieces(word, ranks)
            assert merges.pieces(word) == wanted, (word, ranks)
            parts = list(merges.read(word))
            assert [piece for part in parts for piece in part] == wanted, (word, ranks)
            stretches += sum(map(bool, parts)) > 1
    assert stretches > 800


def test_bpe_prefix_space_is_put_in_front_of_every_rest_that_has_none():
    table = tiny_table(added=["<m>"])
    tokenizer = opened(table, tokenizer_class="RobertaTokenizer", add_prefix_space=True)
    space, a, mark = (table["model"]["vocab"][token] for token in ("Ġ", "a", "<m>"))
    for text, ids in (("a", [space, a]), (" a", [space, a]), ("a<m>a", [space, a, mark, space, a]),
                      ("<m> a", [mark, space, a]), ("", [])):
        assert tokenizer.ids(text) == ids


def test_bpe_whole_word_in_the_vocabulary_is_taken_as_it_is_only_if_merges_are_ignored():
    table = tiny_table(tokens=["ab", "abc"], merges=["b c"], more=["bc"])
    vocab = table["model"]["vocab"]
    plain = opened(table, tokenizer_class=FILE_CLASS)
    table["model"]["ignore_merges"] = True
    taking = opened(table, tokenizer_class=FILE_CLASS)
    assert plain.ids("abc") == [vocab["a"], vocab["bc"]]
    assert taking.ids("abc") == [vocab["abc"]]
    assert taking.ids("abcb") == [vocab["a"], vocab["bc"], vocab["b"]]


def test_bpe_composes_before_it_looks_for_normalised_tokens():
    table = tiny_table(added=["éa"], normalizer={"type": "NFC"})
    table["added_tokens"][-1]["normalized"] = True
    tokenizer = opened(table, tokenizer_class=FILE_CLASS)
    assert tokenizer.ids("be\u0301a") == [table["model"]["vocab"]["b"],
                                          table["model"]["vocab"]["éa"]]


def test_bpe_text_composed_in_steps_is_as_composed_whole(monkeypatch):
    whole = opened(tiny_table(normalizer={"type": "NFC"}), tokenizer_class=FILE_CLASS)
    rng = random.Random(9)
    letters = ["a", "e", "\u0301", "\u0323", "\u1112", "\u1161", "\u11ab", "한", "하", "か", "\u3099",
               "\u0928", "\u093c", "\u09c7", "\u09be", " ", "日", "\U0001f600", "\u0344", "Å"]
    texts = ["".join(rng.choices(letters, k=rng.randint(1, 30))) for _ in range(2000)]
    wanted = list(map(whole.ids, texts))
    monkeypatch.setattr(around_added, "NORMALIZED", 3)
    for text, ids in zip(texts, wanted):
        assert [one for part in whole.parts(text) for one in part] == ids, text
