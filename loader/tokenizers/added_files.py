"""All added tokens of a checkpoint, whichever of its files tell of them.

tokenizer.json tells of all. Without it tokenizer_config.json's added_tokens_decoder does, or the
older added_tokens.json, and the special tokens by role are added tokens as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from loader.errors import CheckpointError, shown
from loader.tokenizers.added import added_row, compile_added
from loader.tokenizers.files import TokenizerFiles

# Lists of further special tokens, by both of their names.
LISTS = ("additional_special_tokens", "extra_special_tokens")


def added_rows(files: TokenizerFiles, ids: Mapping[str, int],
               named: Mapping[str, str]) -> list[list[Any]]:
    """The rows that `AddedTokens` takes; `ids` is the vocabulary, `named` the special tokens by
    role. Raises CheckpointError, also where settings name a token that no other file knows."""
    listed = _listed(files)
    if files.tokenizer_json is not None:
        rows = compile_added(files.tokenizer_json)
        known = {row[0] for row in rows}
        for token in _decoded(files):
            if token["content"] not in known:
                raise CheckpointError(f"tokenizer_config.json: tells of the added token "
                                      f"{shown(token['content'])}, which tokenizer.json lacks; "
                                      "save the tokenizer again.")
    else:
        tokens = list(_decoded(files)) or list(_legacy(files, {*named.values(), *listed}))
        rows = compile_added({"model": {"vocab": ids}, "added_tokens": tokens},
                             "tokenizer_config.json" if _decoded(files) else "added_tokens.json")
        known = {row[0] for row in rows}
    for token in listed:
        if token not in known and token not in ids:
            raise CheckpointError(f"tokenizer_config.json: the special token {shown(token)} is in "
                                  "no vocabulary; save the tokenizer again.")
    # Special tokens that no list of added ones has are added, with their flags or with none.
    flags = _flags(files, named)
    missing = [token for token in dict.fromkeys((*named.values(), *listed))
               if token not in known and token in ids]
    return [list(added_row({**flags.get(token, {}), "content": token, "id": ids[token]},
                           "tokenizer_config.json"))
            for token in missing] + rows


def _decoded(files: TokenizerFiles) -> list[dict[str, Any]]:
    """The tokens of tokenizer_config.json's added_tokens_decoder, in the order of their ids."""
    stored = files.tokenizer_config.get("added_tokens_decoder") or {}
    if not isinstance(stored, dict):
        raise CheckpointError("tokenizer_config.json: added_tokens_decoder is not an object; save "
                              "the tokenizer again.")
    tokens = []
    for number, token in stored.items():
        if not number.isdecimal() or len(number) > 10 or not isinstance(token, dict) \
                or not isinstance(token.get("content"), str):
            raise CheckpointError(f"tokenizer_config.json: {shown(token)} is not an added token "
                                  "with content and id; save the tokenizer again.")
        tokens.append({**token, "id": int(number)})
    return sorted(tokens, key=lambda token: token["id"])


def _legacy(files: TokenizerFiles, specials: Iterable[str]) -> Iterable[dict[str, Any]]:
    """The tokens of added_tokens.json; those that are not special are looked for in normalised
    text."""
    numbered = files.added_tokens or {}
    for content, number in numbered.items():
        if type(number) is not int:
            raise CheckpointError(f"added_tokens.json: {shown(content)} has the id "
                                  f"{shown(number)}, not a number.")
    for content in sorted(numbered, key=numbered.__getitem__):
        yield {"content": content, "id": numbered[content], "special": content in specials,
               "normalized": content not in specials}


def _listed(files: TokenizerFiles) -> list[str]:
    """The further special tokens of both settings files."""
    tokens = []
    for source, where in ((files.special_tokens_map, "special_tokens_map.json"),
                          (files.tokenizer_config, "tokenizer_config.json")):
        for key in LISTS:
            stored = source.get(key) or []
            stored = list(stored.values()) if isinstance(stored, dict) else stored
            for token in stored if isinstance(stored, list) else [stored]:
                content = token.get("content") if isinstance(token, dict) else token
                if not isinstance(content, str) or not content:
                    raise CheckpointError(f"{where}: {key} holds {shown(token)}, not a token.")
                tokens.append(content)
    return tokens


def _flags(files: TokenizerFiles, named: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The flags of special tokens that settings give as objects, by content."""
    return {value["content"]: value
            for source in (files.special_tokens_map, files.tokenizer_config) for role in named
            if isinstance(value := source.get(role), dict)}
