"""Which of a checkpoint's files decides what of a WordPiece tokeniser, and what is refused."""

import copy

import pytest

from loader.errors import CheckpointError
from loader.tokenizers.table import TokenizerFiles, compile_tokenizer, open_tokenizer
from tests.house import ROOT
from tests.test_loader_tokenizers import folder_files

NORMALIZER = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
              "strip_accents": None, "lowercase": True}
FILE_CLASS = "PreTrainedTokenizerFast"


def template(first, last="[SEP]", second_type=1):
    """BERT's template, with other tokens."""
    def put(token, number=0):
        return {"SpecialToken": {"id": token, "type_id": number}}

    def text(name, number=0):
        return {"Sequence": {"id": name, "type_id": number}}

    single = [put(first), text("A"), put(last)]
    return {"type": "TemplateProcessing", "single": single,
            "pair": [*single, text("B", second_type), put(last, second_type)],
            "special_tokens": {name: {"id": name, "ids": [number], "tokens": [name]}
                               for name, number in (("[CLS]", 2), ("[SEP]", 3))}}


def table(**changes):
    """A tokenizer.json."""
    whole = {"model": {"type": "WordPiece", "unk_token": "[UNK]", "vocab": {
        "[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "a": 4, "##a": 5, "A": 6}},
        "normalizer": dict(NORMALIZER), "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": template("[CLS]")}
    return {**copy.deepcopy(whole), **changes}


def ids(text, tokenizer_json=None, vocab_txt=None, config=None, special_map=None, limit=64):
    tokenizer = open_tokenizer(compile_tokenizer(TokenizerFiles(
        tokenizer_json, vocab_txt, config or {}, special_map or {})))
    return tokenizer.encode(text, None, limit).ids


def test_files_bert_class_takes_the_config_and_its_defaults_not_the_normalizer():
    cased = table(normalizer={**NORMALIZER, "lowercase": False})
    assert ids("A", cased) == [2, 4, 3]
    assert ids("A", table(), config={"do_lower_case": False}) == [2, 6, 3]


def test_files_file_class_takes_the_normalizer_and_the_word_limit():
    cased = table(normalizer={**NORMALIZER, "lowercase": False})
    assert ids("A", cased, config={"tokenizer_class": FILE_CLASS}) == [2, 6, 3]
    short = table()
    short["model"]["max_input_chars_per_word"] = 2
    assert ids("aaa", short, config={"tokenizer_class": FILE_CLASS}) == [2, 1, 3]
    assert ids("aaa", short) == [2, 4, 5, 5, 3]


@pytest.mark.parametrize("side,wanted", [("right", [2, 4, 6, 3]), ("left", [2, 6, 4, 3])])
def test_files_truncation_side_is_the_configs(side, wanted):
    config = {"truncation_side": side, "do_lower_case": False}
    assert ids("a A A a" if side == "right" else "a a A a", table(truncation={"direction": "Left"}),
               config=config, limit=4) == wanted


def test_files_vocab_txt_counts_lines_of_any_ending_the_last_of_equals():
    tokens = "[UNK]\n[CLS]\n[SEP]\na\nb\na\n"
    for text in (tokens, tokens.replace("\n", "\r\n"), tokens.removesuffix("\n")):
        assert ids("b a [MASK]"[:3], vocab_txt=text.encode()) == [1, 4, 5, 2]


def test_files_special_names_come_from_both_settings_files():
    vocabulary = b"<unk>\n<s>\n</s>\na\n"
    names = {"unk_token": "<unk>", "cls_token": "<s>", "sep_token": {"content": "</s>"}}
    assert ids("a <s> z", vocab_txt=vocabulary, config=names) == [1, 3, 1, 0, 2]
    assert ids("a</s>z", vocab_txt=vocabulary, special_map=names) == [1, 3, 2, 0, 2]


def test_files_space_flags_of_a_special_token_change_no_id():
    added = [{"id": 3, "content": "[SEP]", "lstrip": True, "rstrip": True, "normalized": False}]
    assert ids("a [SEP] a", table(added_tokens=added)) == [2, 4, 3, 4, 3]


def test_files_echo_fixture_opens_and_knows_its_traps():
    files = folder_files(ROOT / "tests" / "fixtures" / "echo")
    tokenizer = open_tokenizer(compile_tokenizer(files))
    assert 1 not in tokenizer.encode("trapexit", None, 64).ids


@pytest.mark.parametrize("part", [None, template("[SEP]")])
def test_files_bert_class_puts_its_own_specials_whatever_the_post_processor(part):
    assert ids("a", table(post_processor=part)) == [2, 4, 3]


@pytest.mark.parametrize("part,wanted", [
    (template("[CLS]"), [2, 4, 3]), (template("[SEP]"), [3, 4, 3]),
    ({"type": "BertProcessing", "cls": ["[CLS]", 2], "sep": ["[SEP]", 3]}, [2, 4, 3])])
def test_files_file_class_follows_the_post_processor(part, wanted):
    config = {"tokenizer_class": FILE_CLASS}
    assert ids("a", table(post_processor=part), config=config) == wanted


def file_class(**changes):
    return lambda t, c: (t.update(changes), c.update(tokenizer_class=FILE_CLASS))


@pytest.mark.parametrize("change,words", [
    (lambda t, c: t["model"].update(type="WordLevel"), "WordLevel"),
    (lambda t, c: t["model"].update(type=["BPE"]), "model is not served"),
    (lambda t, c: t["model"].update(continuing_subword_prefix="@@"), "@@"),
    (lambda t, c: t["model"].update(vocab=[]), "vocab"),
    (lambda t, c: t["model"]["vocab"].update(a="1"), "id"),
    (lambda t, c: t["model"]["vocab"].update(a=0), "share the id"),
    (lambda t, c: t["model"]["vocab"].pop("[CLS]"), "cls_token"),
    (lambda t, c: t.update(normalizer={"type": "NFC"}), "NFC"),
    (lambda t, c: t.update(pre_tokenizer=None), "pre_tokenizer"),
    (lambda t, c: t.update(added_tokens=[{"id": 9, "content": "<x>"}]), "by the reference's count"),
    (lambda t, c: t.update(added_tokens=[{"id": 1, "content": "[CLS]"}]), "as an added token"),
    (lambda t, c: t.update(added_tokens=["x"]), "added_tokens"),
    (lambda t, c: t.update(added_tokens=7), "added_tokens"),
    (lambda t, c: c.update(added_tokens_decoder={"9": {"content": "<x>"}}), "<x>"),
    (lambda t, c: c.update(added_tokens_decoder={"9": {"content": ["<x>"]}}), "added token"),
    (lambda t, c: c.update(added_tokens_decoder={"9": "<x>"}), "<x>"),
    (lambda t, c: c.update(added_tokens_decoder=["<x>"]), "added_tokens_decoder"),
    (lambda t, c: c.update(additional_special_tokens=["<x>"]), "'<x>' is in no vocabulary"),
    (lambda t, c: c.update(extra_special_tokens=[7]), "extra_special_tokens holds 7"),
    (lambda t, c: c.update(truncation_side="up"), "truncation_side"),
    (lambda t, c: c.update(do_lower_case="yes"), "do_lower_case"),
    (lambda t, c: c.update(tokenizer_class="GPT2Tokenizer"), "GPT2Tokenizer"),
    (lambda t, c: c.update(cls_token=7), "cls_token"),
    (lambda t, c: t.pop("model"), "model"),
    (lambda t, c: t["model"].update(max_input_chars_per_word=0), "max_input_chars_per_word"),
    (lambda t, c: t["model"].update(unk_token=None), "unk_token"),
    (file_class(post_processor=None), "puts no special token"),
    (lambda t, c: t.update(post_processor={"type": "Dream"}), "post_processor is 'Dream'"),
    (lambda t, c: t.update(post_processor=template("[BOS]")), "single template"),
    (file_class(normalizer={**NORMALIZER, "clean_text": False}), "clean_text"),
])
def test_files_unusable_tokenizer_is_refused_in_words(change, words):
    files, config = table(), {}
    compile_tokenizer(TokenizerFiles(files, None, config, {}))
    change(files, config)
    with pytest.raises(CheckpointError, match=words):
        compile_tokenizer(TokenizerFiles(files, None, config, {}))


@pytest.mark.parametrize("data,words", [
    (b"[UNK]\n[CLS]\n[SEP]\n\xff\n", "UTF-8 at byte 18"), (b"[UNK]\n[CLS]\n", "sep_token")])
def test_files_unusable_vocab_txt_is_refused_in_words(data, words):
    with pytest.raises(CheckpointError, match=words):
        compile_tokenizer(TokenizerFiles(None, data, {}, {}))


@pytest.mark.parametrize("config, split", [
    ({}, 3), ({"tokenizer_class": "BertTokenizer"}, 3),
    ({"tokenizer_class": "DistilBertTokenizer"}, 5), ({"tokenizer_class": FILE_CLASS}, 3),
    ({"tokenizer_class": "DistilBertTokenizerFast",
      "model_input_names": ["input_ids", "token_type_ids"]}, 3),
    ({"model_input_names": ["input_ids", "attention_mask"]}, 5)],
    ids=str)
def test_files_types_of_a_pair_are_sent_by_class_or_as_the_config_names_them(config, split):
    tokenizer = open_tokenizer(compile_tokenizer(TokenizerFiles(table(), None, config, {})))
    assert tokenizer.encode("a", "a", 64)[:2] == ([2, 4, 3, 4, 3], split)
    assert tokenizer.encode("a", None, 64).split == 3
