"""`python -m tests.simulate`: many seeds on all cores, what they reached, how to replay one."""

import argparse
import hashlib
import multiprocessing
import os
import sys
import time
from collections import Counter

from tests.simulate.play import Outcomes, play

# Each must be met this often in a full run (--seeds 2000), else the faults miss their mark.
RARE = ("job sent again", "job sent alone", "group refused", "refused early: refused",
        "refused early: outage", "cancel", "link cut", "stop", "stop of all", "stale result",
        "open request of a dead front", "engine died with a batch", "engine crashed unseen",
        "batch of a dead dispatcher finished", "batch failed", "blame noted",
        "dispatcher died of sigkill", "dispatcher died of sigsegv", "forkserver died of sigkill",
        "front died of sigkill", "answer to a client that left", "row failed in a partial group",
        "engine asked of a dead forkserver", "killed past its lease: engine",
        "killed past its lease: front", "reload ok", "reload failed", "TERM",
        "TERM during a reload", "batch answered by a GPU", "GPU engine ended with batches",
        "GPU engine killed past its due", "GPU's logits not finite", "GPU tight: memory_low",
        "GPU ok: memory_back", "GPU critical: pressure", "GPU critical: allocation",
        "GPU recovering: cuda_error", "GPU recovering: killed", "GPU recovering: reload",
        "GPU lost: device_lost", "GPU ok: served", "high batch overtook a low one on a GPU",
        "known text", "text known to a front", "text joined",
        "answer for the twins of a job that left", "answer for twins of several fronts",
        "answer for twins of both classes", "answer for twins that are suspects",
        *(f"{role} of a {phase} generation died beside another"
          for role in ("front", "dispatcher", "engine", "forkserver")
          for phase in ("rehearsal", "serving", "replaced")),
        "end: ok", "end: deadline", "end: aged", "end: failed", "end: refused", "end: outage")
RARE_TIMES, FULL_RUN_SEEDS = 100, 2000


def main(argv: list[str] | None = None) -> int:
    """Plays seeds; 1 if any breaks a promise, or a full run reached a rare path too seldom."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many (default 200)")
    parser.add_argument("--first", type=int, default=0, help="the first one (default 0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--trace", action="store_true", help="print every event, in one process")
    options = parser.parse_args(argv)
    seeds = range(options.first, options.first + options.seeds)
    if options.trace:
        outcomes = [play(seed, trace=print) for seed in seeds]
    else:
        with multiprocessing.Pool(options.jobs) as pool:
            outcomes = _collect(pool.imap(play, seeds, chunksize=4), len(seeds))
    return _judge(outcomes, options.seeds)


def _collect(played, total: int) -> list[Outcomes]:
    outcomes, started, shown = [], time.monotonic(), 0.0
    for outcome in played:
        outcomes.append(outcome)
        for violation in outcome.violations[:3]:
            print(f"seed {outcome.seed}: {violation}\n  replay: python -m tests.simulate "
                  f"--first {outcome.seed} --seeds 1 --trace", flush=True)
        took = time.monotonic() - started
        if took - shown > 5.0 or len(outcomes) == total:
            shown = took
            print(f"{len(outcomes)}/{total} seeds, {len(outcomes) / took:.1f} a second, "
                  f"{(total - len(outcomes)) * took / len(outcomes):.0f} s left",
                  file=sys.stderr, flush=True)
    return outcomes


def _judge(outcomes: list[Outcomes], seeds: int) -> int:
    reached: Counter[str] = Counter()
    digest = hashlib.blake2b(digest_size=16)
    for outcome in outcomes:
        reached.update(outcome.reached)
        digest.update(f"{outcome.seed} {outcome.digest}\n".encode())
    for what in sorted(set(RARE) | set(reached)):
        print(f"{reached[what]:>9}  {what}")
    violations = sum(len(outcome.violations) for outcome in outcomes)
    finished = sum(outcome.finished for outcome in outcomes)
    missed = [what for what in RARE if reached[what] < RARE_TIMES]
    print(f"seeds {seeds}, finished requests {finished}, violations {violations}, "
          f"trace hash {digest.hexdigest()}")
    if missed and seeds >= FULL_RUN_SEEDS:
        print(f"reached less than {RARE_TIMES} times: {', '.join(missed)}")
        return 1
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
