"""Runs of id bytes: the bytes of what the tokeniser itself gives, whatever the kind and the cut."""

import random
from array import array

import pytest

from loader.checkpoint import Folder
from loader.tokenizer_files import read_tokenizer
from loader.tokenizers import encoding, id_runs
from loader.tokenizers.id_runs import IdRuns
from loader.tokenizers.table import compile_tokenizer, open_tokenizer

WORDS = ["win", "a", "free", "phone", "\n", "", "x" * 40, "don't", "[SEP]", "\u00a3100", "\u4e2d",
         "e\u0301", "<mask>", "ENTAILMENT", "\U0001f600", "  "]
# One of each kind, and one with added tokens that are cut out first.
FOLDERS = ["bert", "bert-added-flags", "roberta", "xlm-roberta"]


def tokenizers(shared, side):
    found = []
    for name in FOLDERS:
        with Folder(str(shared / "checkpoints" / name)) as opened:
            files = read_tokenizer(opened)[0]
        found.append(open_tokenizer(compile_tokenizer(files._replace(
            tokenizer_config={**files.tokenizer_config, "truncation_side": side}))))
    return found


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("code", ["H", "I"])
def test_id_runs_are_the_bytes_of_the_encoding(shared, monkeypatch, side, code):
    for module in (encoding, id_runs):
        monkeypatch.setattr(module, "WHOLE_CHARACTERS", 60)
    rng = random.Random(7)
    for tokenizer in tokenizers(shared, side):
        cut = 0
        for limit in (4, 9, 30):
            runs = IdRuns(tokenizer, code, limit)
            for _ in range(150):
                text = " ".join(rng.choices(WORDS, k=rng.randrange(12)))
                pair = rng.choice((None, None, "", "a pair"))
                wanted = tokenizer.encode(text, pair, limit)
                got = runs.encode(text, pair)
                assert got == (len(wanted.ids), wanted.split,
                               array(code, wanted.ids).tobytes(), wanted.truncated)
                cut += got[3]
        assert 50 < cut < 400, "both cut and whole texts are tried"
