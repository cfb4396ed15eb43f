"""A text's answer does not depend on its company, not by a bit, on the machine that runs this."""

import os
import subprocess
import sys
import time

import numpy as np
import pytest

from model.families.table import build
from tests.tiny_bert import make_model, make_rows, quantised_image

DEFAULT = {"hidden_size": 128, "num_attention_heads": 4, "intermediate_size": 512,
           "vocab_size": 1000, "max_position_embeddings": 512}
MINILM = {"hidden_size": 384, "num_attention_heads": 12, "intermediate_size": 1536,
          "vocab_size": 1000, "max_position_embeddings": 512}
BASE = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072,
        "vocab_size": 100, "max_position_embeddings": 512}
ODD = {"hidden_size": 36, "num_attention_heads": 3, "intermediate_size": 37, "labels": 1}
STALL_CPU_S = 0.04  # compiling takes twice that on a fast core, a call a twentieth


PRECISIONS = ["fp32", "fp16", "bf16", "int8", "int7"]


def make_program(precision="fp32", **config):
    """Its card and the warmed program; "int7" is int8 with weights that saturate nowhere."""
    card, weights = make_model(**config)
    if precision.startswith("int"):
        weights = quantised_image(weights, bits=int(precision[-1]))
    card["precision"] = "int8" if precision == "int7" else precision
    program = build(card, weights)
    program.warm()
    return card, program


def can_compute(precision):
    """False for what this CPU has no instructions for."""
    import torch
    return precision != "bf16" or torch.ops.mkldnn._is_mkldnn_bf16_supported()


@pytest.mark.parametrize("shape", [
    (48, 16), (24, 24), (96, 32), (32, 48), (384, 128), (128, 128), (512, 128), (128, 512),
    (32, 128), (1152, 384), (384, 384), (1536, 384), (384, 1536), (32, 384)], ids=str)
@pytest.mark.parametrize("kind", PRECISIONS)
def test_products_of_any_number_of_rows_agree(kind, shape):
    import torch

    from model.programs.probe import choose, make_random
    if not can_compute(kind):
        pytest.skip(f"this CPU has no {kind}")
    name, counts = choose(kind, *shape)
    assert counts, "no kernel of this machine keeps every bit"
    kernel, x = make_random(kind, name, *shape)
    expected = kernel(x[:counts[-1]].clone())
    for count in (*counts[:6], *counts[6:-1:9]):
        for shift in (0, counts[-1] - count):
            found = kernel(x[shift:shift + count].clone())
            assert torch.equal(found, expected[shift:shift + count]), (count, shift)


@pytest.mark.parametrize("config", [{}, ODD, {"dtype": np.float16}, DEFAULT, MINILM], ids=str)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_bert_alone_moved_in_company_and_ragged_is_the_same(precision, config):
    if not can_compute(precision):
        pytest.skip(f"this CPU has no {precision}")
    card, program = make_program(precision, **config)
    assert program.facts["is_invariant"]
    longest = card["max_tokens"]
    rng = np.random.default_rng(5)
    sizes = [2, 3, 4, 5, 15, 16, 17, longest - 1, longest,
             *np.minimum(rng.geometric(1 / 20, 20) + 2, longest).tolist()]
    rows = make_rows(card, sizes)
    alone = np.concatenate([program.run([row]) for row in rows])
    assert np.array_equal(program.run(rows), alone)
    assert np.array_equal(program.run(rows[::-1]), alone[::-1])
    for row, expected in zip(rows[:12], alone):
        for copies in (2, 3, 4, 7):
            assert (program.run([row] * copies) == expected).all()
    for _ in range(30):
        chosen = rng.choice(len(rows), rng.integers(1, len(rows)))
        assert np.array_equal(program.run([rows[place] for place in chosen]), alone[chosen])


@pytest.mark.slow
def test_bert_base_alone_and_in_company_is_the_same():
    card, program = make_program(num_hidden_layers=1, **BASE)
    rows = make_rows(card, [2, 3, 9, 17, 17, 40, 100, 33])
    alone = np.concatenate([program.run([row]) for row in rows])
    assert np.array_equal(program.run(rows), alone)
    assert np.array_equal(program.run(rows[5:1:-1]), alone[5:1:-1])


def test_bert_new_shapes_neither_stall_nor_grow():
    """300 shapes never seen before: no call compiles anything, memory stays where it was."""
    card, program = make_program(**DEFAULT)
    rng = np.random.default_rng(6)
    batches = [make_rows(card, np.minimum(rng.geometric(1 / 20, rng.integers(1, 24)) + 1,
                                          512).tolist(), seed) for seed in range(300)]
    program.run(make_rows(card, [512] * 4))
    held, worst = resident_bytes(), 0.0
    for rows in batches:
        begin = time.thread_time()
        program.run(rows)
        worst = max(worst, time.thread_time() - begin)
    assert resident_bytes() - held < 16 << 20
    assert worst < STALL_CPU_S


def test_bert_idle_gives_memory_back_and_changes_no_answer():
    card, program = make_program(**DEFAULT)
    rows = make_rows(card, [512] * 4)
    before = program.run(rows)
    program.idle()
    held = resident_bytes()
    assert np.array_equal(program.run(rows), before)
    program.idle()
    assert resident_bytes() - held < 1 << 20


def test_bert_forked_after_warm_up_answers_the_same_bits():
    code = ("import os, sys\n"
            "from tests.test_model_invariance import make_program, make_rows, DEFAULT\n"
            "card, program = make_program(**DEFAULT)\n"
            "rows = make_rows(card, [5, 90, 17, 5])\n"
            "expected = program.run(rows).tobytes()\n"
            "threads = len(os.listdir('/proc/self/task'))\n"
            "if os.fork() == 0:\n"
            "    os._exit(0 if program.run(rows).tobytes() == expected else 1)\n"
            "print(threads, os.waitstatus_to_exitcode(os.wait()[1]))\n")
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True,
                          text=True, timeout=120, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
                          cwd=os.path.dirname(os.path.dirname(__file__)))
    assert done.stderr == "" and done.stdout.split() == ["1", "0"]


def resident_bytes():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
