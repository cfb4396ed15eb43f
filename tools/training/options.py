"""The flags of tools.train: names, types, defaults, and what each one changes."""

import argparse
from collections.abc import Callable
from pathlib import Path

# An encoder has learnt before: a high rate would make it forget.
NEW_RATE, ENCODER_RATE = 1e-3, 5e-5
NEW_EPOCHS, ENCODER_EPOCHS = 10, 3
SMALLEST_LIMIT = 8  # tokens of a text; three are specials


class _Help(argparse.ArgumentDefaultsHelpFormatter):
    """Tells the defaults that are values: not those of switches and of what may be left out."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.default is None or action.default is False:
            return action.help
        return super()._get_help_string(action)


def parser() -> argparse.ArgumentParser:
    """Reads the command line. `--epochs` and `--learning-rate` may be None: their defaults hang
    on `--init`."""
    found = argparse.ArgumentParser(
        prog="python -m tools.train", add_help=False, allow_abbrev=False,
        formatter_class=_Help,
        description="Train a BERT text classifier from labelled texts, report on texts it has not "
                    "seen, and write a checkpoint folder in Hugging Face layout.")
    files = found.add_argument_group("files")
    files.add_argument("train", metavar="TRAIN.tsv", help="label<TAB>text a line, UTF-8")
    files.add_argument("--eval", metavar="EVAL.tsv",
                       help="texts to report on at the end, never used to choose anything; "
                            "without it a tenth of TRAIN.tsv is held out")
    files.add_argument("-o", "--out", type=Path, metavar="DIR", help="folder to write")
    files.add_argument("--force", action="store_true", help="replace the checkpoint in DIR")
    files.add_argument("--card", type=Path, metavar="FILE",
                       help="text that opens the model's README.md")
    files.add_argument("--folds", type=_number(int, 2, 100, "folds"), metavar="K",
                       help="write nothing: cross-validate on K parts of TRAIN.tsv")
    _add_start(found.add_argument_group("where it starts"))
    _add_size(found.add_argument_group("a new network's size"))
    _add_recipe(found.add_argument_group("recipe"))
    run = found.add_argument_group("run")
    run.add_argument("--seed", type=_number(int, 0, 2**63 - 1, ""), default=0, metavar="N",
                     help="of first weights, order and drop-out: the same seed and number of "
                          "threads give the same model")
    run.add_argument("--threads", type=_number(int, 1, 1024, "threads"), default=1, metavar="N",
                     help="cores to train on")
    run.add_argument("-h", "--help", action="help", help="show this and exit")
    return found


def _add_start(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--init", metavar="DIR",
                       help="start from this BERT encoder checkpoint and its tokenizer; otherwise "
                            "from random weights")
    group.add_argument("--vocab", type=Path, metavar="FILE",
                       help="take this vocab.txt; otherwise a vocabulary is learnt from TRAIN.tsv")
    group.add_argument("--vocab-size", type=_number(int, 16, 1 << 20, "tokens"), default=6000,
                       metavar="N", help="tokens to learn at most")
    group.add_argument("--cased", action="store_true",
                       help="tell upper from lower case and keep accents")


def _add_size(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--layers", type=_number(int, 1, 1000, "layers"), default=2, metavar="N",
                       help="encoder layers")
    group.add_argument("--width", type=_number(int, 1, 1 << 16, "numbers"), default=128,
                       metavar="N", help="numbers that stand for a token")
    group.add_argument("--heads", type=_number(int, 1, 1 << 10, "heads"), default=2, metavar="N",
                       help="attention heads of a layer; they divide the width")
    group.add_argument("--positions", type=_number(int, SMALLEST_LIMIT, 1 << 15, "tokens"),
                       default=512, metavar="N", help="longest text in tokens; more is cut")


def _add_recipe(group: argparse._ArgumentGroup) -> None:
    share = _number(float, 0.0, 0.95, "")
    group.add_argument("--epochs", type=_number(int, 1, 10_000, "epochs"), metavar="N",
                       help=f"times through the texts (default: {NEW_EPOCHS}, with --init "
                            f"{ENCODER_EPOCHS})")
    group.add_argument("--batch", type=_number(int, 1, 1 << 16, "texts"), default=32, metavar="N",
                       help="texts a step")
    group.add_argument("--learning-rate", type=_number(float, 1e-9, 1.0, ""), metavar="X",
                       help=f"of AdamW at its height (default: {NEW_RATE:g}, with --init "
                            f"{ENCODER_RATE:g})")
    group.add_argument("--warm-up", type=share, default=0.1, metavar="X",
                       help="share of the steps in which the rate rises; then it falls to 0")
    group.add_argument("--weight-decay", type=share, default=0.05, metavar="X",
                       help="of AdamW, on matrices alone")
    group.add_argument("--dropout", type=share, default=0.1, metavar="X",
                       help="share of the hidden numbers left out at a step")
    group.add_argument("--word-dropout", type=share, default=0.1, metavar="X",
                       help="share of the tokens made [UNK] at a step")
    group.add_argument("--label-smoothing", type=share, default=0.05, metavar="X",
                       help="share of a label's weight that goes to all labels")
    group.add_argument("--balance", type=_number(float, 0.0, 1.0, ""), default=0.0, metavar="X",
                       help="0 counts every text alike, 1 every label alike")


def _number(kind: Callable[[str], float], low: float, high: float, unit: str
            ) -> Callable[[str], float]:
    """A type for argparse: `kind` within [low, high], or one clause that says so."""
    def read(text: str) -> float:
        try:
            value = kind(text)
            if low <= value <= high:
                return value
        except ValueError:
            pass
        whole = "a whole number" if kind is int else "a number"
        raise argparse.ArgumentTypeError(
            f"{text!r} is not {whole} from {low:g} to {high:g}{' ' if unit else ''}{unit}")
    return read
