"""What every kind of tokeniser reads alike from a checkpoint's settings and vocabularies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loader.errors import CheckpointError, shown
from loader.tokenizers.files import TokenizerFiles

# Tokenizers that take tokenizer.json as it is.
FILE_CLASSES = {"PreTrainedTokenizerFast", "TokenizersBackend"}
# Those that tell no token types unless tokenizer_config.json asks for them: pairs are of type 0.
TYPELESS_CLASSES = {"AlbertTokenizer", "CamembertTokenizer", "DistilBertTokenizer",
                    "MPNetTokenizer", "RobertaTokenizer", "XLMRobertaTokenizer"}
IDS_LIMIT = 1 << 31


def vocabulary_of(model: dict[str, Any]) -> dict[str, Any]:
    """The vocabulary of a tokenizer.json's model that has one by token. Raises CheckpointError."""
    vocabulary = model.get("vocab")
    if not isinstance(vocabulary, dict) or not vocabulary:
        raise CheckpointError("tokenizer.json: model.vocab is not an object of tokens; save the "
                              "tokenizer again.")
    return vocabulary


def token_ids(vocabulary: dict[str, Any], where: str) -> dict[str, int]:
    """The vocabulary, if it gives each token an id of its own. Raises CheckpointError."""
    seen: dict[int, str] = {}
    for token, number in vocabulary.items():
        if type(number) is not int or not 0 <= number < IDS_LIMIT:
            raise CheckpointError(f"{where}: the token {shown(token)} has the id "
                                  f"{shown(number)}, not a number from 0 up.")
        if number in seen:
            raise CheckpointError(f"{where}: the tokens {shown(seen[number])} and "
                                  f"{shown(token)} share the id {number}.")
        seen[number] = token
    return vocabulary


def special_names(files: TokenizerFiles, defaults: Mapping[str, str]) -> dict[str, str]:
    """The text of each special token by its role; a stored one is a string or an object with
    content. Raises CheckpointError."""
    names = dict(defaults)
    for source, where in ((files.special_tokens_map, "special_tokens_map.json"),
                          (files.tokenizer_config, "tokenizer_config.json")):
        for role in defaults:
            value = source.get(role)
            if isinstance(value, dict):
                value = value.get("content")
            if value is None:
                continue
            if not isinstance(value, str) or not value or " " in value:
                raise CheckpointError(f"{where}: {role} is {shown(value)}, not a token.")
            names[role] = value
    return names


def cuts_left(files: TokenizerFiles) -> bool:
    """Whether the left side of a text that is too long is cut. Raises CheckpointError."""
    side = files.tokenizer_config.get("truncation_side", "right")
    if side not in ("left", "right"):
        raise CheckpointError(f"tokenizer_config.json: truncation_side is {shown(side)}, not left "
                              "or right.")
    return side == "left"


def sends_types(files: TokenizerFiles) -> bool:
    """Whether the reference gives the model token types: as tokenizer_config.json's
    model_input_names say, else as the tokenizer's class does. Raises CheckpointError."""
    names = files.tokenizer_config.get("model_input_names")
    if names is not None:
        if not isinstance(names, list):
            raise CheckpointError(f"tokenizer_config.json: model_input_names is {shown(names)}, "
                                  "not a list; save the tokenizer again.")
        return "token_type_ids" in names
    kind = files.tokenizer_config.get("tokenizer_class")
    return not isinstance(kind, str) or kind.removesuffix("Fast") not in TYPELESS_CLASSES
