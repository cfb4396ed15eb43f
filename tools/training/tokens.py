"""The tokeniser that a model is trained with: its files as they will be written, and it itself."""

import json
from typing import NamedTuple

from loader.checkpoint import Folder
from loader.errors import CheckpointError
from loader.tokenizer_files import check_ids, max_tokens, read_tokenizer
from loader.tokenizers.encoding import Tokenizer
from loader.tokenizers.files import TokenizerFiles
from loader.tokenizers.table import (
    compile_tokenizer, open_tokenizer, pack_table, pair_specials, tokenizer_table,
)
from loader.tokenizers.wordpiece_files import wordpiece_table

SPECIAL_TOKENS = {"unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]",
                  "cls_token": "[CLS]", "mask_token": "[MASK]"}


class Tokens(NamedTuple):
    """`files` are name → bytes of a checkpoint; `size` counts ids, `limit` is the longest text
    with its specials in tokens, `unknown` and `pad` the ids of [UNK] and [PAD]."""

    files: dict[str, bytes]
    tokenizer: Tokenizer
    size: int
    limit: int
    unknown: int
    pad: int

    def encode(self, texts: list[str]) -> list[list[int]]:
        """The ids of each text, specials included, cut at the limit."""
        return [self.tokenizer.encode(text, None, self.limit).ids for text in texts]


def from_vocabulary(vocabulary: bytes, lower_case: bool, positions: int) -> Tokens:
    """BERT's usual tokeniser over the lines of a vocab.txt, in every file that readers look for.

    Raises CheckpointError where the lines are no such vocabulary.
    """
    config = {"tokenizer_class": "BertTokenizer", "do_lower_case": lower_case,
              "strip_accents": None, "tokenize_chinese_chars": True,
              "model_max_length": positions, **SPECIAL_TOKENS}
    files = TokenizerFiles(None, vocabulary, config, SPECIAL_TOKENS)
    table = wordpiece_table(files)
    ids = table["vocabulary"]
    missing = [name for name in SPECIAL_TOKENS.values() if name not in ids]
    if missing:
        raise CheckpointError(f"vocab.txt: {' and '.join(missing)} missing; add a line for each.")
    written = {"vocab.txt": vocabulary, "tokenizer.json": _json(_tokenizer_json(ids, lower_case)),
               "tokenizer_config.json": _json(config),
               "special_tokens_map.json": _json(SPECIAL_TOKENS)}
    return Tokens(written, open_tokenizer(compile_tokenizer(files)), max(ids.values()) + 1,
                  positions, ids[table["unknown"]], ids["[PAD]"])


def of_checkpoint(folder: Folder, positions: int, vocab_size: int) -> Tokens:
    """The tokeniser of a checkpoint, whose files are handed on as they are.

    Raises CheckpointError, as for a checkpoint that is to be served.
    """
    files, sources = read_tokenizer(folder)
    table = tokenizer_table(files)
    check_ids(files, vocab_size)
    if table["kind"] != "WordPiece":
        raise CheckpointError(f"the tokenizer is {table['kind']}; only encoders with WordPiece are "
                              "trained here.")
    limit = max_tokens(files, pair_specials(table), positions, 2 if vocab_size <= 1 << 16 else 4)
    return Tokens(sources, open_tokenizer(pack_table(table)), vocab_size, limit,
                  table["vocabulary"][table["unknown"]], table["vocabulary"].get("[PAD]", 0))


def _tokenizer_json(ids: dict[str, int], lower_case: bool) -> dict:
    special = sorted((ids[name], name) for name in SPECIAL_TOKENS.values())
    single = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}},
              {"Sequence": {"id": "A", "type_id": 0}},
              {"SpecialToken": {"id": "[SEP]", "type_id": 0}}]
    pair = [*single, {"Sequence": {"id": "B", "type_id": 1}},
            {"SpecialToken": {"id": "[SEP]", "type_id": 1}}]
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": number, "content": name, "single_word": False, "lstrip": False,
                          "rstrip": False, "normalized": False, "special": True}
                         for number, name in special],
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                       "strip_accents": None, "lowercase": lower_case},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing", "single": single, "pair": pair,
            "special_tokens": {name: {"id": name, "ids": [ids[name]], "tokens": [name]}
                               for name in ("[CLS]", "[SEP]")}},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100, "vocab": ids}}


def _json(value: object) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=1) + "\n").encode()
