"""What a checkpoint's files say of a Unigram tokeniser, checked and made a table."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy

from loader.errors import CheckpointError, shown
from loader.tokenizers.added_files import added_rows
from loader.tokenizers.files import TokenizerFiles
from loader.tokenizers.frame_files import file_frame
from loader.tokenizers.piece_trie import LONGEST_PIECE, build_trie
from loader.tokenizers.settings_files import FILE_CLASSES, cuts_left
from loader.tokenizers.unigram_normalizer import read_normalizer

# What an unknown code point costs beyond the worst piece.
UNKNOWN_PENALTY = 10.0


def unigram_table(files: TokenizerFiles) -> dict[str, Any]:
    """The table that `Unigram` takes: JSON-able values, and arrays. Raises CheckpointError."""
    file = files.tokenizer_json
    pieces, scores, unknown = _read_model(file["model"])
    if files.tokenizer_config.get("tokenizer_class") in FILE_CLASSES:
        scores = [_as_library_reads(score) for score in scores]
    ids = {piece: number for number, piece in enumerate(pieces)}
    added = added_rows(files, ids, {})
    rules = _metaspace(file.get("pre_tokenizer"))
    normalizer = read_normalizer(file.get("normalizer"))
    # Of a piece given twice the last counts, for its score too; nothing is an empty piece.
    distinct = {piece: number for piece, number in ids.items() if piece}
    trie = build_trie(list(distinct))
    cells = trie.pop("cells")
    cell_ids = numpy.full(len(trie["parents"]), unknown, dtype=numpy.int32)
    cell_ids[cells] = list(distinct.values())
    cell_scores = numpy.zeros(len(trie["parents"]))
    cell_scores[cells] = [scores[number] for number in distinct.values()]
    frame = file_frame(file.get("post_processor"),
                       {**ids, **{content: number for content, number, *_ in added}})
    return {"frame": list(frame), "cuts_left": cuts_left(files), "added": added,
            "normalizer": normalizer, "metaspace": rules, "unknown": unknown,
            "unknown_score": min(scores) - UNKNOWN_PENALTY,
            "longest": max(map(len, distinct)), **trie, "ids": cell_ids, "scores": cell_scores}


def _read_model(model: dict[str, Any]) -> tuple[list[str], list[float], int]:
    """(pieces, scores, id of the unknown one)."""
    if model.get("byte_fallback"):
        raise CheckpointError("tokenizer.json: the Unigram model has byte_fallback, which is not "
                              "served; use a tokenizer with an unknown token.")
    vocabulary = model.get("vocab")
    if not isinstance(vocabulary, list) or not vocabulary:
        raise CheckpointError("tokenizer.json: model.vocab is not a list of pieces with scores; "
                              "save the tokenizer again.")
    for entry in vocabulary:
        if not isinstance(entry, list) or len(entry) != 2 or not isinstance(entry[0], str) \
                or type(entry[1]) not in (int, float) or not math.isfinite(entry[1]):
            raise CheckpointError(f"tokenizer.json: model.vocab holds {shown(entry)}, not a piece "
                                  "with its score; save the tokenizer again.")
    pieces, scores = zip(*vocabulary)
    unknown = model.get("unk_id")
    if type(unknown) is not int or not 0 <= unknown < len(pieces):
        raise CheckpointError(f"tokenizer.json: unk_id is {shown(unknown)}, not the number of one "
                              f"of the {len(pieces)} pieces; save the tokenizer again.")
    longest = max(pieces, key=len)
    if not longest or len(longest) > LONGEST_PIECE:
        raise CheckpointError(f"tokenizer.json: the longest piece has {len(longest)} code points, "
                              f"served are 1 to {LONGEST_PIECE}; train the tokenizer again.")
    return list(pieces), [float(score) for score in scores], unknown


def _as_library_reads(score: float) -> float:
    """The score as the `tokenizers` library reads it from a file, sometimes the next float64: it
    divides the decimal digits, made one float, by a power of ten. The reference reads a file so
    for classes without rules of their own; for others it hands over the nearest floats."""
    sign, digits, exponent = Decimal(repr(score)).as_tuple()
    if exponent < -300:
        return score                # no piece is so likely that this could matter
    whole = float(int("".join(map(str, digits))))
    size = whole / 10.0 ** -exponent if exponent < 0 else whole * 10.0 ** exponent
    return -size if sign else size


def _metaspace(part: Any) -> list[Any]:
    """[mark, whether the first word gets one, whether text is split at white space before]."""
    steps = part.get("pretokenizers") if isinstance(part, dict) and part.get("type") == "Sequence" \
        else [part]
    kinds = [step.get("type") if isinstance(step, dict) else step for step in steps] \
        if isinstance(steps, list) else []
    if kinds not in (["Metaspace"], ["WhitespaceSplit", "Metaspace"]):
        raise CheckpointError(f"tokenizer.json: the pre_tokenizer is "
                              f"{' and '.join(map(shown, kinds)) or 'empty'}, served for a Unigram "
                              "model is Metaspace, alone or behind a WhitespaceSplit.")
    step, splits = steps[-1], len(steps) == 2
    mark = step.get("replacement", "▁")
    if not isinstance(mark, str) or len(mark) != 1 or mark.isspace():
        raise CheckpointError(f"tokenizer.json: Metaspace's replacement is {shown(mark)}, not one "
                              "visible character; save the tokenizer again.")
    # The older spelling has add_prefix_space alone.
    adds, scheme = step.get("add_prefix_space"), step.get("prepend_scheme", "always")
    if adds is False and "prepend_scheme" not in step:
        scheme = "never"
    if scheme not in ("always", "never") or adds not in (None, scheme == "always"):
        raise CheckpointError(f"tokenizer.json: Metaspace's prepend_scheme is {shown(scheme)}, "
                              "served are always and never; save the tokenizer again.")
    if step.get("split", True) is not True:
        raise CheckpointError("tokenizer.json: Metaspace's split is false, served is true; save "
                              "the tokenizer again.")
    return [mark, scheme == "always", splits]
