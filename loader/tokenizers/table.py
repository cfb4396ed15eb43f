"""The kinds of tokeniser: which one a checkpoint has, its tables compiled, and opened from memory.

A kind is one row here: how its files become a table, and the class that the table makes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from loader.errors import CheckpointError, shown
from loader.tokenizers.bpe import BPE
from loader.tokenizers.bpe_files import bpe_table
from loader.tokenizers.encoding import Encoding, Frame, Tokenizer
from loader.tokenizers.files import TokenizerFiles
from loader.tokenizers.packed import pack_table, unpack_table
from loader.tokenizers.settings_files import sends_types
from loader.tokenizers.unigram import Unigram
from loader.tokenizers.unigram_files import unigram_table
from loader.tokenizers.wordpiece_added import open_wordpiece
from loader.tokenizers.wordpiece_files import wordpiece_table


class Kind(NamedTuple):
    """`compile` raises CheckpointError and gives a table that `pack_table` takes; `open` takes that
    table, its arrays in memory that it may keep views of."""

    compile: Callable[[TokenizerFiles], dict[str, Any]]
    open: Callable[[dict[str, Any]], Tokenizer]


# By the name of the model in tokenizer.json.
KINDS = {
    "WordPiece": Kind(wordpiece_table, open_wordpiece),
    "BPE": Kind(bpe_table, BPE),
    "Unigram": Kind(unigram_table, Unigram),
}


def compile_tokenizer(files: TokenizerFiles) -> bytes:
    """The tables that `open_tokenizer` reads. Raises CheckpointError."""
    return pack_table(tokenizer_table(files))


def tokenizer_table(files: TokenizerFiles) -> dict[str, Any]:
    """The table of the files' kind: `kind`, `frame` and what the kind needs, JSON-able or arrays.

    Raises CheckpointError.
    """
    if files.tokenizer_json is not None:
        kind = _kind(files.tokenizer_json)
    else:
        kind = "BPE" if files.vocab_txt is None else "WordPiece"
    table = {"kind": kind, **KINDS[kind].compile(files)}
    if not sends_types(files):
        table["frame"] = Frame(*table["frame"])._replace(zeros=None)
    return table


def open_tokenizer(buffer: bytes | memoryview) -> Tokenizer:
    """The tokeniser whose compiled tables `buffer` holds. A kind may keep views of the buffer,
    which then lives as long as the tokeniser; none writes to it."""
    table = unpack_table(buffer)
    return KINDS[table["kind"]].open(table)


def pair_specials(table: dict[str, Any]) -> int:
    """How many special tokens stand around and between the texts of a pair."""
    return Frame(*table["frame"]).pair_specials


def _kind(tokenizer_json: dict[str, Any]) -> str:
    model = tokenizer_json.get("model")
    if not isinstance(model, dict):
        raise CheckpointError("tokenizer.json: has no model; save the tokenizer again.")
    # Old files leave the type out; only WordPiece has this limit, and only BPE merges.
    kind = model.get("type", "WordPiece" if "max_input_chars_per_word" in model else
                     "BPE" if "merges" in model else None)
    if not isinstance(kind, str) or kind not in KINDS:
        raise CheckpointError(f"tokenizer.json: a {shown(kind)} model is not served; this version "
                              f"reads {', '.join(KINDS)}.")
    return kind


__all__ = ["Encoding", "Tokenizer", "TokenizerFiles", "compile_tokenizer", "open_tokenizer",
           "pack_table", "pair_specials", "tokenizer_table"]
