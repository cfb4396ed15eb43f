"""What padding would cost: tokens that are computed and thrown away, by way of making batches.

    python -m bench.padding [--model DIR]

The shipped texts as they are (`short`) and the mixed lengths of bench/traffic.json (`profile`)
arrive in a fixed order and go in batches of 32. One JSON line a figure, nothing is timed:

padding.share   padding as a share of all tokens that products compute; for ours, the rows that fill
                each call up to whole tiles, or to a count that keeps every bit
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench.figures import ROOT, emit
from bench.front import TEXTS
from bench.load import SEED, traffic
from bench.ours import Model
from loader.errors import CheckpointError
from model.grid import bucket, buckets
from model.program import Program
from model.programs.costs import filler
from model.programs.packing import cut

MODEL = ROOT / "models" / "sms-spam"
PROFILE = ROOT / "bench" / "traffic.json"
BATCH_TEXTS = 32


def in_batches(lengths: Sequence[int]) -> Iterator[Sequence[int]]:
    """BATCH_TEXTS of them at a time, in their order."""
    for start in range(0, len(lengths), BATCH_TEXTS):
        yield lengths[start:start + BATCH_TEXTS]


def to_longest(lengths: Sequence[int]) -> int:
    """Tokens computed where each batch is padded to its longest text.

    Example: 3 and 5 tokens in one batch are 10.
    """
    return sum(len(batch) * max(batch) for batch in in_batches(lengths))


def to_buckets(lengths: Sequence[int], most: int) -> int:
    """Tokens computed where each text is padded to its own bucket of a model that takes `most`."""
    sizes = buckets(most)
    return sum(bucket(length, sizes) for length in lengths)


def packed(lengths: Sequence[int], cap: int, fill: Callable[[int], int]) -> int:
    """Tokens computed where batches are packed into calls of at most `cap` tokens, and `fill` says
    how many rows a call computes for so many."""
    return sum(fill(sum(len(row.ids) for row in call)) for batch in in_batches(lengths)
               for call in cut([filler(length) for length in batch], cap))


def rows_of(program: Program) -> Callable[[int], int]:
    """How many rows the products of one call compute for so many tokens."""
    from model.native.program import NativeProgram  # torch, only now
    from model.native.sums import TILE, VectorSums

    if not isinstance(program, NativeProgram):
        return program.plan.fill
    step = TILE if "amx" in program.facts["kernels"].values() else VectorSums.ROWS
    return lambda rows: -(-rows // step) * step


def shares(lengths: Sequence[int], most: int, cap: int, fill: Callable[[int], int]
           ) -> dict[str, float]:
    """Padding's share of the computed tokens by way of making batches."""
    computed = {"firebrick": packed(lengths, cap, fill),
                "sorted": to_longest(sorted(lengths)),
                "buckets": to_buckets(lengths, most),
                "arrival": to_longest(lengths),
                "limit": len(lengths) * most}
    return {way: 1 - sum(lengths) / tokens for way, tokens in computed.items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.padding")
    parser.add_argument("--model", default=str(MODEL), help="checkpoint folder")
    options = parser.parse_args()
    from model.families.table import build  # torch, only now

    try:
        model = Model(options.model)
    except CheckpointError as error:
        parser.exit(2, f"{error}\n")
    program = build(model.card, model.weights, model.wide)
    chance = random.Random(SEED)
    for name, profile in (("short", None), ("profile", PROFILE)):
        texts = traffic(profile, chance)
        chance.shuffle(texts)
        lengths = [len(ids) for ids in model.encode(texts)]
        found = shares(lengths, model.card["max_tokens"], program.token_cap, rows_of(program))
        for way, share in found.items():
            emit("padding.share", share, "of tokens", way=way, traffic=name, texts=len(lengths),
                 tokens=sum(lengths), batch=BATCH_TEXTS, model=model.name,
                 file=TEXTS.name if profile is None else profile.name)


if __name__ == "__main__":
    main()
