"""bench/padding.py counts what each way of making batches would compute."""

import random

import pytest

from bench.padding import BATCH_TEXTS, packed, rows_of, shares, to_buckets, to_longest
from model.grid import buckets
from tests.native_programs import native, tiny, torchs


def test_padding_to_the_longest_of_a_batch():
    assert to_longest([3, 5]) == 10
    assert to_longest([1] * BATCH_TEXTS + [7]) == BATCH_TEXTS + 7


def test_padding_to_buckets_takes_each_text_to_its_own():
    assert to_buckets([3, 16, 17], 64) == 16 + 16 + 32


def test_padding_packed_has_what_fills_its_rows_alone():
    assert packed([3, 5], 99, lambda rows: -(-rows // 4) * 4) == 8
    assert packed([3, 6], 99, lambda rows: -(-rows // 4) * 4) == 12


def test_padding_packed_fills_each_call_of_a_batch():
    assert packed([3, 5, 6], 8, lambda rows: -(-rows // 4) * 4) == 8 + 8
    assert packed([9, 1], 8, lambda rows: -(-rows // 4) * 4) == 12 + 4


def test_padding_rows_are_those_that_the_program_s_kernels_compute():
    card, weights = tiny("bert")
    coded_card, coded = tiny("bert", precision="int8")
    program = torchs(card, weights)
    assert rows_of(program) == program.plan.fill
    assert rows_of(native(card, weights))(9) == 16 == rows_of(native(card, weights))(16)
    assert rows_of(native(coded_card, coded, "vnni"))(17) == 24
    assert rows_of(native(coded_card, coded, "amx"))(17) == 32


@pytest.mark.parametrize("seed", range(20))
def test_padding_shares_agree_with_counting_one_by_one(seed):
    chance = random.Random(seed)
    most = chance.choice((64, 512))
    lengths = [chance.randint(1, most) for _ in range(chance.randint(1, 200))]
    found = shares(lengths, most, 512, lambda rows: rows)
    assert found["firebrick"] == 0
    assert found["sorted"] <= found["limit"] and found["buckets"] <= found["limit"]
    waste = 0
    for length in lengths:
        size = min(size for size in buckets(most) if size >= length)
        waste += size - length
    assert found["buckets"] == pytest.approx(waste / (waste + sum(lengths)))
