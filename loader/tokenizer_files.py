"""The tokenizer's files of a checkpoint: which are read, and the limits they set."""

from __future__ import annotations

import math
from typing import Any

from loader.checkpoint import Folder
from loader.errors import CheckpointError, shown
from loader.strict_json import read_object
from loader.tokenizers.table import TokenizerFiles

SETTINGS_BYTES = 16 << 20   # of tokenizer_config.json and special_tokens_map.json
TABLE_BYTES = 128 << 20     # of tokenizer.json and vocabularies; 250,000 pieces take 17 MB
# Where no file names the tokenizer's class, the reference takes that of the model_type in
# config.json. Those of the others need not be told apart.
CLASSES = {"mpnet": "MPNetTokenizer", "roberta": "RobertaTokenizer",
           "modernbert": "PreTrainedTokenizerFast"}
ROW_BYTES = 60_000          # of one text's ids: they must fit one message between processes


def read_tokenizer(folder: Folder) -> tuple[TokenizerFiles, dict[str, bytes]]:
    """The parsed files, and the bytes of each by name.

    tokenizer.json goes before vocab.txt, and that before vocab.json with merges.txt; beside these
    added_tokens.json is read too. Of config.json counts what names the tokenizer's class, if its
    own settings do not. Raises CheckpointError.
    """
    sources: dict[str, bytes] = {}

    def settings(name: str, limit: int = SETTINGS_BYTES) -> dict[str, Any]:
        if not folder.has(name):
            return {}
        sources[name] = folder.read(name, limit)
        return read_object(sources[name], name)

    config, specials = settings("tokenizer_config.json"), settings("special_tokens_map.json")
    if config.get("auto_map"):
        raise CheckpointError("tokenizer_config.json: auto_map names code in the folder, which is "
                              "never run; use a checkpoint without it.")
    if config.get("tokenizer_class") is None and folder.has("config.json"):
        model = read_object(folder.read("config.json", SETTINGS_BYTES), "config.json")
        model_type = model.get("model_type")
        config["tokenizer_class"] = model.get("tokenizer_class") or \
            CLASSES.get(model_type if isinstance(model_type, str) else "")
    if folder.has("tokenizer.json"):
        return TokenizerFiles(settings("tokenizer.json", TABLE_BYTES), None, config,
                              specials), sources
    vocabulary = vocab_json = merges = None
    if folder.has("vocab.txt"):
        vocabulary = sources["vocab.txt"] = folder.read("vocab.txt", TABLE_BYTES)
    elif folder.has("vocab.json") and folder.has("merges.txt"):
        vocab_json = settings("vocab.json", TABLE_BYTES)
        merges = sources["merges.txt"] = folder.read("merges.txt", TABLE_BYTES)
    else:
        others = [name for name in ("vocab.json", "merges.txt", "sentencepiece.bpe.model",
                                    "spiece.model", "spm.model") if folder.has(name)]
        found = f" ({others[0]} alone is not read)" if others else ""
        raise CheckpointError(f"tokenizer.json is missing, and so is vocab.txt{found}; save the "
                              "tokenizer with save_pretrained in transformers.")
    return TokenizerFiles(None, vocabulary, config, specials, vocab_json, merges,
                          settings("added_tokens.json") or None), sources


def check_ids(files: TokenizerFiles, vocab_size: int) -> None:
    """Refuses a token whose id has no row in the embedding table; the files compiled before."""
    if files.vocab_txt is not None:
        tokens = files.vocab_txt.removesuffix(b"\n").split(b"\n")
        if len(tokens) > vocab_size:
            raise CheckpointError(f"vocab.txt has {len(tokens)} tokens, but config.json's "
                                  f"vocab_size is {vocab_size}; one of them is another model's.")
    where, table = "tokenizer.json", files.tokenizer_json
    if table is None:
        where, table = "vocab.json", {"model": {"vocab": files.vocab_json or {}}}
    vocab = table["model"]["vocab"]
    pairs = list(vocab.items()) if isinstance(vocab, dict) else \
        [(entry[0], index) for index, entry in enumerate(vocab)]
    pairs += [(token["content"], token["id"]) for token in table.get("added_tokens") or []]
    others = [(token["content"], int(number)) for number, token in
              (files.tokenizer_config.get("added_tokens_decoder") or {}).items()] \
        if files.tokenizer_json is None else []
    for where, found in ((where, pairs), ("added_tokens.json", (files.added_tokens or {}).items()),
                         ("tokenizer_config.json", others)):
        token, largest = max(found, key=lambda pair: pair[1], default=("", -1))
        if largest >= vocab_size:
            raise CheckpointError(f"{where}: the token {shown(token)} has the id {largest}, but "
                                  f"config.json's vocab_size is {vocab_size}; one of them is "
                                  "another model's.")


def max_tokens(files: TokenizerFiles, specials: int, positions: int, id_bytes: int) -> int:
    """How many tokens of a text (with its pair and specials) the model takes.

    The smallest of the position table, tokenizer_config.json's model_max_length (absent, null or
    1e30: none) and what one message holds. A limit that has no room for the `specials` of a pair is
    refused.
    """
    limit = min(positions, ROW_BYTES // id_bytes)
    stored = files.tokenizer_config.get("model_max_length")
    if stored is not None:
        whole = type(stored) is int or \
            isinstance(stored, float) and math.isfinite(stored) and stored.is_integer()
        if not whole or stored < 1:
            raise CheckpointError(f"tokenizer_config.json: model_max_length is {shown(stored)}, "
                                  "not a positive whole number; correct it.")
        limit = min(limit, int(stored))
    if limit < specials:
        where = "config.json: the position table" if limit == positions else \
            "tokenizer_config.json: model_max_length"
        raise CheckpointError(f"{where} gives {limit} tokens, too few for the {specials} "
                              "special tokens of a pair; correct it.")
    return limit
