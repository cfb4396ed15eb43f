"""The tokenizer's files of a checkpoint: which are read, and the limits they set."""

from __future__ import annotations

import math
from typing import Any

from loader.checkpoint import Folder
from loader.errors import CheckpointError, shown
from loader.strict_json import read_object
from loader.tokenizers.table import TokenizerFiles

SETTINGS_BYTES = 16 << 20   # of tokenizer_config.json and special_tokens_map.json
TABLE_BYTES = 128 << 20     # of tokenizer.json and vocab.txt; 250,000 pieces take 17 MB
ROW_BYTES = 60_000          # of one text's ids: they must fit one message between processes
SPECIALS = {"wordpiece": 3, "bpe": 4, "unigram": 4}  # [CLS] A [SEP] B [SEP], <s> A </s></s> B </s>


def read_tokenizer(folder: Folder) -> tuple[TokenizerFiles, dict[str, bytes]]:
    """The parsed files, and the bytes of each by name; tokenizer.json goes before vocab.txt."""
    sources: dict[str, bytes] = {}

    def settings(name: str) -> dict[str, Any]:
        if not folder.has(name):
            return {}
        sources[name] = folder.read(name, SETTINGS_BYTES)
        return read_object(sources[name], name)

    config, specials = settings("tokenizer_config.json"), settings("special_tokens_map.json")
    if config.get("auto_map"):
        raise CheckpointError("tokenizer_config.json: auto_map names code in the folder, which is "
                              "never run; use a checkpoint without it.")
    table, vocabulary = None, None
    if folder.has("tokenizer.json"):
        sources["tokenizer.json"] = folder.read("tokenizer.json", TABLE_BYTES)
        table = read_object(sources["tokenizer.json"], "tokenizer.json")
    elif folder.has("added_tokens.json"):
        raise CheckpointError("added_tokens.json: added tokens without a tokenizer.json are not "
                              "read yet; save the tokenizer with save_pretrained.")
    elif folder.has("vocab.txt"):
        vocabulary = sources["vocab.txt"] = folder.read("vocab.txt", TABLE_BYTES)
    else:
        others = [name for name in ("vocab.json", "sentencepiece.bpe.model", "spiece.model",
                                    "spm.model") if folder.has(name)]
        found = f" ({others[0]} alone is not read)" if others else ""
        raise CheckpointError(f"tokenizer.json is missing, and so is vocab.txt{found}; save the "
                              "tokenizer with save_pretrained in transformers.")
    return TokenizerFiles(table, vocabulary, config, specials), sources


def check_ids(files: TokenizerFiles, vocab_size: int) -> None:
    """Refuses a token whose id has no row in the embedding table; the files compiled before."""
    if files.tokenizer_json is None:
        tokens = files.vocab_txt.removesuffix(b"\n").split(b"\n")
        if len(tokens) > vocab_size:
            raise CheckpointError(f"vocab.txt has {len(tokens)} tokens, but config.json's "
                                  f"vocab_size is {vocab_size}; one of them is another model's.")
        return
    vocab = files.tokenizer_json["model"]["vocab"]
    pairs = list(vocab.items()) if isinstance(vocab, dict) else \
        [(entry[0], index) for index, entry in enumerate(vocab)]
    pairs += [(token["content"], token["id"])
              for token in files.tokenizer_json.get("added_tokens") or []]
    token, largest = max(pairs, key=lambda pair: pair[1])
    if largest >= vocab_size:
        raise CheckpointError(f"tokenizer.json: the token {shown(token)} has the id {largest}, but "
                              f"config.json's vocab_size is {vocab_size}; one of them is another "
                              "model's.")


def max_tokens(files: TokenizerFiles, kind: str, positions: int, id_bytes: int) -> int:
    """How many tokens of a text (with its pair and specials) the model takes.

    The smallest of the position table, tokenizer_config.json's model_max_length (absent, null or
    1e30: none) and what one message holds. A limit that has no room for the specials is refused.
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
    if limit < SPECIALS[kind]:
        where = "config.json: the position table" if limit == positions else \
            "tokenizer_config.json: model_max_length"
        raise CheckpointError(f"{where} gives {limit} tokens, too few for the {SPECIALS[kind]} "
                              "special tokens of a pair; correct it.")
    return limit
