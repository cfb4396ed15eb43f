"""How far the 8-bit programs for GPUs are from fp32, with a GPU that is played on a CPU core.

    python -m tests.eight_bits MODEL [--texts FILE] [--goldens FILE] [--wide fp16]

builds the programs of both kinds as a GPU engine does (probes, gates and graphs; torch's own
operators, on CPU tensors) and prints figures: of the texts, one a line with or without a label and
a tab before it, the share whose largest logit is fp32's; of the goldens (a golden.json) the share
whose largest logit is the golden's. Exit code 1 where one is below 99 %, or a gate refuses.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.figures import emit
from loader.prepare import map_file, prepare
from loader.tokenizers.table import open_tokenizer
from model.device.recorder import Recorder
from model.device.script import Script, write
from model.families.table import FAMILIES, build
from model.grid import buckets
from model.program import Row
from model.programs import on_device

NEEDED = 0.99
KINDS = ("int8", "fp8")
SELF_TEST_TEXTS = 8
# Of a launch; a CPU core gains nothing from more.
TOKEN_CAP = 512
PART = 32


class Model:
    """A model, its texts and fp32's logits for them; goldens are texts with logits of their own."""

    def __init__(self, path: str, texts: Sequence[str], goldens: Sequence[dict]) -> None:
        prepared = prepare(path, Path(path).name, FAMILIES, for_devices=True)
        wide_fds = [prepared.wide_fd] if prepared.wide_fd is not None else []
        self.images = [map_file(fd) for fd in (prepared.weights_fd, *wide_fds)]
        card = {**prepared.card, "buckets": buckets(prepared.card["max_tokens"])}
        tokenizer = open_tokenizer(prepared.tokenizer)

        def row(text: str, pair: str | None = None) -> Row:
            encoding = tokenizer.encode(text, pair, card["max_tokens"])
            return Row(np.array(encoding.ids), encoding.split)

        self.rows = [row(text) for text in texts]
        self.golden_rows = [row(one["text"], one.get("text_pair")) for one in goldens]
        self.golden_logits = np.array([one["logits"] for one in goldens])
        reference = build({**card, "precision": "fp32"}, *self.images)
        self.logits = in_parts(reference, self.rows)
        few = self.rows[:SELF_TEST_TEXTS] or self.golden_rows[:SELF_TEST_TEXTS]
        self.card = {**card, "self_test": card.get("self_test") or [
            {"ids": one.ids.tolist(), "split": one.split, "logits": logits.tolist()}
            for one, logits in zip(few, in_parts(reference, few))]}

    def program(self, kind: str, wide: str):
        """The program that a GPU engine would serve with `--precision KIND`. Raises NoNetwork."""
        with tempfile.NamedTemporaryFile() as file:
            write(file.name, f"arithmetic {wide} {kind}\n")
            device = Recorder(Script(file.name))
            return on_device.build(self.card, self.images, device, on_device.Options(
                TOKEN_CAP, 1 << 30, precision=kind))


def in_parts(program, rows: Sequence[Row]) -> np.ndarray:
    """Logits, float32 [texts, C]."""
    found = [program.run(rows[at:at + PART]) for at in range(0, len(rows), PART)]
    return np.concatenate(found) if found else np.zeros((0, 1), np.float32)


def judge(model: Model, kind: str, wide: str) -> float:
    """Prints the figures of one kind; the least share of decisions that are the same."""
    program = model.program(kind, wide)
    facts = {"wide": wide, "operators": list(program.choice.operators)}
    least = 1.0
    for name, rows, wanted in (("texts", model.rows, model.logits),
                               ("goldens", model.golden_rows, model.golden_logits)):
        if rows:
            found = in_parts(program, rows)
            share = float((found.argmax(1) == wanted.argmax(1)).mean())
            off = np.abs(found - wanted)
            emit(f"eight_bits.{kind}.{name}", share, "same decisions", (), count=len(rows),
                 mean_difference=round(float(off.mean()), 4),
                 largest_difference=round(float(off.max()), 4), **facts)
            least = min(least, share)
    return least


def main(argv: list[str]) -> int:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m tests.eight_bits")
    parser.add_argument("model")
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--goldens", type=Path)
    parser.add_argument("--wide", choices=("fp16", "bf16", "fp32"), default="fp32")
    chosen = parser.parse_args(argv)
    if not (chosen.texts or chosen.goldens):
        parser.error("give --texts, --goldens or both")
    texts = [line.rpartition("\t")[2] for line in chosen.texts.read_text("utf-8").splitlines()] \
        if chosen.texts else []
    goldens = json.loads(chosen.goldens.read_text("utf-8"))["entries"] if chosen.goldens else []
    model = Model(chosen.model, texts, goldens)
    try:
        shares = [judge(model, kind, chosen.wide) for kind in KINDS]
    except on_device.NoNetwork as refusal:
        print(refusal, file=sys.stderr)
        return 1
    return 0 if min(shares) >= NEEDED else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
