"""Benchmarks that behave in one way each: python -m tests.fake_bench good|fail|hang|garbage."""

import sys
import time

from bench.figures import emit

if __name__ == "__main__":
    way = sys.argv[1]
    emit(f"fake.{way}", 1.0, "s", [0.5, 1.0, 2.0])
    if way == "fail":
        sys.exit("the disk is full")
    if way == "garbage":
        print("<b>not a figure</b>")
    if way == "hang":
        time.sleep(600)
