"""What a checkpoint's files say of a byte-level BPE tokeniser, checked and made a table."""

from __future__ import annotations

from typing import Any

from loader.errors import CheckpointError, shown
from loader.tokenizers.added_files import added_rows
from loader.tokenizers.bpe_merges import merge_table
from loader.tokenizers.files import TokenizerFiles
from loader.tokenizers.frame_files import file_frame
from loader.tokenizers.settings_files import (
    FILE_CLASSES, cuts_left, special_names, token_ids, vocabulary_of,
)

DEFAULTS = {"unk_token": "<unk>", "sep_token": "</s>", "pad_token": "<pad>",
            "cls_token": "<s>", "mask_token": "<mask>", "bos_token": "<s>", "eos_token": "</s>"}
# Tokenizers that the reference rebuilds as RoBERTa's, whatever else tokenizer.json holds.
ROBERTA_CLASSES = {"RobertaTokenizer", "RobertaTokenizerFast"}
# A Split's expressions that are read, by the name of the pattern.
SPLITS = {
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+": "llama3",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": "gpt2",
}


def bpe_table(files: TokenizerFiles) -> dict[str, Any]:
    """The table that `BPE` takes. Raises CheckpointError."""
    if files.tokenizer_json is None:
        vocabulary, merges = files.vocab_json, _text_merges(files.merges_txt)
        where = ("vocab.json", "merges.txt")
    else:
        model = files.tokenizer_json["model"]
        _check_model(model)
        vocabulary, merges = vocabulary_of(model), model.get("merges")
        where = ("tokenizer.json", "tokenizer.json")
    ids = token_ids(vocabulary, where[0])
    reached = {written: number for token, number in ids.items()
               if (written := _written(token)) is not None}
    missing = [byte for byte in map(chr, range(256)) if byte not in reached]
    if missing:
        raise CheckpointError(f"{where[0]}: the vocabulary has no token for the byte "
                              f"{ord(missing[0])}, so some texts have no ids; train the tokenizer "
                              "with the byte-level alphabet.")
    named = special_names(files, DEFAULTS)
    added = added_rows(files, ids, named)
    ids = {**ids, **{row[0]: row[1] for row in added}}
    ranks, cuts, others = merge_table(reached, _merges(merges, ids, where[1]))
    return {
        "vocabulary": reached, "ranks": ranks, "cuts": cuts, "others": others, "added": added,
        "takes_whole": files.tokenizer_json is not None and bool(model.get("ignore_merges")),
        "cuts_left": cuts_left(files), **_parts(files, ids, named, where[0]),
    }


def _parts(files: TokenizerFiles, ids: dict[str, int], named: dict[str, str],
           where: str) -> dict[str, Any]:
    """What normaliser, pre-tokenizer and post-processor say, or RoBERTa's own rules."""
    table, name = files.tokenizer_json, files.tokenizer_config.get("tokenizer_class")
    processor = table.get("post_processor") if table else None
    is_roberta = isinstance(processor, dict) and processor.get("type") == "RobertaProcessing"
    if name in ROBERTA_CLASSES or name is None and (table is None or is_roberta):
        for role in ("cls_token", "sep_token"):
            if named[role] not in ids:
                raise CheckpointError(f"{where}: the {role} {shown(named[role])} is not in the "
                                      "vocabulary; use the model's own tokenizer files.")
        adds_space = files.tokenizer_config.get("add_prefix_space", False)
        if not isinstance(adds_space, bool):
            raise CheckpointError(f"tokenizer_config.json: add_prefix_space is "
                                  f"{shown(adds_space)}, not true or false.")
        if processor is not None:
            file_frame(processor, ids)  # not followed, but it has to make sense
        first, last = ids[named["cls_token"]], ids[named["sep_token"]]
        return {"composes": False, "pattern": "gpt2", "adds_space": adds_space,
                "frame": [[first], [last, last], [last], None]}
    if table is None or name is not None and name not in FILE_CLASSES:
        raise CheckpointError(f"tokenizer_config.json: tokenizer_class is {shown(name)}, served "
                              "for such files is RobertaTokenizer.")
    pattern, adds_space = _pattern(table.get("pre_tokenizer"))
    return {"composes": _composes(table.get("normalizer")), "pattern": pattern,
            "adds_space": adds_space, "frame": list(file_frame(processor, ids))}


def _check_model(model: dict[str, Any]) -> None:
    """Refuses what no byte-level model of ours has."""
    for key, served in (("dropout", (None, 0, 0.0)), ("continuing_subword_prefix", (None, "")),
                        ("end_of_word_suffix", (None, "")), ("byte_fallback", (None, False)),
                        ("ignore_merges", (None, False, True))):
        value = model.get(key)
        if (type(value), value) not in [(type(one), one) for one in served]:
            raise CheckpointError(f"tokenizer.json: the model's {key} is {shown(value)}, served "
                                  f"is {shown(served[-1])}.")


def _composes(part: Any) -> bool:
    """Whether the normaliser is NFC; False for none."""
    if isinstance(part, dict) and part.get("type") == "Sequence" \
            and isinstance(part.get("normalizers"), list) and len(part["normalizers"]) == 1:
        part = part["normalizers"][0]
    kind = part.get("type") if isinstance(part, dict) else part
    if kind is not None and kind != "NFC":
        raise CheckpointError(f"tokenizer.json: the normalizer is {shown(kind)}, served for "
                              "byte-level BPE are NFC and none.")
    return kind == "NFC"


def _pattern(part: Any) -> tuple[str, bool]:
    """(name of the pattern, whether a space is put in front of a text)."""
    steps = part.get("pretokenizers") if isinstance(part, dict) and part.get("type") == "Sequence" \
        else [part]
    if not isinstance(steps, list):
        steps = [None]
    kinds = [step.get("type") if isinstance(step, dict) else step for step in steps]
    last = steps[-1] if steps else None
    if kinds not in (["ByteLevel"], ["Split", "ByteLevel"]):
        raise CheckpointError(f"tokenizer.json: the pre_tokenizer is "
                              f"{' and '.join(map(shown, kinds)) or 'empty'}, served for "
                              "byte-level BPE is ByteLevel, alone or behind a Split.")
    adds_space, uses_regex = last.get("add_prefix_space", True), last.get("use_regex", True)
    if not isinstance(adds_space, bool) or uses_regex is not (len(steps) == 1):
        raise CheckpointError("tokenizer.json: the pre_tokenizer's add_prefix_space is not true "
                              "or false, or its use_regex is not true alone and false behind a "
                              "Split.")
    if len(steps) == 1:
        return "gpt2", adds_space
    split = steps[0].get("pattern")
    name = SPLITS.get(split["Regex"]) if isinstance(split, dict) \
        and isinstance(split.get("Regex"), str) else None
    if name is None or steps[0].get("behavior") != "Isolated" or steps[0].get("invert", False) \
            or adds_space:
        raise CheckpointError("tokenizer.json: the pre_tokenizer splits by an expression that is "
                              "not served; known are those of GPT-2 and Llama 3, isolated.")
    return name, False


def _text_merges(data: bytes) -> list[str]:
    """The lines of a merges.txt, its version left out."""
    try:
        lines = data.decode("utf-8").replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"merges.txt: is not UTF-8 at byte {error.start}; save it as "
                              "UTF-8.") from None
    return [line for line in lines if line and not line.startswith("#version")]


def _merges(merges: Any, ids: dict[str, int], where: str) -> list[tuple[str, str]]:
    """Each merge's left and right token, as bytes, in order."""
    if not isinstance(merges, list):
        raise CheckpointError(f"{where}: merges is {shown(merges)}, not a list; save the "
                              "tokenizer again.")
    found = []
    for number, merge in enumerate(merges, 1):
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(pair, list) or len(pair) != 2 \
                or not all(isinstance(part, str) and part for part in pair):
            raise CheckpointError(f"{where}: merge {number} is {shown(merge)}, not two tokens; "
                                  "save the tokenizer again.")
        unknown = next((token for token in (*pair, "".join(pair)) if token not in ids), None)
        if unknown is not None:
            raise CheckpointError(f"{where}: merge {number} needs the token {shown(unknown)}, "
                                  "which the vocabulary lacks; the two are of different models.")
        left, right = map(_written, pair)
        # One with a token that no bytes are written as is never used.
        if left is not None and right is not None:
            found.append((left, right))
    return found


def _bytes_written() -> dict[str, str]:
    """How GPT-2 writes bytes: as themselves where they print, the others from U+0100 on."""
    printed = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printed]
    return {**{chr(byte): chr(byte) for byte in printed},
            **{chr(0x100 + number): chr(byte) for number, byte in enumerate(others)}}


BYTE_ALPHABET = _bytes_written()


def _written(token: str) -> str | None:
    """The token's bytes as code points 0 to 255; None if it is not written in bytes."""
    try:
        return "".join(map(BYTE_ALPHABET.__getitem__, token))
    except KeyError:
        return None
