"""WordPiece against the reference's ids, itself read whole, and a slow truncation."""

import gzip
import json
import random

import pytest

from loader.errors import CheckpointError
from loader.tokenizers.table import TokenizerFiles, compile_tokenizer, open_tokenizer
from tests.house import ROOT

ECHO = ROOT / "tests" / "fixtures" / "echo"
UNLIMITED = 1 << 30
CLS, SEP = "[CLS]", "[SEP]"


def folder_files(folder):
    def read(name):
        path = folder / name
        return json.loads(path.read_text("utf-8")) if path.exists() else None
    vocab = folder / "vocab.txt"
    return TokenizerFiles(read("tokenizer.json"), vocab.read_bytes() if vocab.exists() else None,
                          read("tokenizer_config.json") or {}, read("special_tokens_map.json")
                          or {})


def small(lower=True, side="right", extra=()):
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz0123456789",
              *("##" + c for c in "abcdefghijklmnopqrstuvwxyz0123456789"), *".,!?-[]<>", "中", "国",
              "the", "##ing", "ab", "##ab", *extra]
    return open_tokenizer(compile_tokenizer(TokenizerFiles(
        None, "\n".join(tokens).encode(), {"do_lower_case": lower, "truncation_side": side}, {})))


@pytest.mark.parametrize("kind,config", [
    ("wordpiece-uncased", {}), ("wordpiece-cased", {"do_lower_case": False})])
def test_wordpiece_every_stored_line_gives_the_references_ids(shared, kind, config):
    table = json.loads((shared / "tokenizers" / kind / "tokenizer.json").read_text("utf-8"))
    tokenizer = open_tokenizer(compile_tokenizer(TokenizerFiles(table, None, config, {})))
    differing = []
    path = shared / "tokenizers" / kind / "lines.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            entry = json.loads(line)
            for _ in range(2):          # the second time from the cache
                encoding = tokenizer.encode(entry["text"], None, UNLIMITED)
                if encoding.ids != entry["ids"]:
                    differing.append((entry["text"][:60], encoding.ids[:20], entry["ids"][:20]))
    assert not differing, (len(differing), differing[:3])


def test_wordpiece_every_golden_of_bert_checkpoints_has_its_ids(shared):
    manifest = json.loads((shared / "checkpoints" / "MANIFEST.json").read_text("utf-8"))
    folders = [row["folder"] for row in manifest["folders"]
               if row["family"] == "bert" and row["expected"] == "serve"
               and row["folder"] not in ("bert-added-flags", "bert-legacy-added-tokens")]
    seen = 0
    for name in [*folders, "minilm-trec6"]:
        folder = shared / "checkpoints" / name
        golden = json.loads((folder / "golden.json").read_text("utf-8"))
        tokenizer = open_tokenizer(compile_tokenizer(folder_files(folder)))
        for entry in golden["entries"]:
            got = tokenizer.encode(entry["text"], entry.get("text_pair"), golden["max_length"])
            assert got.ids == entry["input_ids"], (name, entry["id"])
            types = entry["token_type_ids"]
            assert [0] * got.split + [1] * (len(got.ids) - got.split) == types, (name, entry["id"])
            seen += 1
    assert seen > 1500


def random_text(rng, length):
    parts = ["the", "ab", "x", "[SEP]", "[sep]", "[", "]", "a" * 101, ".", "中国", "é", "e\u0301",
             "\u0301", " ", "  ", "\t", "\x00", "\u200b", "Σ", "İ", "ﬁ", "\U0001f600", "word-ing",
             "\u0f71\u0f72", "z" * 40, "a.b.c", "[CLS][PAD]"]
    return "".join(rng.choice(parts) + (" " if rng.random() < 0.5 else "") for _ in range(length))


@pytest.mark.parametrize("side", ["right", "left"])
def test_wordpiece_any_limit_gives_a_part_of_the_whole(side):
    rng = random.Random(11)
    tokenizer = small(side=side)
    for _ in range(400):
        text = random_text(rng, rng.choice((0, 3, 40, 400)))
        whole = tokenizer.encode(text, None, UNLIMITED).ids
        limit = rng.randint(2, 60)
        got = tokenizer.encode(text, None, limit)
        inner = whole[1:-1]
        kept = (inner[-(limit - 2):] if limit > 2 else []) if side == "left" else inner[:limit - 2]
        wanted = whole if len(whole) <= limit else [whole[0], *kept, whole[-1]]
        assert got.ids == wanted and got.truncated == (len(whole) > limit)
        assert got.split == len(got.ids)


def slow_fit(first, second, budget):
    """reference.md's rule on whole lengths."""
    n1, n2 = sorted((first, second))
    if n1 + n2 > budget:
        n2 = n1 if n1 > budget else max(n1, budget - n1)
        if n1 + n2 > budget:
            n1 = budget // 2
            n2 = n1 + budget % 2
    return (n2, n1) if first > second else (n1, n2)


@pytest.mark.parametrize("side", ["right", "left"])
def test_wordpiece_pairs_are_cut_as_longest_first(side):
    rng = random.Random(12)
    tokenizer = small(side=side)
    for _ in range(600):
        text, pair = (random_text(rng, rng.choice((0, 2, 9, 30))) for _ in range(2))
        pair = pair or "x"
        limit = rng.randint(3, 50)
        first = tokenizer.encode(text, None, UNLIMITED).ids[1:-1]
        second = tokenizer.encode(pair, None, UNLIMITED).ids[1:-1]
        lengths = slow_fit(len(first), len(second), limit - 3)
        if side == "left":
            kept = [ids[len(ids) - n:] for ids, n in zip((first, second), lengths)]
        else:
            kept = [ids[:n] for ids, n in zip((first, second), lengths)]
        got = tokenizer.encode(text, pair, limit)
        assert got.ids == [2, *kept[0], 3, *kept[1], 3]
        assert got.split == len(kept[0]) + 2


def test_wordpiece_long_run_without_spaces_equals_its_parts():
    """Cut into pieces or not, the ids are those of the characters' words."""
    tokenizer = small()
    for run, count in (("中", 9000), (".", 20_000), ("[SEP]", 9000), ("ab.", 20_000),
                       ("a" * 150 + ".", 300), ("e\u0301.", 9000), (".\u0301", 9000)):
        ids = tokenizer.encode(run * count, None, UNLIMITED).ids[1:-1]
        assert ids == tokenizer.encode(run, None, UNLIMITED).ids[1:-1] * count, run
    assert tokenizer.encode("a" * 3_000_000, None, UNLIMITED).ids == [2, 1, 3]


def test_wordpiece_word_longer_than_the_limit_is_unknown_even_if_listed():
    tokenizer = small(extra=["q" * 101])
    assert tokenizer.encode("q" * 101, None, 64).ids == [2, 1, 3]
    assert tokenizer.encode("q" * 100, None, 256).ids[1:3] == tokenizer.encode(
        "qq", None, 64).ids[1:3]


def test_wordpiece_echo_fixture_opens_and_knows_its_traps():
    tokenizer = open_tokenizer(compile_tokenizer(folder_files(ECHO)))
    assert len(tokenizer.encode("see trapexit now", None, 64).ids) > 3


def template(first):
    """BERT's template with another token in the first place."""
    def put(token):
        return {"SpecialToken": {"id": token, "type_id": 0}}

    def text(name):
        return {"Sequence": {"id": name, "type_id": 0}}

    single = [put(first), text("A"), put("[SEP]")]
    return {"type": "TemplateProcessing", "single": single,
            "pair": [*single, text("B"), put("[SEP]")],
            "special_tokens": {"[CLS]": {}, "[SEP]": {}}}


@pytest.mark.parametrize("part", [None, {"type": "BertProcessing"}, template("[CLS]")])
def test_compile_known_post_processor_is_read(part):
    table = {"model": {"type": "WordPiece", "vocab": {"[UNK]": 1, "[CLS]": 2, "[SEP]": 3}},
             "normalizer": {"type": "BertNormalizer"},
             "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": part}
    assert compile_tokenizer(TokenizerFiles(table, None, {}, {}))


@pytest.mark.parametrize("change,words", [
    (lambda t, c: t["model"].update(type="BPE"), "BPE"),
    (lambda t, c: t["model"].update(vocab=[]), "vocab"),
    (lambda t, c: t["model"]["vocab"].update(a="1"), "id"),
    (lambda t, c: t["model"]["vocab"].update(a=0), "share the id"),
    (lambda t, c: t["model"]["vocab"].pop("[CLS]"), "cls_token"),
    (lambda t, c: t.update(normalizer={"type": "NFC"}), "NFC"),
    (lambda t, c: t.update(pre_tokenizer=None), "pre_tokenizer"),
    (lambda t, c: t.update(added_tokens=[{"id": 9, "content": "<x>"}]), "<x>"),
    (lambda t, c: t.update(added_tokens=[{"id": 2, "content": "[CLS]", "single_word": True}]),
     "single_word"),
    (lambda t, c: t.update(added_tokens=[{"id": 1, "content": "[CLS]"}]), "as an added token"),
    (lambda t, c: t.update(added_tokens=["x"]), "added_tokens"),
    (lambda t, c: c.update(truncation_side="up"), "truncation_side"),
    (lambda t, c: c.update(do_lower_case="yes"), "do_lower_case"),
    (lambda t, c: c.update(tokenizer_class="GPT2Tokenizer"), "GPT2Tokenizer"),
    (lambda t, c: c.update(cls_token=7), "cls_token"),
    (lambda t, c: t.pop("model"), "model"),
    (lambda t, c: t["model"].update(max_input_chars_per_word=0), "max_input_chars_per_word"),
    (lambda t, c: t["model"].update(unk_token=None), "unk_token"),
    (lambda t, c: t.update(post_processor="x"), "post_processor is 'x'"),
    (lambda t, c: t.update(post_processor={"type": "Dream"}), "post_processor is 'Dream'"),
    (lambda t, c: t.update(post_processor={"type": "TemplateProcessing"}), "single template"),
    (lambda t, c: t.update(post_processor=template("[BOS]")), "single template"),
    (lambda t, c: t.update(post_processor={**template("[CLS]"), "pair": [7]}), "pair template"),
    (lambda t, c: t.update(post_processor={**template("[CLS]"), "special_tokens": []}),
     "single template"),
])
def test_compile_unusable_tokenizer_is_refused_in_words(change, words):
    table = {"model": {"type": "WordPiece", "unk_token": "[UNK]", "vocab": {
        "[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "a": 4}},
        "normalizer": {"type": "BertNormalizer"}, "pre_tokenizer": {"type": "BertPreTokenizer"}}
    config = {}
    compile_tokenizer(TokenizerFiles(table, None, config, {}))
    change(table, config)
    with pytest.raises(CheckpointError, match=words):
        compile_tokenizer(TokenizerFiles(table, None, config, {}))
