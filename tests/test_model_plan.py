"""Kernels are chosen once, by what they keep, and a plan made again makes the same program."""

import json

import numpy as np
import pytest
import torch

from model.families.table import build
from model.programs import probe
from model.programs.int8 import INT8_KERNELS
from model.programs.plan import Chunks, Plan
from model.programs.probe import MOST_ROWS, Choice, RandomProduct, filled, is_exact, row_counts
from model.programs.products import WIDE_KERNELS, StoredProduct
from tests.test_model_invariance import can_compute
from tests.tiny_bert import make_model, make_rows, quantised_image

SIZES = [5, 2, 64, 17, 16, 33, 1, 3, 48, 15]


@pytest.fixture(autouse=True)
def fresh_choices():
    """What fakes made is forgotten."""
    yield
    probe.choose.cache_clear()


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16", "int8"])
def test_plan_of_a_program_s_facts_makes_it_again(precision, monkeypatch):
    if not can_compute(precision):
        pytest.skip(f"this CPU has no {precision}")
    card, weights = make_model()
    if precision == "int8":
        weights = quantised_image(weights, 7)
    card["precision"] = precision
    first = build(card, weights)
    facts = json.loads(json.dumps(first.facts))
    assert facts["precision"] == precision and facts["kernels"]
    from model.programs import plan
    monkeypatch.setattr(plan, "choose", lambda *arguments: pytest.fail("tried again"))
    twin = build({**card, "facts": facts}, weights)
    twin.warm()
    assert twin.facts == facts
    rows = make_rows(card, SIZES)
    assert np.array_equal(twin.run(rows), first.run(rows))


def test_plan_made_again_takes_the_other_s_kernels_not_its_own_best(monkeypatch):
    """The twin of a program whose kernels this machine would not choose now."""
    card, weights = make_model()
    monkeypatch.setitem(WIDE_KERNELS, "fp32", dict(reversed(WIDE_KERNELS["fp32"].items())))
    probe.choose.cache_clear()
    other = build(card, weights)
    monkeypatch.undo()
    probe.choose.cache_clear()
    twin = build({**card, "facts": other.facts}, weights)
    assert twin.facts == other.facts
    rows = make_rows(card, SIZES)
    assert np.array_equal(twin.run(rows), other.run(rows))


@pytest.mark.parametrize(("value", "is_refused"), [
    (65504.0, False), (-65504.0, False), (65536.0, True), (-70000.0, True)])
def test_plan_fp16_takes_no_weight_beyond_what_it_holds(value, is_refused):
    weight = torch.ones(32, 32)
    weight[3, 4] = value
    plan = Plan("fp16")
    if is_refused:
        with pytest.raises(ArithmeticError, match="beyond 65504, the most that fp16 holds"):
            plan.product(["x"], weight, torch.zeros(32))
        Plan("fp32").product(["x"], weight, torch.zeros(32))
    else:
        product = plan.product(["x"], weight, torch.zeros(32))
        assert product(torch.eye(32)[[4] * 4])[0, 3] == value


def test_plan_rows_are_those_that_all_kernels_keep(monkeypatch):
    from model.programs import plan
    kept = {"24x8": (4, 8, 12, 16, 32), "16x8": (8, 16, 24, 32), "8x8": ()}
    monkeypatch.setattr(plan, "choose", lambda kind, outputs, inputs:
                        Choice("mkl-stored", kept[f"{outputs}x{inputs}"]))
    made = Plan("fp32")
    for outputs in (24, 16, 24):
        made.product(["x"], torch.zeros(outputs, 8), torch.zeros(outputs))
    assert made.rows == (8, 16, 32) and made.is_invariant
    assert [made.fill(rows) for rows in (1, 8, 9, 17, 33, 64, 65)] == [8, 8, 16, 32, 40, 64, 72]
    made.product(["x"], torch.zeros(8, 8), torch.zeros(8))
    assert made.rows == (8, 16, 32) and not made.is_invariant
    assert made.facts["kernels"] == dict.fromkeys(
        ("fp32 24x8", "fp32 16x8", "fp32 8x8"), "mkl-stored")


def test_chunks_of_more_rows_than_a_call_takes_are_put_together():
    chunks = Chunks(StoredProduct(torch.eye(4) * 2, torch.ones(4)))
    chunks.most = 8
    x = torch.arange(4.0 * 29).view(29, 4)
    assert torch.equal(chunks(x), 2 * x + 1)


@pytest.mark.parametrize("seed", range(20))
def test_filled_equals_a_slow_search(seed):
    rng = np.random.default_rng(seed)
    counts = sorted(set(rng.integers(1, 40, rng.integers(1, 8)).tolist()))
    for rows in range(1, 130):
        rest, full = rows, 0
        while rest > counts[-1]:
            rest, full = rest - counts[-1], full + counts[-1]
        assert filled(rows, counts) == full + min(count for count in counts if count >= rest)


class FakeKernel:
    """x · 2 with an error that depends on the number of rows, as `code` says."""

    builds_by_rows = differs_by_rows = True
    row_step = 16

    def __init__(self, code=lambda rows: 0):
        self.code = code

    def __call__(self, x):
        return x * 2 + 1e-6 * self.code(len(x))


def product_of(kernel):
    seeded = torch.Generator().manual_seed(1)
    return RandomProduct(kernel, torch.rand(MOST_ROWS, 3, generator=seeded))


# Of kernels that build code for each count: fine ones first, then coarser ones.
EVERY = (*range(16, 129, 16), *range(160, MOST_ROWS + 1, 32))


def test_row_counts_of_a_kernel_that_is_always_the_same_are_all():
    assert row_counts(product_of(FakeKernel())) == EVERY


def test_row_counts_are_the_set_that_wastes_the_least():
    # Few rows in one code, many in another: each of the many fits into calls of few.
    few = row_counts(product_of(FakeKernel(lambda rows: rows >= 128)))
    assert few in (tuple(rows for rows in EVERY if rows < 128),
                   tuple(rows for rows in EVERY if rows >= 128))
    # One row count apart from all others.
    assert row_counts(product_of(FakeKernel(lambda rows: rows == 64))) == \
        tuple(rows for rows in EVERY if rows != 64)


def test_row_counts_of_a_kernel_that_always_differs_are_none():
    assert row_counts(product_of(FakeKernel(lambda rows: rows))) == ()


def test_row_counts_sees_a_row_s_place():
    class Placed(FakeKernel):
        def __call__(self, x):
            return x * 2 + 1e-6 * torch.arange(len(x))[:, None]

    assert row_counts(product_of(Placed())) == ()


def test_row_counts_of_a_kernel_without_code_for_each_count_are_all_or_none():
    class Plain(FakeKernel):
        builds_by_rows = differs_by_rows = False
        row_step = 4

    assert row_counts(product_of(Plain())) == tuple(range(4, MOST_ROWS + 1, 4))
    assert row_counts(product_of(Plain(lambda rows: rows < 8))) == ()


def saturating(most):
    """An 8-bit kernel whose sums of two products saturate, as without VNNI; `shift` makes them
    larger."""
    class Saturating(INT8_KERNELS["fbgemm-u8"]):
        def sums(self, q):
            pairs = ((q + 128).unflatten(1, (-1, 2))[:, None]
                     * self.values.unflatten(1, (-1, 2))).sum(-1)
            return (pairs.clamp(-most, most).sum(-1) - 128 * self.values.sum(1)) * self.scales

        def __init__(self, weight, least=0.0, may_overwrite=False):
            super().__init__(weight, least, may_overwrite)
            self.values = weight.values.float()

    return Saturating


def test_is_exact_finds_sums_that_saturate_and_lets_7_bits_pass(monkeypatch):
    monkeypatch.setitem(INT8_KERNELS, "fake", saturating(32767))
    assert not is_exact("int8", "fake", 24, 48)
    assert is_exact("int7", "fake", 24, 48)
    monkeypatch.setitem(INT8_KERNELS, "fake", saturating(2 * 255 * 127 - 1))
    assert not is_exact("int8", "fake", 24, 48)
    monkeypatch.setitem(INT8_KERNELS, "fake", saturating(2 * 255 * 127))
    assert is_exact("int8", "fake", 24, 48)


def test_choose_takes_no_kernel_that_saturates_however_fast(monkeypatch):
    monkeypatch.setattr(probe, "is_exact", lambda kind, name, *_: name == "fbgemm-u8")
    monkeypatch.setattr(probe, "seconds", lambda products: [1.0] * len(products))
    probe.choose.cache_clear()
    assert probe.choose("int7", 24, 48).kernel == "fbgemm-u8"
    monkeypatch.setattr(probe, "is_exact", lambda *_: False)
    with pytest.raises(ArithmeticError, match="no kernel of this CPU multiplies 8-bit weights"):
        probe.choose("int8", 24, 48)


@pytest.mark.parametrize(("took", "name"), [
    ([1.0, 0.9, 0.9], "onednn-s8"), ([1.0, 0.5, 0.45], "onednn-u8"), ([1.0, 0.9, 0.4], "fbgemm-u8"),
    ([1.0, 2.0, 2.0], "onednn-s8")])
def test_choose_takes_the_clearly_fastest(monkeypatch, took, name):
    monkeypatch.setattr(probe, "is_exact", lambda *_: True)
    monkeypatch.setattr(probe, "seconds", lambda products: took)
    probe.choose.cache_clear()
    assert probe.choose("int7", 24, 48).kernel == name


def test_choose_passes_over_kernels_that_do_not_keep_every_bit(monkeypatch):
    monkeypatch.setattr(probe, "row_counts", lambda product: () if isinstance(
        product.kernel, WIDE_KERNELS["fp32"]["mkl-transposed"]) else (4, 8))
    probe.choose.cache_clear()
    assert probe.choose("fp32", 24, 48) == Choice("mkl-stored", (4, 8))
    monkeypatch.setattr(probe, "row_counts", lambda product: ())
    probe.choose.cache_clear()
    assert probe.choose("fp32", 24, 48) == Choice("onednn", ())
