"""Unigram files that are not served are refused, each with file, fault and way out."""

import base64

import pytest

from loader.errors import CheckpointError
from loader.tokenizers.table import TokenizerFiles, compile_tokenizer
from tests.small_charsmap import build
from tests.test_loader_tokenizers_unigram import (
    BLANKS, CHARSMAP, METASPACE, PIECES, RUNS, SPLIT, sequence, small,
)

STRIP = {"type": "Strip", "strip_left": True, "strip_right": True}
QUOTES = {"type": "Replace", "pattern": {"String": "``"}, "content": '"'}


def refusal(table):
    with pytest.raises(CheckpointError) as caught:
        compile_tokenizer(TokenizerFiles(table, None, {}, {}))
    message = str(caught.value)
    assert message.startswith("tokenizer.json: ") and message.endswith(".") and "; " in message \
        or "served" in message
    return message


@pytest.mark.parametrize("changes,expected", [
    ({"byte_fallback": True}, "byte_fallback"), ({"vocab": {}}, "not a list"),
    ({"vocab": []}, "not a list"), ({"vocab": [["a"]]}, "holds"),
    ({"vocab": [["a", "b"]]}, "holds"), ({"vocab": [["a", True]]}, "holds"),
    ({"vocab": [["a", float("inf")]]}, "holds"), ({"vocab": [[1, 0]]}, "holds"),
    ({"unk_id": None}, "unk_id"), ({"unk_id": len(PIECES)}, "unk_id"), ({"unk_id": -1}, "unk_id"),
    ({"vocab": [*PIECES[:4], ["a" * 1025, 0]]}, "1025"), ({"vocab": [["", 0]], "unk_id": 0}, "0"),
])
def test_unigram_model_that_is_not_served_is_refused(changes, expected):
    changes = {key: [list(entry) if isinstance(entry, tuple) else entry for entry in value]
               if isinstance(value, list) else value for key, value in changes.items()}
    assert expected in refusal(small(**changes))


@pytest.mark.parametrize("part,expected", [
    ({"type": "Nmt"}, "Nmt"), ({"type": "Prepend", "prepend": "▁"}, "Prepend"), ("NFC", "NFC"),
    ({"no": "type"}, "no"), (sequence(sequence(CHARSMAP)), "Sequence"),
    ({"type": "Replace", "pattern": {"Regex": "a+"}, "content": "b"}, "a+"),
    ({"type": "Replace", "pattern": {"String": " "}, "content": "▁"}, "' '"),
    ({"type": "Replace", "pattern": {"String": ""}, "content": "▁"}, "''"),
    ({"type": "Replace", "pattern": "a", "content": "▁"}, "replaces"),
    ({**RUNS, "content": "_"}, "_"), (sequence(CHARSMAP, QUOTES), "Replace"),
    (sequence(RUNS, CHARSMAP), "Precompiled"), (sequence(CHARSMAP, BLANKS), "Replace"),
    (sequence(CHARSMAP, STRIP), "Strip"), (sequence(STRIP, STRIP), "Strip"),
    ({"type": "Strip", "strip_left": True}, "Strip"),
    (sequence(QUOTES, {**QUOTES, "pattern": {"String": '"'}}), "Replace"),
    ({"type": "Precompiled", "precompiled_charsmap": build({" ": "x"})}, "spaces"),
    ({"type": "Precompiled"}, "damaged"),
    ({"type": "Precompiled", "precompiled_charsmap": "%%"}, "damaged"),
    ({"type": "Precompiled", "precompiled_charsmap": ""}, "damaged"),
    ({"type": "Precompiled", "precompiled_charsmap": "//////8="}, "damaged"),
    ({"type": "Precompiled", "precompiled_charsmap": base64.b64encode(
        b"\4\0\0\0" + bytes(4) + b"\xff").decode()}, "damaged"),
])
def test_unigram_normalizer_that_is_not_served_is_refused(part, expected):
    assert expected in refusal({**small(), "normalizer": part})


def test_charsmap_whose_units_are_children_of_several_is_refused():
    """Every unit is the child of every other by some byte: a tree of 255 to the fifth leaves."""
    units = b"".join((byte | byte << 10).to_bytes(4, "little") for byte in range(256))
    data = base64.b64encode(len(units).to_bytes(4, "little") + units).decode()
    part = {"type": "Precompiled", "precompiled_charsmap": data}
    assert "damaged" in refusal({**small(), "normalizer": part})


@pytest.mark.parametrize("part,expected", [
    (None, "null"), (SPLIT, "WhitespaceSplit"), (sequence(METASPACE, METASPACE), "Metaspace"),
    ({"type": "Sequence", "pretokenizers": []}, "empty"),
    ({"type": "Sequence", "pretokenizers": 3}, "empty"),
    ({**METASPACE, "split": False}, "split"), ({**METASPACE, "prepend_scheme": "first"}, "first"),
    ({**METASPACE, "add_prefix_space": False}, "always"), ({**METASPACE, "replacement": ""}, "''"),
    ({**METASPACE, "replacement": " "}, "' '"), ({**METASPACE, "replacement": "__"}, "__"),
])
def test_unigram_pre_tokenizer_that_is_not_served_is_refused(part, expected):
    assert expected in refusal({**small(), "pre_tokenizer": part})
