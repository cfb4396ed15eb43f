"""`PYTHON -m tests.against_tokenizers TOKENIZER_JSON …`: random texts against that package.

Run by hand, by a Python that has the `tokenizers` package and numpy. Every text must have the same
ids, as a whole, in parts, and cut; 1 and the first differences if one has not.
"""

import argparse
import importlib
import json
import random
import sys
from pathlib import Path

from loader.tokenizers.table import TokenizerFiles, compile_tokenizer, open_tokenizer

FILE_CLASS = "PreTrainedTokenizerFast"
UNLIMITED = 1 << 30
SHOWN = 5
# (first, last) code points, chosen from alike: so ASCII and marks are frequent, the rest is seen.
RANGES = [(0x20, 0x7E), (0x20, 0x7E), (0x20, 0x7E), (0x61, 0x7A), (0x61, 0x7A), (0, 0x2FF),
          (0x300, 0x36F), (0x370, 0x5FF), (0x600, 0x8FF), (0x900, 0xDFF), (0xE00, 0x10FF),
          (0x1100, 0x11FF), (0x1E00, 0x20FF), (0x2100, 0x2BFF), (0x3000, 0x30FF),
          (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xF900, 0xFFFF), (0x10000, 0x1FFFF),
          (0x1F300, 0x1F6FF), (0x20000, 0x323AF), (0xE0000, 0xE01EF), (0, 0xD7FF), (0, 0x10FFFF)]
SNIPPETS = [" ", " ", "  ", "   ", "\n", "\r\n", "\t", "\u3000", "\xa0", "\x85", "\u2028", "\x1c",
            "'s", "'S", "'ſ", "'ll", "'LL", "'re", "'Ve", "'d", "'", "`", "``", "''", "the",
            " of", "ing", "123", "1234567", "...", "!!\n", "-----", "\u0301", "\u0323\u0301",
            "e\u0301", "ﬁ", "İ", "Σ", "ß", "ẞ", "Ａ", "ｶﾞ", "각", "가", "क्षि", "👩‍👩‍👧", "🇩🇪",
            "\u200b", "\u200d", "\ufeff", "\ufffd", "\xad", "▁", "Ġ", "##", "café", "日本", "東京",
            "Ж", "привет", "שלום", "سلام", "สวัสดี", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]


def random_text(rng: random.Random, contents: list[str]) -> str:
    """A text of some 0 to 60 code points; in one of four, added tokens in three spellings."""
    first, last = rng.choice(RANGES)
    parts = []
    with_tokens = contents and rng.random() < .25
    for _ in range(rng.randrange(30)):
        kind = rng.random()
        if kind < .3:
            parts.append(rng.choice(SNIPPETS))
        elif with_tokens and kind < .5:
            token = rng.choice(contents)
            parts.append(rng.choice((token, token, token.lower(), token[:-1])))
        else:
            if kind > .9:
                first, last = rng.choice(RANGES)
            parts.append(chr(rng.randint(first, last)))
    return "".join(part for part in parts if not "\ud800" <= part <= "\udfff")


def differences(path: Path, config: dict, count: int, seed: int) -> list[str]:
    """What has other ids here than there, of `count` random texts."""
    reference_class = importlib.import_module("tokenizers").Tokenizer
    table = json.loads(path.read_text("utf-8"))
    reference = reference_class.from_file(str(path))
    reference.no_padding()
    reference.no_truncation()
    ours = open_tokenizer(compile_tokenizer(TokenizerFiles(table, None, config, {})))
    left = open_tokenizer(compile_tokenizer(
        TokenizerFiles(table, None, {**config, "truncation_side": "left"}, {})))
    contents = [token["content"] for token in table["added_tokens"]]
    rng, found = random.Random(seed), []
    for _ in range(count):
        text = random_text(rng, contents)
        wanted = reference.encode(text).ids
        bare = reference.encode(text, add_special_tokens=False).ids
        limit = rng.randint(4, 40)
        cut = reference.encode(text)
        cut_left = reference.encode(text)
        if len(wanted) > limit:
            reference.enable_truncation(limit)
            cut = reference.encode(text)
            reference.enable_truncation(limit, direction="left")
            cut_left = reference.encode(text)
            reference.no_truncation()
        for what, got, ids in (
                ("whole", ours.encode(text, None, UNLIMITED).ids, wanted),
                ("parts", [one for part in ours.parts(text) for one in part], bare),
                ("cut", ours.encode(text, None, limit).ids, cut.ids),
                ("cut left", left.encode(text, None, limit).ids, cut_left.ids)):
            if got != ids:
                found.append(f"{what} {text!r}: {got} instead of {ids}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.against_tokenizers", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, help="tokenizer.json files")
    parser.add_argument("--count", type=int, default=100_000, help="texts a file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--config", type=json.loads, default={"tokenizer_class": FILE_CLASS},
                        help="tokenizer_config.json to go with them, as JSON")
    options = parser.parse_args()
    failed = 0
    for path in options.files:
        found = differences(path, options.config, options.count, options.seed)
        failed += bool(found)
        print(f"{path.parent.name}: {options.count} texts, {len(found)} differences", flush=True)
        for line in found[:SHOWN]:
            print(f"  {line}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
