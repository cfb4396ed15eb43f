"""Batches through machine code: cut, refused, placed, pooled with padding, forked, beside torch."""

import os
import select
import threading

import numpy as np
import pytest
import torch

from model.families.table import build, reference
from model.native.program import MOST_ROWS, most_rows
from model.program import Row
from tests.forked import in_a_child
from tests.native_programs import FITTING, alone, kept, native, texts, tiny, torchs

TOLERANCE = 2e-5


def small(name: str = "bert", precision: str = "fp32", **config):
    """(card, program)."""
    if not config:
        return kept(name, precision)
    card, weights = tiny(name, precision=precision, **config)
    return card, native(card, weights)


def check_in_a_child(program, rows, expected: np.ndarray) -> None:
    """A fork finds these bits."""
    assert in_a_child(lambda: np.testing.assert_array_equal(program.run(rows), expected)) == 0


def test_program_takes_at_once_what_the_longest_text_needs():
    assert most_rows(64) == MOST_ROWS and most_rows(MOST_ROWS + 1) == MOST_ROWS + 1
    card, program = small(max_position_embeddings=700, num_hidden_layers=1)
    assert program.token_cap == 700
    rows = texts(card, [700, 1, 699, 700])
    assert np.array_equal(program.run(rows), alone(program, rows))


def test_program_without_rows_gives_no_logits():
    _, program = small(labels=5)
    found = program.run([])
    assert found.shape == (0, 5) and found.dtype == np.float32


def packed(card, rows) -> bytes:
    """The body of a batch, as packed.py tells."""
    kind = {2: "<u2", 4: "<u4"}[card["id_bytes"]]
    parts = [row.ids.astype(kind).tobytes() for row in rows]
    return np.array([[len(part) for part in parts], [row.split for row in rows]],
                    "<u4").tobytes() + b"".join(parts)


@pytest.mark.parametrize("name", sorted(FITTING))
def test_program_gives_packed_what_run_gives(name):
    card, program = small(name, "int8")
    rows = texts(card)
    for some in (rows[:1], rows[3:4], rows[:9], rows[4:12]):
        assert program.run_packed(len(some), packed(card, some)) == program.run(some).tobytes()


def test_program_leaves_to_run_what_is_not_as_it_should_be():
    card, program = small(precision="int8")
    longest = card["max_tokens"]
    good = texts(card, [5, 7])
    answer = program.run(good).tobytes()
    stranger = Row(np.array([card["vocab_size"]]), 1)
    many = texts(card, [longest] * (program.token_cap // longest) + [1])
    for rows in ([*good, stranger], [Row(np.zeros(longest + 1, np.int64), longest + 1)], many,
                 [Row(np.zeros(0, np.int64), 0)], []):
        assert program.run_packed(len(rows), packed(card, rows)) is None
        assert program.run_packed(2, packed(card, good)) == answer
    assert program.run_packed(3, packed(card, good)) is None
    assert program.run_packed(2, packed(card, good) + bytes(1 << 16)) is None


def test_program_packed_refuses_pairs_where_there_is_one_segment():
    card, program = small(type_vocab_size=1)
    ids = np.array([1, 2, 3])
    assert program.run_packed(1, packed(card, [Row(ids, 2)])) is None
    assert program.run_packed(1, packed(card, [Row(ids, 3)])) == program.run(
        [Row(ids, 3)]).tobytes()


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_program_cuts_what_does_not_go_into_one_call(precision):
    card, program = small(precision=precision)
    rows = texts(card, [64] * 25 + [1] * 40 + [33] * 40)
    assert sum(len(row.ids) for row in rows) > 5 * program.token_cap
    assert np.array_equal(program.run(rows), alone(program, rows))


def test_program_takes_as_many_texts_as_tokens():
    card, program = small()
    rows = texts(card, [1] * (program.token_cap + 1))
    assert np.array_equal(program.run(rows), alone(program, rows))


def test_program_logits_outlive_the_next_batch():
    card, program = small()
    first, second = texts(card, [9]), texts(card, [30], seed=7)
    found = program.run(first)
    kept = found.copy()
    assert not np.array_equal(program.run(second), kept)
    assert np.array_equal(found, kept)


@pytest.mark.parametrize("batch", [[65], [3, 65], [65, 3], [600]], ids=str)
@pytest.mark.parametrize("name", FITTING)
def test_program_refuses_a_text_that_is_too_long(name, batch):
    card, program = small(name)
    assert card["max_tokens"] == 64
    rows = [Row(np.ones(size, dtype=np.int64), size) for size in batch]
    with pytest.raises(ValueError, match=f"{max(batch)} tokens, the model takes 64"):
        program.run(rows)


@pytest.mark.parametrize("number", [97, 98, 1 << 31, (1 << 63) - 1, -1, -97, -1 << 63])
@pytest.mark.parametrize("name", FITTING)
def test_program_refuses_an_id_that_is_not_in_the_vocabulary(name, number):
    card, program = small(name)
    rows = texts(card, [5, 9, 30])
    expected = program.run(rows)
    for place in (0, 8):
        ids = rows[1].ids.copy()
        ids[place] = number
        with pytest.raises(ValueError, match=f"token id {number}, the model's vocabulary ends "
                                             "before 97"):
            program.run([rows[0], Row(ids, 9), rows[2]])
    assert np.array_equal(program.run(rows), expected)


def test_program_refuses_an_unsigned_id_beyond_all_signed_ones():
    _, program = small()
    with pytest.raises(ValueError, match="the model's vocabulary ends before 97"):
        program.run([Row(np.array([1, (1 << 64) - 1], dtype=np.uint64), 2)])


@pytest.mark.parametrize("batch", [[0], [5, 0], [0, 0]], ids=str)
def test_program_refuses_a_text_without_tokens(batch):
    _, program = small()
    with pytest.raises(ValueError, match="a text has no tokens"):
        program.run([Row(np.ones(size, dtype=np.int64), size) for size in batch])


@pytest.mark.parametrize("name", ["bert", "electra"])
def test_program_refuses_a_pair_where_there_is_one_token_type(name):
    card, program = small(name, type_vocab_size=1)
    rows = texts(card, [5, 6])
    with pytest.raises(ValueError, match="a text is a pair, the model takes none"):
        program.run([rows[0], Row(rows[1].ids, 3)])


def test_program_refuses_ids_that_are_no_integers():
    _, program = small()
    with pytest.raises(TypeError):
        program.run([Row(np.array([1.0, 2.5]), 2)])


def test_program_takes_narrow_read_only_ids():
    card, program = small()
    row, = texts(card, [9])
    for kind in ("<u2", "<u4", "<i4", "<u8"):
        narrow = Row(np.frombuffer(row.ids.astype(kind).tobytes(), kind), row.split)
        assert np.array_equal(program.run([narrow]), program.run([row]))


@pytest.mark.parametrize("name", ["bert", "electra"])
def test_program_pairs_divided_anywhere_equal_the_reference(name):
    card, weights = tiny(name)
    ids = texts(card, [20])[0].ids
    rows = [Row(ids, split) for split in range(21)]
    found, expected = native(card, weights).run(rows), reference(card, weights, rows)
    assert np.abs(found - expected).max() <= TOLERANCE
    assert len(np.unique(found, axis=0)) == 21


@pytest.mark.parametrize("name", ["distilbert", "roberta"])
def test_program_without_types_is_blind_to_the_split(name):
    card, program = small(name)
    row, = texts(card, [30])
    assert np.array_equal(program.run([row]), program.run([Row(row.ids, 11)]))


@pytest.mark.parametrize("pad", [0, 1, 5])
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_program_padding_inside_a_text_takes_no_position(precision, pad):
    card, weights = tiny("roberta", precision=precision, pad_token_id=pad,
                         max_position_embeddings=65 + pad)
    batch = ([0, 5, pad, 9, 2], [pad, pad], [pad], [5, pad], [pad, 5, 7], [9] * 64,
             [7] * 20 + [pad] * 3 + [8], [pad] * 64, [7] * 5)
    rows = [Row(np.array(ids), len(ids)) for ids in batch]
    program = native(card, weights)
    found = program.run(rows)
    assert np.abs(found - torchs(card, weights).run(rows)).max() <= TOLERANCE * \
        (1 if precision == "fp32" else 1000)
    if precision == "fp32":
        assert np.abs(found - reference(card, weights, rows)).max() <= TOLERANCE
    assert np.array_equal(alone(program, rows), found)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_program_warm_or_cold_answers_the_same_bits(precision):
    card, weights = tiny("bert", precision=precision)
    rows = texts(card)
    cold, warm = native(card, weights), native(card, weights)
    warm.warm()
    expected = cold.run(rows)
    assert np.array_equal(warm.run(rows), expected)
    warm.idle()
    assert np.array_equal(warm.run(rows), expected)


def test_program_warms_where_texts_are_short():
    card, program = small(max_position_embeddings=3)
    program.warm()
    assert program.run(texts(card, [1, 2, 3])).shape == (3, 3)


def test_program_costs_grow_with_tokens():
    _, program = small()
    program.warm()
    points = program.costs()
    assert len(points) >= 3 and all(ms > 0 and tokens >= texts for texts, tokens, ms in points)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_program_answers_the_same_bits_in_forks_and_afterwards(precision):
    card, program = small(precision=precision)
    rows, others = texts(card), texts(card, [50, 3, 64], seed=8)
    expected = program.run(rows)
    check_in_a_child(program, rows, expected)
    assert np.array_equal(program.run(rows), expected)
    other = program.run(others)
    check_in_a_child(program, rows, expected)
    assert np.array_equal(program.run(others), other)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_program_that_never_ran_before_a_fork_answers_the_same_bits_there(precision):
    card, weights = tiny("bert", precision=precision)
    rows = texts(card)
    expected = native(card, weights).run(rows)
    program = native(card, weights)
    check_in_a_child(program, rows, expected)
    assert np.array_equal(program.run(rows), expected)


def test_program_child_at_work_does_not_touch_the_parent_s_answers():
    card, program = small(precision="int8")
    rows, others = texts(card), texts(card, [64] * 8, seed=8)
    expected = program.run(rows)
    at_work, is_over = os.pipe(), os.pipe()

    def work() -> None:
        os.close(is_over[1])
        os.write(at_work[1], b"1")
        first = program.run(others)
        while not select.select([is_over[0]], [], [], 0)[0]:
            np.testing.assert_array_equal(program.run(others), first)

    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(in_a_child(work)))
    thread.start()
    try:
        assert os.read(at_work[0], 1) == b"1"
        for _ in range(50):
            assert np.array_equal(program.run(rows), expected)
    finally:
        os.close(is_over[1])
        thread.join()
        for end in (*at_work, is_over[0]):
            os.close(end)
    assert codes == [0]


def test_program_of_another_thread_answers_the_same_bits():
    card, program = small(precision="int8")
    rows = texts(card)
    expected, found = program.run(rows), []
    thread = threading.Thread(target=lambda: found.append(program.run(rows)))
    thread.start()
    thread.join()
    assert np.array_equal(found[0], expected)


def test_program_and_torch_s_tiles_do_not_disturb_each_other():
    """oneDNN keeps in mind which tiles it has configured; both kinds run turn about."""
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("this CPU has no bf16")
    card, weights = tiny("bert", precision="int8", hidden_size=64)
    wide_card, wide = tiny("bert", hidden_size=64)
    rows = texts(card)
    program, other = native(card, weights), build({**wide_card, "precision": "bf16"}, wide)
    generator = torch.Generator().manual_seed(3)
    x, weight = (torch.randn(64, 64, generator=generator).bfloat16() for _ in range(2))
    expected, wide_expected, product = program.run(rows), other.run(rows), x @ weight
    for _ in range(5):
        assert np.array_equal(program.run(rows), expected)
        assert torch.equal(x @ weight, product)
        assert np.array_equal(program.run(rows), expected)
        assert np.array_equal(other.run(rows), wide_expected)
