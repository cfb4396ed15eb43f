"""The README.md of a trained model: what it is, how it was made, what it gets right."""

import argparse
import hashlib
import shlex
from pathlib import Path

from tools.training.report import Report
from tools.training.texts import TrainingError

# They say where the model lies, not how it was made.
UNTOLD = {"train", "out", "force", "card", "folds"}


def opening(options: argparse.Namespace) -> str:
    """The text of --card, or a title. Raises TrainingError."""
    if options.card is None:
        return f"# {options.out.absolute().name}\n\nA BERT text classifier.\n"
    try:
        return options.card.read_text("utf-8")
    except OSError as error:
        raise TrainingError(f"{options.card}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise TrainingError(f"{options.card} is not UTF-8 at byte {error.start}") from None


def model_card(first: str, command: str, facts: list[str], held_out: str, report: Report) -> str:
    """`first` opens it, `facts` are sentences about the training, `held_out` names the texts
    that `report` is about."""
    listed = "".join(f"- {fact}\n" for fact in facts)
    return (f"{first.rstrip()}\n\n## How it was made\n\n`{command}`\n\n{listed}\n"
            f"## On {held_out}\n\nNo weight was learnt from these texts.\n\n"
            f"```\n{report.text()}\n```\n")


def command(parser: argparse.ArgumentParser, options: argparse.Namespace) -> str:
    """The command that makes this model again, without the flags at their defaults."""
    words = ["python", "-m", "tools.train", options.train]
    for name, value in vars(options).items():
        if name in UNTOLD or value is None or value is False or value == parser.get_default(name):
            continue
        flag = "--" + name.replace("_", "-")
        words += [flag] if value is True else [flag, str(value)]
    return shlex.join(words)


def fingerprint(path: str) -> str:
    """The first 12 hex digits of a file's sha256."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:12]
