"""What serving itself costs, of the figures of bench.front, bench.serve and bench.tokenize."""

from __future__ import annotations

from collections.abc import Sequence

from bench.pages.section import Section, Table, plain, with_spread
from bench.results import Figure, select

# What a figure is, for a reader who does not know the program.
MEANINGS = {
    "front.ratio_64": "requests/s at 64 connections with a model that does nothing, as a share of "
                      "an epoll loop that parses nothing",
    "front.relay_ratio_1": "median round trip at one connection, as a multiple of a bare relay's "
                           "over the same hops",
    "front.p50_1_us": "that round trip",
    "front.dispatcher_core": "the dispatcher's share of a core at 64 connections",
    "front.decode_alone_us": "reading one text's body",
    "front.decode_of_64_us": "reading a body of 64 texts",
    "front.turn_max_ms": "the longest turn of a front's loop",
    "front.healthz_p99_ms": "p99 of /healthz while every engine is saturated",
    "serve.ready_s": "from the interpreter's start to the ready line",
    "serve.offline_ratio": "requests/s at 128 connections, as a share of the same programs "
                           "without HTTP",
    "serve.offline_left": "the same on the cores that the load client leaves",
    "serve.latency_ms": "p50 at 32 connections",
    "serve.dispatcher_core": "the dispatcher's share of a core at that load",
    "serve.engine_back_s": "from an engine's kill -9 until its successor is up",
    "serve.engine_uss_mb": "memory that is an engine's own after that load",
    "serve.index_100k_s": "indexing 100,000 records of a mapped file",
    "cache.hit_ms": "a text whose answer is known, with --cache-mb: from its last byte read",
    "cache.miss_ms": "the same of texts that were never sent before",
    "cache.hit_per_s": "requests/s at 32 connections while every answer is known",
    "cache.hit_ratio": "that as a multiple of the same server's without a cache",
    "neighbours.alone_p99_ms": "p99 at 30 % of the capacity, with nobody beside",
    "neighbours.pipelining_ms": "by how much one connection with 64 requests ahead raises it",
    "neighbours.long_request_ms": "by how much a request of 256 texts of full length raises it",
    "neighbours.p99_by_p50": "p99 by p50 at 70 % of the capacity",
    "neighbours.high_p99": "p99 of high priority at 90 % by that at 30 %, where 15 % are high",
    "soak.growth": "growth of memory over the second half of minutes at saturation, a share",
    "soak.errors": "answers that were not 2xx meanwhile, and socket errors",
    "soak.back_s": "from a burst of long texts until memory is back",
    "tokenize_warm": "texts tokenised a second by one thread",
    "tokenize_first_pass": "the same with an empty cache",
    "tokenize_peer": "texts a second of the package tokenizers, in the same rounds",
    "tokenize_to_peer": "ours against it",
    "tokenize_open": "what a front pays to open a tokeniser's tables",
    "tokenize_worst_body": "the slowest of many bodies of 4 MiB made to be slow, whole",
    "tokenize_longest_step": "the longest piece of work in one; between two a front serves others"}
WORST = ("tokenize_worst_body", "tokenize_longest_step")  # of many bodies the worst is shown
PREFIXES = ("front.", "serve.", "tokenize", "cache.", "neighbours.", "soak.")
TELLING = ("model", "texts", "file", "after", "body", "requests_per_s", "last_p99_ms", "engines")


def costs_section(figures: Sequence[Figure]) -> Section:
    """A table of all of them, each with the strip of its runs."""
    used = tuple(one for one in figures if one.name.startswith(PREFIXES))
    worst = {name: max(some, key=lambda one: one.value)
             for name in WORST if (some := select(used, name))}
    shown = tuple(one for one in used if one is worst.get(one.name, one))
    rows = tuple((MEANINGS.get(one.name, one.name), with_spread(one), one.unit,
                  "; ".join(f"{fact.replace('_', ' ')} {plain(one.facts[fact])}"
                            for fact in TELLING if fact in one.facts)) for one in shown)
    return Section(
        "costs", "What serving costs",
        "Everything around the model: parsing, dispatching, starting, healing, caching, greedy "
        "clients. A strip shows the runs from nought to the largest, the dot is their median.",
        "Not in this run: python -m bench.front --short, python -m bench.serve --short and "
        "python -m bench.tokenize measure it in some three minutes.", used, (),
        (Table("What serving costs: median of the runs, with the least and the largest",
               ("what", "figure", "unit", "of"), rows, shown),) if used else ())
