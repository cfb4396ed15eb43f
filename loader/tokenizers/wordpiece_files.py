"""What a checkpoint's files say of a BERT tokeniser, checked and resolved into one table."""

from __future__ import annotations

from typing import Any

from loader.errors import CheckpointError, shown
from loader.tokenizers.added_files import added_rows
from loader.tokenizers.bert_normalizer import Casing, Normalizer
from loader.tokenizers.bert_words import is_readable
from loader.tokenizers.encoding import Frame
from loader.tokenizers.files import TokenizerFiles
from loader.tokenizers.frame_files import file_frame
from loader.tokenizers.settings_files import (
    FILE_CLASSES, cuts_left, special_names, token_ids, vocabulary_of,
)

DEFAULTS = {"unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]",
            "cls_token": "[CLS]", "mask_token": "[MASK]"}
# Tokenizers that the reference rebuilds as BERT's, whatever normaliser tokenizer.json holds.
BERT_CLASSES = {None, *(f"{name}Tokenizer{fast}" for name in ("Bert", "DistilBert", "Electra")
                        for fast in ("", "Fast"))}
MPNET_CLASSES = {"MPNetTokenizer", "MPNetTokenizerFast"}
MPNET_DEFAULTS = {"unk_token": "[UNK]", "sep_token": "</s>", "pad_token": "<pad>",
                  "cls_token": "<s>", "mask_token": "<mask>", "bos_token": "<s>",
                  "eos_token": "</s>"}
WORD_LIMIT = 100


def wordpiece_table(files: TokenizerFiles) -> dict[str, Any]:
    """The JSON-able table that `open_wordpiece` takes. Raises CheckpointError."""
    name = files.tokenizer_config.get("tokenizer_class")
    if files.tokenizer_json is not None:
        where = "tokenizer.json"
        vocabulary, unknown, word_limit = _json_vocabulary(files.tokenizer_json)
    else:
        where, unknown, word_limit = "vocab.txt", None, WORD_LIMIT
        vocabulary = _text_vocabulary(files.vocab_txt)
    follows_file = name in FILE_CLASSES and files.tokenizer_json is not None
    named = special_names(files, MPNET_DEFAULTS if name in MPNET_CLASSES else DEFAULTS)
    if unknown is not None:
        named["unk_token"] = unknown
    rows = added_rows(files, vocabulary, named)
    ids = {**vocabulary, **{row[0]: row[1] for row in rows}}
    for role in ("unk_token",) if follows_file else ("unk_token", "cls_token", "sep_token"):
        if named[role] not in ids:
            raise CheckpointError(f"{where}: the {role} {shown(named[role])} is not in the "
                                  "vocabulary; use the model's own tokenizer files.")
    processor = (files.tokenizer_json or {}).get("post_processor")
    if follows_file or processor is not None:
        frame = file_frame(processor, ids)
    if not follows_file:    # and what the file says of it only had to make sense
        first, last = ids[named["cls_token"]], ids[named["sep_token"]]
        frame = Frame([first], [last, last], [last]) if name in MPNET_CLASSES else \
            Frame([first], [last], [last], 1)
    casing = Casing(*_casing(files, follows_file))
    specials = {row[0]: row[1] for row in rows}
    # Tokens set apart by punctuation are words that the reader finds itself, and fast.
    is_plain = all(not normalized and not single_word for _, _, normalized, _, _, single_word
                   in rows) and is_readable(specials, Normalizer(casing))
    return {
        "vocabulary": ids if is_plain else {**vocabulary, named["unk_token"]: ids[
            named["unk_token"]]},
        "unknown": named["unk_token"], "frame": frame, "specials": specials if is_plain else {},
        "added": [] if is_plain else rows, "casing": casing, "cuts_left": cuts_left(files),
        # The reference makes BERT's classes anew with this limit, whatever the file says.
        "word_limit": word_limit if follows_file else WORD_LIMIT,
    }


def _json_vocabulary(table: dict[str, Any]) -> tuple[dict[str, int], str, int]:
    model = table["model"]
    prefix = model.get("continuing_subword_prefix", "##")
    if prefix != "##":
        raise CheckpointError(f"tokenizer.json: continuing_subword_prefix is {shown(prefix)}, "
                              "served is '##'.")
    for part, wanted in (("normalizer", "BertNormalizer"), ("pre_tokenizer", "BertPreTokenizer")):
        given = table.get(part)
        if not isinstance(given, dict) or given.get("type") != wanted:
            name = given.get("type") if isinstance(given, dict) else given
            raise CheckpointError(f"tokenizer.json: the {part} is {shown(name)}, served is "
                                  f"{wanted}.")
    vocabulary = token_ids(vocabulary_of(model), "tokenizer.json")
    unknown = model.get("unk_token", "[UNK]")
    if not isinstance(unknown, str):
        raise CheckpointError(f"tokenizer.json: unk_token is {shown(unknown)}, not a token.")
    limit = model.get("max_input_chars_per_word", WORD_LIMIT)
    if type(limit) is not int or not 0 < limit < 1 << 20:
        raise CheckpointError(f"tokenizer.json: max_input_chars_per_word is {shown(limit)}, not "
                              "a positive number.")
    return vocabulary, unknown, limit


def _text_vocabulary(data: bytes) -> dict[str, int]:
    try:
        text = data.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
        lines = text.removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"vocab.txt: is not UTF-8 at byte {error.start}; save it as "
                              "UTF-8.") from None
    vocabulary: dict[str, int] = {}
    for number, line in enumerate(lines):
        # As the reference: of a token given twice the last line counts.
        vocabulary[line] = number
    return vocabulary


def _casing(files: TokenizerFiles, follows_file: bool) -> tuple[bool, bool, bool]:
    """(lower_case, strip_accents, split_ideographs).

    For BERT's classes tokenizer_config.json and its defaults count, not tokenizer.json's own
    normaliser; a tokenizer class without rules of its own takes the file as it is.
    """
    config, name = files.tokenizer_config, files.tokenizer_config.get("tokenizer_class")
    if follows_file:
        source, where = files.tokenizer_json["normalizer"], "tokenizer.json"
        if source.get("clean_text") is False:
            raise CheckpointError("tokenizer.json: the normalizer's clean_text is false, served "
                                  "is true.")
        keys = ("lowercase", "strip_accents", "handle_chinese_chars")
    elif name in BERT_CLASSES or name in MPNET_CLASSES:
        source, where = config, "tokenizer_config.json"
        keys = ("do_lower_case", "strip_accents", "tokenize_chinese_chars")
    else:
        raise CheckpointError(f"tokenizer_config.json: tokenizer_class is {shown(name)}, served "
                              "is BertTokenizer.")
    lower, strip, split = (_flag(source, key, where) for key in keys)
    lower = True if lower is None else lower
    return lower, lower if strip is None else strip, True if split is None else split


def _flag(source: dict[str, Any], key: str, where: str) -> bool | None:
    value = source.get(key)
    if value is not None and not isinstance(value, bool):
        raise CheckpointError(f"{where}: {key} is {shown(value)}, not true or false.")
    return value
