"""Which of a checkpoint's files decides what of a byte-level BPE tokeniser, and what is refused."""

import json

import pytest

from loader.checkpoint import Folder
from loader.errors import CheckpointError
from loader.tokenizer_files import check_ids, read_tokenizer
from loader.tokenizers.files import TokenizerFiles
from loader.tokenizers.table import compile_tokenizer, open_tokenizer
from tests.tiny_bpe import FILE_CLASS, tiny_table

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
ROBERTA = {"tokenizer_class": "RobertaTokenizer"}


def ids(text, table, config=None, **more):
    files = TokenizerFiles(table, None, config or {}, {}, **more)
    return open_tokenizer(compile_tokenizer(files)).encode(text, None, 64).ids


def split(expression=GPT2, use_regex=False, **changes):
    return {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", **changes},
        {"type": "ByteLevel", "add_prefix_space": False, "use_regex": use_regex}]}


def text_files(merges="#version: 0.2\na b\nĠ ab\n"):
    """A vocabulary and merges in files of their own."""
    table = tiny_table(tokens=["ab", "Ġab"], more=["<pad>", "<unk>", "<mask>"])
    return {"vocab_json": table["model"]["vocab"], "merges_txt": merges.encode()}


def test_bpe_merges_are_read_in_both_spellings():
    for merges in (["a b", "Ġ ab"], [["a", "b"], ["Ġ", "ab"]]):
        table = tiny_table(tokens=["ab", "Ġab"], merges=merges)
        vocab = table["model"]["vocab"]
        assert ids("ab ab", table) == [0, vocab["ab"], vocab["Ġab"], 1]


def test_bpe_vocab_json_and_merges_txt_alone_are_robertas_without_a_mask_that_strips():
    files = text_files()
    vocab = files["vocab_json"]
    wanted = [0, vocab["ab"], vocab["Ġab"], vocab["Ġ"], vocab["<mask>"], 1]
    assert ids("ab ab <mask>", None, **files) == wanted
    assert ids("ab ab <mask>", None, **text_files("a b\r\nĠ ab\r\n")) == wanted
    mask = {"mask_token": {"content": "<mask>", "lstrip": True}}
    assert ids("ab ab <mask>", None, mask, **files) == [*wanted[:3], vocab["<mask>"], 1]


def test_bpe_roberta_class_takes_the_config_not_the_pre_tokenizer():
    table = tiny_table(normalizer={"type": "NFC"})
    table["pre_tokenizer"]["add_prefix_space"] = True
    vocab = table["model"]["vocab"]
    assert ids("a", table, ROBERTA) == [0, vocab["a"], 1]
    assert ids("a", table, {**ROBERTA, "add_prefix_space": True}) == [0, vocab["Ġ"], vocab["a"], 1]
    assert ids("a", table, {"tokenizer_class": FILE_CLASS}) == [0, vocab["Ġ"], vocab["a"], 1]
    assert ids("e\u0301", table, ROBERTA)[1] == vocab["e"]
    assert ids("e\u0301", table, {"tokenizer_class": FILE_CLASS})[-2] == vocab["©"]


def test_bpe_pairs_of_roberta_have_two_separators_and_one_type():
    files = TokenizerFiles(tiny_table(), None, ROBERTA, {})
    encoding = open_tokenizer(compile_tokenizer(files)).encode("a", "b", 64)
    vocab = tiny_table()["model"]["vocab"]
    assert encoding.ids == [0, vocab["a"], 1, 1, vocab["b"], 1]
    assert encoding.split == len(encoding.ids)


@pytest.mark.parametrize("part", [
    None, {"type": "Sequence", "pretokenizers": [{"type": "ByteLevel", "add_prefix_space": False}]},
    split()])
def test_bpe_known_pre_tokenizer_is_read(part):
    table = tiny_table(**({"pre_tokenizer": part} if part else {}))
    vocab = table["model"]["vocab"]
    assert ids("a b", table, {"tokenizer_class": FILE_CLASS}) == [
        0, vocab["a"], vocab["Ġ"], vocab["b"], 1]


def test_bpe_folder_without_tokenizer_json_is_read(tmp_path):
    files = text_files()
    (tmp_path / "vocab.json").write_text(json.dumps(files["vocab_json"]), "utf-8")
    (tmp_path / "merges.txt").write_bytes(files["merges_txt"])
    with Folder(str(tmp_path)) as folder:
        read, sources = read_tokenizer(folder)
    assert sorted(sources) == ["merges.txt", "vocab.json"]
    assert ids("ab", None, vocab_json=read.vocab_json, merges_txt=read.merges_txt)[0] == 0
    check_ids(read, len(files["vocab_json"]))
    with pytest.raises(CheckpointError, match="vocab.json: the token '<mask>' has the id"):
        check_ids(read, len(files["vocab_json"]) - 1)


@pytest.mark.parametrize("config,has_space", [
    ({"model_type": "roberta"}, False), ({"model_type": "modernbert"}, True),
    ({"model_type": "modernbert", "tokenizer_class": "RobertaTokenizer"}, False),
    ({"model_type": ["x"]}, False)])
def test_bpe_class_that_no_file_names_is_that_of_the_model(tmp_path, config, has_space):
    table = tiny_table()
    table["pre_tokenizer"]["add_prefix_space"] = True
    (tmp_path / "tokenizer.json").write_text(json.dumps(table), "utf-8")
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    with Folder(str(tmp_path)) as folder:
        files, sources = read_tokenizer(folder)
    assert list(sources) == ["tokenizer.json"]
    encoding = open_tokenizer(compile_tokenizer(files)).encode("a", None, 64)
    assert len(encoding.ids) == 3 + has_space


def model(**changes):
    return lambda t, c: t["model"].update(changes)


def pre(part):
    return lambda t, c: (t.update(pre_tokenizer=part), c.update(tokenizer_class=FILE_CLASS))


@pytest.mark.parametrize("change,words", [
    (model(dropout=0.1), "dropout is 0.1"), (model(byte_fallback=True), "byte_fallback is true"),
    (model(end_of_word_suffix="</w>"), "end_of_word_suffix is '</w>'"),
    (model(continuing_subword_prefix=7), "continuing_subword_prefix is 7"),
    (model(ignore_merges=1.0), "ignore_merges is 1.0"),
    (model(vocab=[]), "model.vocab is not an object"), (model(merges=None), "merges is null"),
    (model(merges=["a"]), "merge 1 is 'a', not two tokens"),
    (model(merges=["a b", ["a", 7]]), "merge 1 needs the token 'ab'"),
    (model(merges=[["a", 7]]), "merge 1 is a list of 2, not two tokens"),
    (lambda t, c: t["model"]["vocab"].pop("Ġ"), "no token for the byte 32"),
    (lambda t, c: t["model"]["vocab"].update(x=0), "share the id 0"),
    (lambda t, c: t["model"]["vocab"].update(x="0"), "has the id '0'"),
    (pre(None), "pre_tokenizer is null"), (pre({"type": "Metaspace"}), "'Metaspace'"),
    (pre({"type": "Sequence"}), "pre_tokenizer is null"),
    (pre({"type": "Sequence", "pretokenizers": []}), "pre_tokenizer is empty"),
    (pre({"type": "ByteLevel", "use_regex": False}), "use_regex"),
    (pre({"type": "ByteLevel", "add_prefix_space": 1}), "add_prefix_space"),
    (pre(split(use_regex=True)), "use_regex"), (pre(split("a+")), "expression that is not served"),
    (pre(split(["a"])), "expression that is not served"),
    (pre(split(behavior="Removed")), "expression that is not served"),
    (pre(split(invert=True)), "expression that is not served"),
    (lambda t, c: (t.update(normalizer={"type": "Lowercase"}),
                   c.update(tokenizer_class=FILE_CLASS)), "normalizer is 'Lowercase'"),
    (lambda t, c: c.update(tokenizer_class="GPT2Tokenizer"), "GPT2Tokenizer"),
    (lambda t, c: c.update(**ROBERTA, add_prefix_space="no"), "add_prefix_space is 'no'"),
    (lambda t, c: c.update(**ROBERTA, cls_token="[CLS]"), "the cls_token '\\[CLS\\]' is not in"),
    (lambda t, c: c.update(truncation_side="up"), "truncation_side is 'up'"),
    (lambda t, c: t.update(post_processor={"type": "Dream"}), "'Dream'"),
    (lambda t, c: (t.update(post_processor=None), c.update(tokenizer_class=FILE_CLASS)),
     "puts no special token"),
])
def test_bpe_unusable_tokenizer_is_refused_in_words(change, words):
    table, config = tiny_table(), {}
    compile_tokenizer(TokenizerFiles(table, None, config, {}))
    change(table, config)
    with pytest.raises(CheckpointError, match=words):
        compile_tokenizer(TokenizerFiles(table, None, config, {}))


@pytest.mark.parametrize("merges,words", [
    (b"a b\n\xff", "merges.txt: is not UTF-8 at byte 4"),
    ("a b c\n".encode(), "merges.txt: merge 1 is 'a b c'"),
    ("b a\n".encode(), "merges.txt: merge 1 needs the token 'ba'")])
def test_bpe_unusable_merges_txt_is_refused_in_words(merges, words):
    files = {**text_files(), "merges_txt": merges}
    with pytest.raises(CheckpointError, match=words):
        ids("a", None, **files)
