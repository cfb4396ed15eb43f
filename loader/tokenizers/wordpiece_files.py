"""What a checkpoint's files say of a BERT tokeniser, checked and resolved into one table."""

from __future__ import annotations

from typing import Any

from loader.errors import CheckpointError, shown
from loader.tokenizers.bert_normalizer import Casing, Normalizer
from loader.tokenizers.bert_words import is_readable
from loader.tokenizers.files import TokenizerFiles

SPECIALS = ("unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
DEFAULTS = {"unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]",
            "cls_token": "[CLS]", "mask_token": "[MASK]"}
# Tokenizers that the reference rebuilds as BERT's, whatever normaliser tokenizer.json holds.
BERT_CLASSES = {None, *(f"{name}Tokenizer{fast}" for name in ("Bert", "DistilBert", "Electra")
                        for fast in ("", "Fast"))}
# Tokenizers that take tokenizer.json as it is.
FILE_CLASSES = {"PreTrainedTokenizerFast", "TokenizersBackend"}
WORD_LIMIT = 100
IDS_LIMIT = 1 << 31
# Flags that change where a token is found. lstrip and rstrip take spaces away that no id tells of.
ADDED_FLAGS = ("single_word", "normalized")


def wordpiece_table(files: TokenizerFiles) -> dict[str, Any]:
    """The JSON-able table that `WordPiece` takes. Raises CheckpointError."""
    if files.tokenizer_json is not None:
        where = "tokenizer.json"
        vocabulary, unknown, word_limit = _json_vocabulary(files.tokenizer_json)
        frame = _frame(files.tokenizer_json.get("post_processor"))
    else:
        where, unknown, word_limit, frame = "vocab.txt", None, WORD_LIMIT, ()
        vocabulary = _text_vocabulary(files.vocab_txt)
    follows_file = files.tokenizer_config.get("tokenizer_class") in FILE_CLASSES \
        and files.tokenizer_json is not None
    names = _special_names(files)
    if unknown is not None and unknown != names["unk_token"]:
        names["unk_token"] = unknown
    added = _added_tokens(files, set(names.values()))
    for role in ("unk_token", "cls_token", "sep_token"):
        if names[role] not in vocabulary and names[role] not in added:
            raise CheckpointError(f"{where}: the {role} {shown(names[role])} is not in the "
                                  "vocabulary; use the model's own tokenizer files.")
    specials = {name: vocabulary[name] for name in names.values() if name in vocabulary}
    specials.update(added)
    first, last = names["cls_token"], names["sep_token"]
    if follows_file and frame != (f"{first}0", "A0", f"{last}0", "B1", f"{last}1"):
        raise CheckpointError(f"tokenizer.json: the post_processor does not put {shown(first)} and "
                              f"{shown(last)} around texts, as BERT's does.")
    casing = Casing(*_casing(files, follows_file))
    if not is_readable(specials, Normalizer(casing)):
        raise CheckpointError(f"{where}: the special tokens {', '.join(map(shown, specials))} are "
                              "not all set apart by punctuation, as in [CLS]; such are not read "
                              "by this version.")
    return {
        "vocabulary": {**vocabulary, **specials}, "unknown": names["unk_token"],
        "cls": specials[names["cls_token"]], "sep": specials[names["sep_token"]],
        "specials": specials, "casing": casing, "cuts_left": _cuts_left(files),
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
    vocabulary = model.get("vocab")
    if not isinstance(vocabulary, dict) or not vocabulary:
        raise CheckpointError("tokenizer.json: model.vocab is not an object of tokens; save the "
                              "tokenizer again.")
    _check_ids(vocabulary)
    unknown = model.get("unk_token", "[UNK]")
    if not isinstance(unknown, str):
        raise CheckpointError(f"tokenizer.json: unk_token is {shown(unknown)}, not a token.")
    limit = model.get("max_input_chars_per_word", WORD_LIMIT)
    if type(limit) is not int or not 0 < limit < 1 << 20:
        raise CheckpointError(f"tokenizer.json: max_input_chars_per_word is {shown(limit)}, not "
                              "a positive number.")
    return vocabulary, unknown, limit


def _frame(part: Any) -> tuple[str, ...]:
    """The names and types of [CLS] A [SEP] B [SEP] as the post_processor puts them: ("[CLS]0",
    "A0", "[SEP]0", "B1", "[SEP]1"); () for none. Refuses anything but such a frame."""
    if part is None:
        return ()
    if isinstance(part, dict) and part.get("type") == "BertProcessing":
        first, last = (str(value[0]) if isinstance(value, list) and value else "?"
                       for value in (part.get("cls"), part.get("sep")))
        return f"{first}0", "A0", f"{last}0", "B1", f"{last}1"
    if not isinstance(part, dict) or part.get("type") != "TemplateProcessing":
        name = part.get("type") if isinstance(part, dict) else part
        raise CheckpointError(f"tokenizer.json: the post_processor is {shown(name)}, served is "
                              "TemplateProcessing.")
    defined, frame = part.get("special_tokens"), ()
    for key, wanted in (("single", "sAs"), ("pair", "sAsBs")):
        steps = part.get(key)
        found = [_template_step(step) for step in steps] if isinstance(steps, list) else []
        names = {name for kind, name, _ in found if kind == "s"}
        if "".join(kind for kind, _, _ in found) != wanted or not isinstance(defined, dict) \
                or not names <= set(defined):
            raise CheckpointError(f"tokenizer.json: the post_processor's {key} template is not "
                                  "[CLS] A [SEP] (B [SEP]) of tokens that it defines; save the "
                                  "tokenizer again.")
        frame = tuple(f"{name}{number}" for _, name, number in found)
    return frame


def _template_step(step: Any) -> tuple[str, str, Any]:
    """("s" for a special token, "A" or "B" for a text, "?" for anything else; name; type)."""
    (kind, value), = step.items() if isinstance(step, dict) and len(step) == 1 else ((None, None),)
    name = value.get("id") if isinstance(value, dict) else None
    if kind == "SpecialToken" and isinstance(name, str):
        return "s", name, value.get("type_id")
    if kind == "Sequence" and name in ("A", "B"):
        return name, name, value.get("type_id")
    return "?", "", None


def _check_ids(vocabulary: dict[str, Any]) -> None:
    seen: dict[int, str] = {}
    for token, number in vocabulary.items():
        if type(number) is not int or not 0 <= number < IDS_LIMIT:
            raise CheckpointError(f"tokenizer.json: the token {shown(token)} has the id "
                                  f"{shown(number)}, not a number from 0 up.")
        if number in seen:
            raise CheckpointError(f"tokenizer.json: the tokens {shown(seen[number])} and "
                                  f"{shown(token)} share the id {number}.")
        seen[number] = token


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


def _special_names(files: TokenizerFiles) -> dict[str, str]:
    """The text of each special token; a stored one is a string or an object with content."""
    names = dict(DEFAULTS)
    for source, where in ((files.special_tokens_map, "special_tokens_map.json"),
                          (files.tokenizer_config, "tokenizer_config.json")):
        for role in SPECIALS:
            value = source.get(role)
            if isinstance(value, dict):
                value = value.get("content")
            if value is None:
                continue
            if not isinstance(value, str) or not value or " " in value:
                raise CheckpointError(f"{where}: {role} is {shown(value)}, not a token.")
            names[role] = value
    return names


def _added_tokens(files: TokenizerFiles, specials: set[str]) -> dict[str, int]:
    """The ids of the special tokens that tokenizer.json adds; any other added token is refused,
    because its flags are not read yet."""
    tokens = (files.tokenizer_json or {}).get("added_tokens") or []
    if not isinstance(tokens, list):
        raise CheckpointError("tokenizer.json: added_tokens is not a list.")
    found: dict[str, int] = {}
    for token in tokens:
        content = token.get("content") if isinstance(token, dict) else None
        number = token.get("id") if isinstance(token, dict) else None
        if not isinstance(content, str) or type(number) is not int or not 0 <= number < IDS_LIMIT:
            raise CheckpointError(f"tokenizer.json: added_tokens holds {shown(token)}, not a "
                                  "token with content and id.")
        _check_added(token, specials, "tokenizer.json")
        stored = files.tokenizer_json["model"]["vocab"].get(content, number)
        if stored != number:
            raise CheckpointError(f"tokenizer.json: {shown(content)} has the id {number} as an "
                                  f"added token and {stored} in the vocabulary.")
        found[content] = number
    stored = files.tokenizer_config.get("added_tokens_decoder") or {}
    for token in stored.values() if isinstance(stored, dict) else [stored]:
        _check_added(token, specials, "tokenizer_config.json")
    extra = files.tokenizer_config.get("additional_special_tokens") \
        or files.tokenizer_config.get("extra_special_tokens")
    if extra:
        raise CheckpointError("tokenizer_config.json: additional special tokens are not read by "
                              "this version.")
    return found


def _check_added(token: Any, specials: set[str], where: str) -> None:
    if not isinstance(token, dict):
        raise CheckpointError(f"{where}: {shown(token)} is not an added token.")
    content = token.get("content")
    flags = [flag for flag in ADDED_FLAGS if token.get(flag)]
    if not isinstance(content, str) or content not in specials or flags:
        what = f"with {flags[0]}" if flags else "beside the special ones"
        raise CheckpointError(f"{where}: the added token {shown(content)} {what} is not read by "
                              "this version.")


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
    elif name in BERT_CLASSES:
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


def _cuts_left(files: TokenizerFiles) -> bool:
    side = files.tokenizer_config.get("truncation_side", "right")
    if side not in ("left", "right"):
        raise CheckpointError(f"tokenizer_config.json: truncation_side is {shown(side)}, not left "
                              "or right.")
    return side == "left"
