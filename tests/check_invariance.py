"""`make check-invariance`: does this CPU earn the claim that a text's answer never depends on its
company, not by a bit?

Every product of the usual models in every precision, by every number of rows that its kernel may be
given; then whole programs: a text alone, moved, in other company, in ragged batches, and the same
in several processes that fight for the cores. One line a kernel, the verdict last. Exit status 1
where a bit differs.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence

import numpy as np
import torch

from model.families.table import build
from model.program import Program, Row
from model.programs.int8 import INT8_KERNELS, Int8Product, QuantisedWeight
from model.programs.probe import LIMITS, choose, make_random
from model.programs.script import settle
from tests import tiny_bert, tiny_families
from tests.test_model_invariance import BASE, DEFAULT, MINILM, PRECISIONS, can_compute
from tests.tiny_families import CONFIGS
from tools.building.writing import cpu_model

# [outputs, inputs] of the default model's, MiniLM's and BERT-base's products.
SHAPES = [(3 * hidden, hidden) for hidden in (128, 384, 768)] + \
    [(hidden, hidden) for hidden in (128, 384, 768)] + \
    [shape for hidden in (128, 384, 768) for shape in ((4 * hidden, hidden), (hidden, 4 * hidden))]
COMPANIES = 12     # batches of other company a program
PROCESSES_A_CORE = 2
LOAD_BATCHES = 8


def main(argv: list[str] | None = None) -> int:
    """Checks everything, prints as it goes; 1 where a bit differs."""
    parser = argparse.ArgumentParser(prog="make check-invariance", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of texts and companies")
    seed = parser.parse_args(argv).seed
    settle()
    begin, faults = time.monotonic(), []
    kinds = [kind for kind in PRECISIONS if can_compute(kind)]
    for kind in kinds:
        for shape in SHAPES:
            faults += told(*check_product(kind, shape))
    for name, card, weights in programs(kinds):
        faults += told(name, *check_program(card, weights, seed))
    left_out = [kind for kind in PRECISIONS if kind not in kinds]
    print(f"{'FAIL' if faults else 'PASS'}  {cpu_model()}, torch {torch.__version__}: "
          f"{', '.join(kinds)}{' (it has no ' + ', '.join(left_out) + ')' if left_out else ''}; "
          f"{len(faults)} differ, {time.monotonic() - begin:.0f} s")
    return 1 if faults else 0


def told(name: str, found: str, fault: str) -> list[str]:
    """Prints one line; [its fault], or [] where there is none."""
    print(f"{'FAIL' if fault else 'ok  '}  {name}: {found}{', ' + fault if fault else ''}",
          flush=True)
    return [fault] if fault else []


def check_product(kind: str, shape: tuple[int, int]) -> tuple[str, str, str]:
    """(name, what was found, the fault or "") of the kernel that serves this class of products."""
    name = f"{kind} {shape[0]}x{shape[1]}"
    try:
        kernel_name, counts = choose(kind, *shape)
    except ArithmeticError as error:
        return name, f"not served ({error})", ""
    if not counts:
        return name, kernel_name, "no two numbers of rows agree"
    found = f"{kernel_name}, {len(counts)} numbers of rows, {counts[0]} to {counts[-1]}"
    for kernel, x in _variants(kind, kernel_name, shape):
        with torch.inference_mode():
            expected = kernel(x[:counts[-1]].clone())
            for count in counts:
                for shift in {0, counts[-1] - count}:
                    part = kernel(x[shift:shift + count].clone())
                    if not torch.equal(part, expected[shift:shift + count]):
                        return name, found, f"{count} rows from row {shift} on differ"
    return name, found, ""


def programs(kinds: Sequence[str]):
    """(name, card, weights) of each program that is checked."""
    for config, name in ((DEFAULT, "default"), (MINILM, "minilm"),
                         ({**BASE, "num_hidden_layers": 1}, "bert-base")):
        for kind in kinds:
            card, weights = tiny_bert.make_model(**config)
            if kind in LIMITS:
                weights = tiny_bert.quantised_image(weights, int(kind[-1]))
            yield f"{name} {kind}", {**card, "pair_types": 2,
                                     "precision": "int8" if kind in LIMITS else kind}, weights
    for family in CONFIGS:
        for kind in kinds:
            if kind != "int7":
                yield (f"{family} {kind}",
                       *tiny_families.make_tiny(family, CONFIGS[family][0], precision=kind))


def check_program(card: dict, weights: bytes, seed: int) -> tuple[str, str]:
    """(what was found, the fault or "")."""
    try:
        program = build(card, weights)
    except ArithmeticError as error:
        return f"not served ({error})", ""
    program.warm()
    if not program.facts["is_invariant"]:
        return "", "a kernel of it does not keep every bit"
    rng = np.random.default_rng(seed)
    longest = min(card["max_tokens"], 130)
    sizes = [2, 3, 4, 5, 15, 16, 17, longest - 1, longest,
             *np.minimum(rng.geometric(1 / 20, 12) + 2, longest).tolist()]
    rows = tiny_families.make_rows(card, sizes, seed)
    alone = np.concatenate([program.run([row]) for row in rows])
    fault = _company(program, rows, alone, rng) or _under_load(program, rows, alone, seed)
    return f"{len(rows)} texts of 2 to {longest} tokens", fault


def _variants(kind: str, kernel_name: str, shape: tuple[int, int]):
    """The random product, and for 8 bits one whose inputs are smoothed and hardly negative."""
    product = make_random(kind, kernel_name, *shape)
    yield product
    if kind in LIMITS:
        outputs, inputs = shape
        rng = torch.Generator().manual_seed(outputs + inputs)
        limit = LIMITS[kind]
        values = torch.randint(-limit, limit + 1, shape, generator=rng, dtype=torch.int8)
        weight = QuantisedWeight(values, torch.rand(outputs, generator=rng) + 0.01,
                                 torch.zeros(outputs), torch.rand(inputs, generator=rng) + 0.5)
        kernel: Int8Product = INT8_KERNELS[kernel_name](weight, -0.17)
        yield kernel, product.x.clamp_min(-0.17)


def _company(program: Program, rows: list[Row], alone: np.ndarray, rng: np.random.Generator) -> str:
    """What differs when the texts come together, or ""."""
    for order in (slice(None), slice(None, None, -1)):
        if not np.array_equal(program.run(rows[order]), alone[order]):
            return "all texts together differ from each alone"
    for place in range(9):
        for copies in (2, 3, 4, 7):
            if not (program.run([rows[place]] * copies) == alone[place]).all():
                return f"{copies} times text {place} differs from it alone"
    for _ in range(COMPANIES):
        chosen = rng.choice(len(rows), rng.integers(2, len(rows)))
        if not np.array_equal(program.run([rows[place] for place in chosen]), alone[chosen]):
            return f"the texts {chosen.tolist()} differ from each alone"
    return ""


def _under_load(program: Program, rows: list[Row], alone: np.ndarray, seed: int) -> str:
    """What differs in processes that are more than the cores, or ""."""
    children = []
    for number in range(PROCESSES_A_CORE * len(os.sched_getaffinity(0))):
        pid = os.fork()
        if not pid:
            status = 2
            try:
                rng = np.random.default_rng((seed, number))
                batches = [rng.choice(len(rows), rng.integers(1, len(rows)))
                           for _ in range(LOAD_BATCHES)]
                status = int(not all(
                    np.array_equal(program.run([rows[place] for place in chosen]), alone[chosen])
                    for chosen in batches))
            finally:
                os._exit(status)
        children.append(pid)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    if any(status < 0 or status > 1 for status in statuses):
        return f"processes under load ended with {statuses}"
    return "answers under load differ" if any(statuses) else ""


if __name__ == "__main__":
    sys.exit(main())
