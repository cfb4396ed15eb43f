"""`python -m tests.chaos`: the acts in order, a line a claim with its figure, 1 if one fails.

    python -m tests.chaos [--model DIR] [--texts FILE] [--engine-kills 500] [--seed 1] …
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from tests.chaos.acts import Claims, crowd_act, master_act, trap_act
from tests.house import ROOT

ECHO = ROOT / "tests" / "fixtures" / "echo"
WORDS = ("win a free phone now", "see you at six", "call 09061701461 to claim", "ok", "",
         "the quick brown fox jumps over the lazy dog " * 3, "a b c d e f g h", "prize " * 30)


def read_texts(path: Path | None) -> list[str]:
    """The texts of a TSV file (last column), at most 300; without a file a few of our own."""
    if path is None:
        return list(WORDS)
    lines = path.read_text("utf-8").splitlines()
    return [line.rpartition("\t")[2] for line in lines[:300]]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=ECHO, help="checkpoint (default: echo)")
    parser.add_argument("--texts", type=Path, help="TSV file, the text in its last column")
    for role, count in (("engine", 500), ("dispatcher", 100), ("forkserver", 20), ("front", 100)):
        parser.add_argument(f"--{role}-kills", type=int, default=count,
                            help=f"kill -9 of a {role} (default {count})")
    parser.add_argument("--clients", type=int, default=16, help="connections (default 16)")
    parser.add_argument("--seed", type=int, default=1, help="order of the faults (default 1)")
    options = parser.parse_args(argv)
    kills = {role: getattr(options, f"{role}_kills")
             for role in ("engine", "dispatcher", "forkserver", "front")}
    claims = Claims()
    with tempfile.TemporaryDirectory(prefix="firebrick-chaos-") as scratch:
        folder = Path(scratch) / options.model.name
        shutil.copytree(options.model, folder)
        folder.chmod(0o755)
        for path in folder.iterdir():
            path.chmod(0o644)
        without_fronts = {role: min(count, 20) for role, count in kills.items() if role != "front"}
        crowd_act(claims, "fronts left alone", folder, read_texts(options.texts), options.clients,
                  without_fronts, options.seed, damage=False)
        crowd_act(claims, "every role", folder, read_texts(options.texts), options.clients, kills,
                  options.seed + 1, damage=True)
    trap_act(claims, ECHO)
    master_act(claims, ECHO)
    return claims.summary()


if __name__ == "__main__":
    sys.exit(main())
