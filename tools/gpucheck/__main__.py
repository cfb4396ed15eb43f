"""`python -m tools.gpucheck`: proves the GPU part on this machine's GPU in under 6 minutes.

Prints a JSON line for each measurement and each claim, and keeps them in bench/results under the
device's name; verdicts are told on stderr too. A claim is PASS, FAIL, SKIP (what it looks at is
missing here, in words) or NOT JUDGED (a speed that is promised for another device).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tools.gpucheck.parts import PARTS, TOTAL_S
from tools.gpucheck.runner import Results, run_part

QUICK = ("first",)


def main(argv: Sequence[str] | None = None) -> int:
    """0 when something was shown and nothing failed, 1 otherwise, 2 for a wrong flag."""
    chosen = _parser().parse_args(argv)
    names = QUICK if chosen.quick else tuple(chosen.only or PARTS)
    results, begun = Results(chosen.out), time.monotonic()
    for name in names:
        run_part(PARTS[name], chosen.device, results.add)
        results.save()
    counts = ", ".join(f"{len(claims)} {verdict}"
                       for verdict, claims in sorted(results.verdicts.items()))
    print(f"{counts or 'no claim'} in {time.monotonic() - begun:.0f} s; {results.path}",
          file=sys.stderr)
    return 0 if results.is_good() else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.gpucheck", allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="P" + __doc__.partition(": p")[2],
        epilog="parts, in this order, and the seconds that each may take (together "
               f"{TOTAL_S}):\n" + "\n".join(
                   f"  {part.name:11} {part.limit_s:3}  {part.shows}" for part in PARTS.values())
        + "\n\nexit status: 0 when something was shown and no claim failed, 1 otherwise, 2 for a "
          "wrong flag")
    parser.add_argument("--device", choices=("cuda", "recorder"), default="cuda",
                        help="recorder: a dry run on a CPU core, which says nothing of a GPU "
                             "(default cuda)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--only", metavar="PART", action="append", choices=tuple(PARTS),
                       help="this part alone; may be given several times")
    which.add_argument("--quick", action="store_true", help="the part first alone, in some 20 s")
    parser.add_argument("--out", metavar="FILE", type=Path,
                        help="for the lines (default bench/results/gpucheck-DEVICE.jsonl)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
