"""The flags that programs which measure a served model have in common."""

import argparse
from dataclasses import dataclass
from pathlib import Path

from bench.figures import ROOT
from bench.front import TEXTS

MODEL = ROOT / "models" / "sms-spam"
Rounds = tuple[int, float]      # how many, seconds each


@dataclass(frozen=True)
class Options:
    """What is measured; `flags` are the server's."""

    model: str
    texts: Path
    engines: int
    is_short: bool
    rounds: int
    seconds: float

    @property
    def name(self) -> str:
        """The model's, as figures have it."""
        return Path(self.model).name

    @property
    def flags(self) -> list[str]:
        return ["--model", self.model, "--engines", str(self.engines)]


def read_options(program: str, short: Rounds, full: Rounds) -> Options:
    """The command line of `python -m PROGRAM`; ends with 2 and a sentence where a file is missing.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {program}")
    lengths = [f"{rounds} rounds of {seconds:g} s" for rounds, seconds in (short, full)]
    parser.add_argument("--short", action="store_true", help=", else ".join(lengths))
    parser.add_argument("--model", default=str(MODEL), help="checkpoint folder or bundle")
    parser.add_argument("--texts", type=Path, default=TEXTS, help="one text a line, last column")
    parser.add_argument("--engines", type=int, default=2)
    given = parser.parse_args()
    for needed in (given.texts, Path(given.model) / "config.json"):
        if not needed.is_file():
            parser.exit(2, f"there is no {needed}\n")
    rounds, seconds = short if given.short else full
    return Options(given.model, given.texts, given.engines, given.short, rounds, seconds)
