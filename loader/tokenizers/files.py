"""The files of a checkpoint that describe its tokeniser, as they were read."""

from __future__ import annotations

from typing import Any, NamedTuple


class TokenizerFiles(NamedTuple):
    """The parsed files of a checkpoint; {} for a settings file that is not there.

    `vocab_json` comes with `merges_txt`, and both, `vocab_txt` and `added_tokens` (of
    added_tokens.json) only without `tokenizer_json`.
    """

    tokenizer_json: dict[str, Any] | None
    vocab_txt: bytes | None
    tokenizer_config: dict[str, Any]
    special_tokens_map: dict[str, Any]
    vocab_json: dict[str, Any] | None = None
    merges_txt: bytes | None = None
    added_tokens: dict[str, Any] | None = None
