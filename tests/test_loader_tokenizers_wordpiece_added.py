"""WordPiece with added tokens of any flags: in parts as whole, and from every file with some."""

import json
import random

import pytest

from loader.checkpoint import Folder
from loader.errors import CheckpointError
from loader.tokenizer_files import check_ids, read_tokenizer
from loader.tokenizers import around_added, encoding, wordpiece
from loader.tokenizers.files import TokenizerFiles
from loader.tokenizers.table import compile_tokenizer, open_tokenizer

VOCABULARY = b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n##a\n##b\n"
E1, PLAIN = 9, 10


def ids(text, config=None, special_map=None, added=None):
    files = TokenizerFiles(None, VOCABULARY, config or {}, special_map or {}, added_tokens=added)
    return open_tokenizer(compile_tokenizer(files)).ids(text)


def test_added_flags_long_text_read_in_parts_has_the_ids_of_the_whole(shared, monkeypatch):
    for module, name, value in ((around_added, "WHOLE_CHARACTERS", 40),
                                (around_added, "NORMALIZED", 16),
                                (wordpiece, "WHOLE_CHARACTERS", 20), (encoding, "WHOLE_CHARACTERS",
                                                                     60)):
        monkeypatch.setattr(module, name, value)
    folder = shared / "checkpoints" / "bert-added-flags"
    with Folder(str(folder)) as opened:
        files = read_tokenizer(opened)[0]
    right = open_tokenizer(compile_tokenizer(files))
    left = open_tokenizer(compile_tokenizer(files._replace(
        tokenizer_config={**files.tokenizer_config, "truncation_side": "left"})))
    texts = [entry["text"] for entry in json.loads(
        (folder / "golden.json").read_text("utf-8"))["entries"]]
    rng = random.Random(2)
    for _ in range(300):
        text = rng.choice(("", " ", "x")).join(rng.choices(texts, k=3))
        whole = right.ids(text)
        assert [one for part in right.parts(text) for one in part] == whole, text
        assert [one for part in left.parts(text) for one in part] == whole[::-1], text
        assert right.encode(text, None, 12).ids == [2, *whole[:10], 3]
        assert left.encode(text, None, 12).ids == [2, *whole[-10:], 3]


def test_legacy_added_tokens_special_ones_are_found_raw_others_normalised():
    added = {"plain": PLAIN, "[E1]": E1}
    special_map = {"additional_special_tokens": ["[E1]"]}
    assert ids("a[E1]b [e1] xPLAINx", None, special_map, added)[:3] == [5, E1, 6]
    assert ids("xPLAINx", None, special_map, added) == [1, PLAIN, 1]


def test_added_tokens_decoder_of_the_config_gives_flags():
    decoder = {"9": {"content": "<x>", "lstrip": False, "normalized": False, "rstrip": False,
                     "single_word": True, "special": False},
               "2": {"content": "[CLS]", "normalized": False, "special": True}}
    assert ids("<x> a<x>", {"added_tokens_decoder": decoder}) == [E1, 5, 1, 1, 1]


def test_added_word_is_no_piece_of_the_models_own():
    assert ids("ab abz z", added={"z": E1}) == [5, 8, 5, 8, E1, E1]


def test_added_tokens_json_of_a_folder_is_read(tmp_path):
    (tmp_path / "vocab.txt").write_bytes(VOCABULARY)
    (tmp_path / "added_tokens.json").write_text('{"[E1]": 9}', "utf-8")
    with Folder(str(tmp_path)) as folder:
        files, sources = read_tokenizer(folder)
    assert files.added_tokens == {"[E1]": E1} and "added_tokens.json" in sources
    check_ids(files, 10)
    with pytest.raises(CheckpointError, match="added_tokens.json: the token '\\[E1\\]' has the id"):
        check_ids(files, 9)
    files = files._replace(added_tokens=None, tokenizer_config={
        "added_tokens_decoder": {"9": {"content": "[E1]"}}})
    with pytest.raises(CheckpointError, match="tokenizer_config.json: the token '\\[E1\\]' has"):
        check_ids(files, 9)


@pytest.mark.parametrize("config,special_map,added,words", [
    ({}, {}, {"x": "9"}, "added_tokens.json: 'x' has the id '9', not a number"),
    ({}, {}, {"x": 12}, "added_tokens.json: 'x' has the id 12 as an added token and 9"),
    ({}, {}, {"a": 9}, "added_tokens.json: 'a' has the id 9 as an added token and 5"),
    ({}, {"additional_special_tokens": ["<e>"]}, None, "'<e>' is in no vocabulary"),
    ({}, {"additional_special_tokens": 7}, None, "special_tokens_map.json: .* holds 7"),
    ({"added_tokens_decoder": {"x": {"content": "a"}}}, {}, None, "not an added token"),
    ({"added_tokens_decoder": {"9": {"content": "x", "lstrip": 1}}}, {}, None,
     "tokenizer_config.json: a flag of the added token 'x'"),
    ({"mask_token": {"content": "[MASK]", "lstrip": "yes"}}, {}, None,
     "tokenizer_config.json: a flag of the added token '\\[MASK\\]'"),
])
def test_added_tokens_of_settings_that_make_no_sense_are_refused(config, special_map, added, words):
    with pytest.raises(CheckpointError, match=words):
        ids("a", config, special_map, added)
