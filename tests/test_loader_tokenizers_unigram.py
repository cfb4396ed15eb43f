"""Unigram against the reference's ids, against a slow one of our own, and cut at any limit."""

import gzip
import hashlib
import json
import random

import numpy
import pytest

from loader.errors import CheckpointError
from loader.tokenizers import unigram, unigram_normalizer, unigram_paths, unigram_reader
from loader.tokenizers.charsmap import Charsmap, read_charsmap
from loader.tokenizers.grapheme_clusters import CLUSTER
from loader.tokenizers.packed import pack_table, unpack_table
from loader.tokenizers.piece_trie import ENDS, ROOT, build_trie
from loader.tokenizers.table import TokenizerFiles, compile_tokenizer, open_tokenizer
from loader.tokenizers.unicode_forms import lower_case, normal_form, without_marks
from loader.tokenizers.unigram_paths import LongWord, Pieces
from tests import slow_unigram
from tests.house import ROOT as REPO
from tests.small_charsmap import build
from tests.test_loader_tokenizers import folder_files

UNLIMITED = 1 << 30
UNICODE = json.loads((REPO / "tests" / "fixtures" / "unigram" / "unicode.json").read_text("utf-8"))
CHARSMAP = {"type": "Precompiled", "precompiled_charsmap": build(
    {**UNICODE["replacements"], "\n": " ", "\t": " ", "\u3000": " ", "\x07": "", "Ａ": "A"})}
RUNS = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
BLANKS = {"type": "Replace", "pattern": {"Regex": "\\s{2,}|[\\n\\r\\t]"}, "content": " "}
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
OLD_METASPACE = {"type": "Metaspace", "replacement": "▁", "str_rep": "▁",
                 "add_prefix_space": True}
NO_PREFIX = {"type": "Metaspace", "replacement": "▁", "add_prefix_space": False,
             "prepend_scheme": "never"}


def sequence(*parts):
    key = "pretokenizers" if parts[-1]["type"] == "Metaspace" else "normalizers"
    return {"type": "Sequence", key: list(parts)}


SPLIT = {"type": "WhitespaceSplit"}
# What published checkpoints have, and some steps aside.
RULES = {
    "xlm-roberta": (CHARSMAP, sequence(SPLIT, OLD_METASPACE)),
    "bge": (sequence(CHARSMAP, RUNS), METASPACE),
    "deberta-v3": (sequence({"type": "Strip", "strip_left": True, "strip_right": True}, CHARSMAP,
                            RUNS), sequence(METASPACE)),
    "deberta-v5": (sequence(BLANKS, {"type": "NFC"},
                            {"type": "Strip", "strip_left": False, "strip_right": True}),
                   sequence(METASPACE)),
    "albert": (sequence({"type": "Replace", "pattern": {"String": "``"}, "content": '"'},
                        {"type": "Replace", "pattern": {"String": "''"}, "content": '"'},
                        {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"},
                        CHARSMAP), sequence(SPLIT, METASPACE)),
    "every space": (CHARSMAP, METASPACE), "no prefix": (sequence(CHARSMAP, RUNS), NO_PREFIX),
    "nothing": (None, sequence(SPLIT, NO_PREFIX)),
}
PIECES = [("<s>", 0), ("<pad>", 0), ("</s>", 0), ("<unk>", 0), ("▁", -2.5), ("a", -3), ("b", -3.25),
          ("ab", -6.25), ("▁a", -4), ("▁ab", -5), ("aa", -6), ("aaa", -9), ("aaaa", -12),
          ("e", -3), ("é", -4), ("▁the", -3.5), ("th", -5), ("t", -4), ("h", -4.5), ("he", -5),
          ("fi", -4), ("f", -6), ("i", -6), ("X", -5), ('"', -5), ("中", -6), ("中文", -7),
          ("<unk><unk>", -1), ("c", -3), ("cc", -100), ("▁▁", -9), (" ", -8), ("A", -5)]
ADDED = [("<s>", 0, {}), ("<pad>", 1, {}), ("</s>", 2, {}), ("<unk>", 3, {}),
         ("<mask>", len(PIECES), {"lstrip": True}), ("[R]", len(PIECES) + 1, {"rstrip": True})]
NORMALIZED = [("Afi", len(PIECES) + 2, {"normalized": True}),
              ("tab", len(PIECES) + 3, {"normalized": True, "single_word": True})]
SPACED = [("th e", len(PIECES) + 2, {}), ("b c", len(PIECES) + 3, {"normalized": True})]
FLAGS = dict.fromkeys(("normalized", "lstrip", "rstrip", "single_word"), False)
PROCESSOR = {"type": "TemplateProcessing",
             "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                        {"Sequence": {"id": "A", "type_id": 0}},
                        {"SpecialToken": {"id": "</s>", "type_id": 0}}],
             "pair": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                      {"Sequence": {"id": "A", "type_id": 0}},
                      {"SpecialToken": {"id": "</s>", "type_id": 0}},
                      {"SpecialToken": {"id": "</s>", "type_id": 0}},
                      {"Sequence": {"id": "B", "type_id": 0}},
                      {"SpecialToken": {"id": "</s>", "type_id": 0}}],
             "special_tokens": {token: {"id": token, "ids": [number], "tokens": [token]}
                                for token, number in (("<s>", 0), ("</s>", 2))}}


def small(rules="xlm-roberta", added=(), **changes):
    """A parsed tokenizer.json of a few pieces; `changes` are to its model."""
    normalizer, pre_tokenizer = RULES[rules]
    return {"normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": PROCESSOR,
            "added_tokens": [{**FLAGS, "content": content, "id": number, "special": not flags,
                              **flags} for content, number, flags in (*ADDED, *added)],
            "model": {"type": "Unigram", "unk_id": 3, "byte_fallback": False,
                      "vocab": [list(pair) for pair in PIECES], **changes}}


def opened(table, side="right"):
    return open_tokenizer(compile_tokenizer(TokenizerFiles(
        table, None, {"truncation_side": side}, {})))


def all_ways(tokenizer, text, side):
    """The ids of a text, as a whole and in parts."""
    parts = [number for part in tokenizer.parts(text) for number in part]
    return tokenizer.ids(text), parts[::-1] if side == "left" else parts


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("kind", ["unigram-xlmr", "unigram-bge", "unigram-deberta-v3"])
def test_unigram_every_stored_line_has_the_references_ids(shared, kind, side):
    folder = shared / "tokenizers" / kind
    tokenizer = opened(json.loads((folder / "tokenizer.json").read_text("utf-8")), side)
    with gzip.open(folder / "lines.jsonl.gz", "rt", encoding="utf-8") as lines:
        entries = [(entry["text"], entry["ids"]) for entry in map(json.loads, lines)]
    assert len(entries) > 1500
    for text, ids in entries:
        assert tokenizer.encode(text, None, UNLIMITED).ids == ids, ascii(text)
        for got in all_ways(tokenizer, text, side):     # and now from the cache
            assert got == ids[1:-1], ascii(text)


def test_unigram_every_golden_of_its_checkpoints_has_its_ids(shared):
    manifest = json.loads((shared / "checkpoints" / "MANIFEST.json").read_text("utf-8"))
    seen = 0
    for row in manifest["folders"]:
        folder = shared / "checkpoints" / row["folder"]
        if row["expected"] != "serve" or row["family"] not in (
                "xlm-roberta", "camembert", "albert", "deberta-v2"):
            continue
        golden = json.loads((folder / "golden.json").read_text("utf-8"))
        tokenizer = open_tokenizer(compile_tokenizer(folder_files(folder)))
        for entry in golden["entries"]:
            got = tokenizer.encode(entry["text"], entry.get("text_pair"), golden["max_length"])
            assert got.ids == entry["input_ids"], (row["folder"], entry["id"])
            types = entry.get("token_type_ids", [0] * len(got.ids))
            if row["truth"] == "AutoTokenizer":     # the other's model has no types
                assert [0] * got.split + [1] * (len(got.ids) - got.split) == types, (
                    row["folder"], entry["id"])
            seen += 1
    assert seen > 400


def test_charsmap_every_code_point_is_replaced_as_by_the_reference():
    charsmap = Charsmap(read_charsmap(build(UNICODE["replacements"])))
    check_digests("Precompiled", charsmap.apply, UNICODE["texts"]["Precompiled"])
    for text, wanted in UNICODE["cases"]:
        assert charsmap.apply(text) == wanted, ascii(text)


@pytest.mark.parametrize("name", ["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents"])
def test_unicode_forms_every_code_point_is_as_the_reference_has_it(name):
    form = {"Lowercase": lower_case, "StripAccents": without_marks}.get(
        name, lambda text: normal_form(name, text))
    check_digests(name, form, UNICODE["texts"]["forms"])


def check_digests(name, form, texts):
    for block, digest in UNICODE["digests"][name].items():
        codes = range(int(block, 16), int(block, 16) + UNICODE["block"])
        letters = [chr(code) for code in codes if not 0xD800 <= code < 0xE000]
        forms = "\n".join(form(text.format(letter)) for letter in letters for text in texts)
        assert hashlib.sha256(forms.encode()).hexdigest()[:8] == digest, (
            f"of U+{block} to U+{codes[-1]:X} one is not as the reference has it")


POOLS = [sorted(pool) for pool in (
    slow_unigram.EXTENDERS, slow_unigram.SPACING, slow_unigram.PREPENDED, slow_unigram.CONSONANTS,
    slow_unigram.LINKERS, slow_unigram.PICTOGRAPHS, slow_unigram.REGIONAL, slow_unigram.LEADING,
    slow_unigram.VOWELS, slow_unigram.TRAILING, slow_unigram.CONTROLS, "가각", slow_unigram.WHITE)]


def test_clusters_random_texts_are_cut_as_the_slow_rules_say():
    rng = random.Random(2)
    for _ in range(4000):
        text = "".join(rng.choice(rng.choice(POOLS)) if rng.random() < 0.7 else
                       rng.choice("ae\u0301\u200d\u094d\u0915\u200c")
                       for _ in range(rng.choice((2, 4, 9))))
        assert CLUSTER.findall(text) == slow_unigram.clusters(text), ascii(text)


ODD = ["``", "''", "`", "'", "ﬁ", "ﬁ\u0301", "e\u0301", "é", "\x07", "\u200b", "İ", "Σ", "가\u0301",
       "\uffa1\uffc2", "\u1161\u0301", "\u0316\u0301", "▁", "▁▁", "\u0600", "\u0600a", "©", "Ａ",
       "Afi", "tab", "tab's", "zz", "cc", "<unk>", "<unk><unk>", "<unk>z", "<mask>", "</s>", "[R]",
       "th e", "b c", "中文", "\u0915\u094d\u0915", "aaaaaaa", "\r\n", "x\u0301\u0302", "\u0301",
       "the", "the cat"]


def random_text(rng, length):
    def part():
        chance = rng.random()
        if chance < 0.3:
            return rng.choice(ODD)
        if chance < 0.4:
            return rng.choice(rng.choice(POOLS))
        return rng.choice("aabehtfi  ") if chance < 0.9 else rng.choice(POOLS[-1])
    runs = "".join(rng.choice(rng.choice(POOLS)) * rng.randint(5, 40) for _ in range(length == 12))
    end = rng.choice(("", "a", "©", "\u0915\u0301"))
    return "".join(part() for _ in range(length)) + runs + end


@pytest.mark.parametrize("added", [(), NORMALIZED, SPACED], ids=["plain", "normalized", "spaced"])
@pytest.mark.parametrize("rules", RULES)
def test_unigram_random_texts_are_as_the_slow_one_says(monkeypatch, rules, added):
    """With parts so small that every place where a text can be cut is."""
    for module in (unigram, unigram_normalizer, unigram_reader):
        monkeypatch.setattr(module, "WHOLE_CHARACTERS", 6)
    monkeypatch.setattr(unigram_paths, "UNCERTAIN", 4)
    rng, table = random.Random(rules), small(rules, added)
    tokenizers = [(opened(table, side), side) for side in ("right", "left")]
    for _ in range(120):
        text = random_text(rng, rng.choice((1, 3, 12, 30)))
        wanted = slow_unigram.ids(text, table)
        for tokenizer, side in tokenizers:
            assert all_ways(tokenizer, text, side) == (wanted, wanted), (side, ascii(text))


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("rules", ["xlm-roberta", "bge", "deberta-v5"])
def test_unigram_any_limit_gives_a_part_of_the_whole(rules, side):
    rng = random.Random(side)
    table = small(rules)
    tokenizer = opened(table, side)
    for number in range(12):
        text = random_text(rng, rng.choice((0, 3, 40))) * rng.choice((1, 1, 200))
        whole = tokenizer.ids(text)
        for limit in (2, 3, rng.randrange(4, 60), rng.randrange(60, 3000), UNLIMITED):
            got, kept = tokenizer.encode(text, None, limit), limit - 2
            cut = whole[max(0, len(whole) - kept):] if side == "left" else whole[:kept]
            assert got.ids == [0, *cut, 2] and got.truncated == (len(whole) > kept)


def random_pieces(rng, count):
    return sorted({"".join(rng.choice("ab中\U0001f600") for _ in range(rng.randint(1, 5)))
                   for _ in range(count)})


def test_trie_random_pieces_are_found_and_nothing_else():
    rng = random.Random(1)
    for count in (1, 2, 10, 200, 900):
        pieces = random_pieces(rng, count)
        trie = build_trie(pieces)
        symbols, parents, bases = (trie[key].tolist() for key in ("symbols", "parents", "bases"))
        ends = dict(zip(trie["cells"].tolist(), pieces))
        assert len(ends) == len(pieces)
        for _ in range(500):
            text, cell, found = "".join(rng.choice("ab中\U0001f600c") for _ in range(6)), ROOT, []
            for at, letter in enumerate(text):
                base = bases[cell] ^ ENDS if bases[cell] < 0 else bases[cell]
                code = ord(letter)
                following = base + (symbols[code] if code < len(symbols) else 0)
                if parents[following] != cell:
                    break
                cell = following
                if bases[cell] < 0:
                    found.append(text[:at + 1])
                    assert ends[cell] == text[:at + 1]
            assert found == [text[:at] for at in range(1, 7) if text[:at] in pieces]


@pytest.mark.parametrize("vocabulary", [
    [("a", -1.5), ("aa", -3.0)], [("aa", -1.0), ("aaa", -1.0), ("a", -50.0)],
    [("aa", -0.1), ("ab", -0.3), ("b", -1.1)], [("b", -1.0)], [("ab", -2.0), ("ba", -2.0)]])
def test_long_word_in_parts_has_the_ids_of_the_whole(monkeypatch, vocabulary):
    monkeypatch.setattr(unigram_paths, "UNCERTAIN", 16)
    table = small(vocab=[["<unk>", 0.0], *map(list, vocabulary)], unk_id=0)
    table["added_tokens"] = []
    table["post_processor"] = None
    rng = random.Random(6)
    model = table["model"]
    pieces = opened_pieces(model)
    for word in ("a" * 400, "ab" * 150, "b" * 200 + "z" * 99, "zab" * 90,
                 "".join(rng.choice("aab") for _ in range(300))):
        long_word, ids, at = LongWord(pieces), [], 0
        while at < len(word):
            size = rng.choice((1, 3, 50))
            ids += long_word.feed(word[at:at + size])
            at += size
        assert [*ids, *long_word.end()] == list(pieces.best(word)) == slow_unigram.best(word, model)


def opened_pieces(model):
    """The pieces of a model, compiled."""
    names, scores = zip(*model["vocab"])
    trie = build_trie(names)
    cells = trie.pop("cells")
    by_cell = numpy.zeros(len(trie["parents"]))
    by_cell[cells] = scores
    numbers = numpy.zeros(len(trie["parents"]), dtype=numpy.int32)
    numbers[cells] = range(len(names))
    return Pieces(unpack_table(pack_table({
        **trie, "ids": numbers, "scores": by_cell, "unknown": model["unk_id"],
        "unknown_score": min(scores) - 10, "longest": max(map(len, names))})))


def test_unigram_piece_given_twice_counts_as_the_last():
    table = small(vocab=[*map(list, PIECES), ["zz", -1], ["zz", -2.5], ["", -9]])
    table["added_tokens"] = table["added_tokens"][:4]
    assert opened(table).ids("zz") == [4, len(PIECES) + 1] == slow_unigram.ids("zz", table)


@pytest.mark.parametrize("config,sends", [
    ({}, True), ({"tokenizer_class": "AlbertTokenizer"}, False),
    ({"tokenizer_class": "DebertaV2Tokenizer"}, True),
    ({"tokenizer_class": "AlbertTokenizerFast", "model_input_names": ["token_type_ids"]}, True),
    ({"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": ["input_ids"]}, False)])
def test_unigram_second_text_has_type_1_where_types_are_sent(config, sends):
    table = small()
    pair = [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
            {"SpecialToken": {"id": "</s>", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}},
            {"SpecialToken": {"id": "</s>", "type_id": 1}}]
    table["post_processor"] = {**PROCESSOR, "pair": pair}
    tokenizer = open_tokenizer(compile_tokenizer(TokenizerFiles(table, None, config, {})))
    got = tokenizer.encode("a", "ab", 64)
    assert got.ids == [0, 8, 2, 9, 2] and got.split == (3 if sends else 5)


def test_unigram_scores_are_read_as_the_reference_reads_them():
    """As the `tokenizers` library for classes without rules of their own: "-15.382669448852539"
    becomes the next float64, which is found out where another sum comes close."""
    exact, read = -15.382669448852539, -15.38266944885254
    assert exact > read
    vocabulary = [["<unk>", 0.0], ["▁", 0.0], ["ab", exact], ["a", exact], ["b", 0.0]]
    table = small(vocab=vocabulary, unk_id=0)
    table["added_tokens"], table["pre_tokenizer"] = [], NO_PREFIX
    vocabulary[2][1] = read         # no digits of the library's are lost here
    table["post_processor"] = {**PROCESSOR, "special_tokens": {
        token: {"id": token, "ids": [number], "tokens": [token]}
        for token, number in (("<s>", 0), ("</s>", 1))}}
    vocabulary[0][0], vocabulary[1][0] = "<s>", "</s>"
    for name, ids in (("XLMRobertaTokenizer", [3, 4]), ("PreTrainedTokenizerFast", [2])):
        tokenizer = open_tokenizer(compile_tokenizer(TokenizerFiles(
            table, None, {"tokenizer_class": name}, {})))
        assert tokenizer.ids("ab") == ids


def test_packed_table_gives_back_values_and_arrays_without_copying():
    table = {"name": "ü\ud800", "numbers": numpy.arange(5, dtype=numpy.int32),
             "scores": numpy.array([0.5, -1e300]), "none": numpy.zeros(0, numpy.int32)}
    data = pack_table(table)
    got = unpack_table(data)
    assert got["name"] == table["name"] and list(got) and not got["numbers"].flags.writeable
    for key in ("numbers", "scores", "none"):
        assert got[key].dtype == table[key].dtype and got[key].tolist() == table[key].tolist()
        assert numpy.shares_memory(got[key], numpy.frombuffer(data, numpy.uint8)) \
            or not len(got[key])
