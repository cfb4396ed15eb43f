"""Kernels that bring rows to a finish routine, or copy first rows."""

import numpy as np
import pytest

from model.native.codes import Coding, emit_quantise_rows
from model.native.columns import codes_stride
from model.native.rows import (AHEAD, EMBED, FINISH_ALL, FIRSTS, emit_embed,
                               emit_finish_all, emit_firsts)
from tests.guarded import run_code
from tests.slow_codes import quantise_slowly, rows_of

WORDS, PLACES = 53, 40
COUNTS = (1, 2, 31, 32, 33, 64, 65, 100)
WIDTHS = (16, 48, 128, 384, 400)


def embed(count: int, width: int, ids: np.ndarray, where: np.ndarray
          ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(what the rows are, their codes, their reaches)."""
    words, places = rows_of(width, WORDS, width), rows_of(width + 1, PLACES, width)
    coding = Coding(width, 0.0, False)
    arrays = {"words": words, "places": places, "ids": ids, "where": where,
              "rows": np.array([count]), "x": np.zeros((count, width + 16), np.float32),
              "codes": np.zeros((count, codes_stride(width)), np.uint8),
              "reaches": np.zeros(count, np.float32)}
    assert tuple(arrays) == EMBED + coding.names

    def emit(a, fields):
        emit_embed(a, "kernel", fields, width, 4 * width + 64, "finish")
        emit_quantise_rows(a, "finish", fields, coding, 4 * width + 64)

    run_code(emit, arrays)
    rows = words[ids[:count]] + places[where[:count]]
    np.testing.assert_array_equal(arrays["x"][:, :width], rows)
    return rows, arrays["codes"][:, :width], arrays["reaches"]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("count", COUNTS)
def test_embed_finishes_the_sums_of_words_and_places(count, width):
    rng = np.random.default_rng(count)
    ids = rng.integers(WORDS, size=count + AHEAD)
    ids[count:] = rng.integers(-2 ** 63, 2 ** 63 - 1, size=AHEAD)  # what lies beyond is anything
    rows, codes, reaches = embed(count, width, ids, rng.integers(PLACES, size=count))
    expected_codes, expected_reaches = quantise_slowly(rows)
    np.testing.assert_array_equal(reaches, expected_reaches)
    np.testing.assert_array_equal(codes, expected_codes)


def test_embed_reads_last_words_and_places():
    ids, where = np.full(AHEAD + 1, WORDS - 1), np.full(1, PLACES - 1)
    rows, codes, _ = embed(1, 48, ids, where)
    np.testing.assert_array_equal(codes, quantise_slowly(rows)[0])


@pytest.mark.parametrize("kernel", ["embed", "finish_all", "firsts"])
def test_kernel_without_rows_writes_nothing(kernel):
    count, ones = np.array([0]), np.ones(8, np.int64)
    floats = np.ones((1, 16), np.float32)
    x, codes, reaches = (np.full((1, 64), 7, dtype) for dtype in (np.float32, np.uint8, np.float32))
    coding = {"codes": codes, "reaches": reaches}
    if kernel == "firsts":
        arrays = dict(zip(FIRSTS, (ones, count, floats, x)))
    elif kernel == "embed":
        arrays = dict(zip(EMBED, (floats, floats, ones, ones, count, x)), **coding)
    else:
        arrays = dict(zip(FINISH_ALL + ("v",), (count, floats)), **coding)

    def emit(a, fields):
        if kernel == "embed":
            emit_embed(a, "kernel", fields, 16, 64, "finish")
        elif kernel == "finish_all":
            emit_finish_all(a, "kernel", fields, "v", 64, "finish")
        else:
            emit_firsts(a, "kernel", fields, 16, 64)
        if kernel != "firsts":
            emit_quantise_rows(a, "finish", fields, Coding(16, 0.0, False), 64)

    run_code(emit, arrays)
    assert (x == 7).all() and (codes == 7).all() and (reaches == 7).all()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("texts", [1, 2, 5, 33])
def test_firsts_copies_first_rows_of_texts(texts, width):
    rng = np.random.default_rng(texts)
    starts = np.concatenate([[0], np.cumsum(rng.integers(1, 5, size=texts - 1))]).astype(np.int64)
    rows = int(starts[-1]) + 1
    x = rows_of(texts, rows, width)
    arrays = {"starts": starts, "texts": np.array([texts]), "x": x,
              "x_first": np.zeros((texts, width), np.float32)}
    assert tuple(arrays) == FIRSTS
    run_code(lambda a, fields: emit_firsts(a, "kernel", fields, width, 4 * width),
             arrays)
    np.testing.assert_array_equal(arrays["x_first"], x[starts])
