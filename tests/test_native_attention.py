"""Attention as machine code: right to float32, each text by itself, and nothing else touched."""

import numpy as np
import pytest

from model.native.assembler import Assembler
from model.native.attention import SHORT, Attention, emit_attention, scratch_floats
from model.native.attention_bias import bias_distances
from model.native.attention_terms import terms_of
from model.native.executable import Executable
from tests.guarded import skip_without

SPARE = 32  # rows that may be read past the end
FAR = 160   # distances of keys from queries, at most
CANARY = np.float32(12345.0)
WIDTHS = range(16, 129, 16)
# Every short length, every remainder of 16 and 8 and 4 after it, and some long ones.
LENGTHS = [*range(1, 41), 64, 127, 200]


@pytest.fixture(autouse=True)
def vectors():
    skip_without()


def shape_of(width: int, one_query: bool, heads: int = 3, longest: int = 200,
             has_biases: bool = False, has_terms: bool = False) -> Attention:
    """Queries, keys and values side by side in a row, as a fused product leaves them."""
    hidden = heads * width
    return Attention(heads, width, hidden if one_query else 3 * hidden, 3 * hidden,
                     hidden + 16, longest, one_query,
                     has_biases, has_terms)


class Rows:
    """Float32 rows [T + 32, stride] on a boundary of 64 bytes, canaries around them."""

    def __init__(self, rows: int, stride: int) -> None:
        self._held = np.full((rows + SPARE + 2) * stride + 16, CANARY)
        skip = -self._held.ctypes.data % 64 // 4
        self.all = self._held[skip:skip + (rows + SPARE + 2) * stride].reshape(-1, stride)
        self.rows = self.all[1:rows + 1]

    def address(self, column: int = 0) -> int:
        return self.rows.ctypes.data + 4 * column

    def intact_around(self) -> bool:
        return (self.all[0] == CANARY).all() and (self.all[len(self.rows) + 1:] == CANARY).all()


class Kernel:
    """A kernel of one shape, run over numpy rows."""

    def __init__(self, shape: Attention) -> None:
        a = Assembler()
        emit_attention(a, "attention", shape)
        self._code = Executable(*a.finish())
        self._function = self._code.function("attention")
        self.shape = shape

    def run(self, fused: np.ndarray, starts: list[int], lengths: list[int],
            queries: np.ndarray | None = None, biases: np.ndarray | None = None,
            terms: np.ndarray | None = None) -> np.ndarray:
        """out [T or B, heads · width] of rows [T, 3 · heads · width]; `biases` float64
        [heads, 2 · FAR], of distances from -FAR on; `terms` float32 [2, 2 · FAR, heads, width],
        likewise. Checks what is around."""
        shape = self.shape
        hidden = shape.heads * shape.width
        held = Rows(len(fused), 3 * hidden)
        held.rows[:] = fused
        asking = held
        if queries is not None:
            asking = Rows(len(queries), hidden)
            asking.rows[:] = queries
        out = Rows(len(asking.rows), shape.out_stride)
        scratch = Rows(1, scratch_floats(shape))
        count, firsts, sizes = (np.array(value, dtype=np.int64)
                                for value in ([len(starts)], starts, lengths))
        words = {}
        if biases is not None:
            table = biases[:, FAR + bias_distances(shape.longest, shape.one_query)]
            words["biases"] = (table * np.sqrt(shape.width)).astype(np.float32, order="C")
        if terms is not None:
            near = terms[:, FAR + bias_distances(shape.longest, shape.one_query)]
            words["terms"] = terms_of(*near, shape.longest, shape.one_query)
        block = shape.fields.block(
            texts=count, starts=firsts, lengths=sizes, queries=asking.address(),
            keys=held.address(hidden), values=held.address(2 * hidden), out=out.address(),
            scratch=scratch.address(), **words)
        self._function(block.ctypes.data)
        assert out.intact_around() and scratch.intact_around() and held.intact_around()
        assert (out.rows[:, hidden:] == CANARY).all()
        assert np.array_equal(held.rows, fused, equal_nan=True)
        return out.rows[:, :hidden].copy()


def expected(shape: Attention, fused: np.ndarray, starts: list[int], lengths: list[int],
             queries: np.ndarray | None = None, biases: np.ndarray | None = None,
             terms: np.ndarray | None = None) -> np.ndarray:
    """In float64, text by text and head by head."""
    hidden = shape.heads * shape.width
    asking = fused if queries is None else queries
    out = np.full((len(asking), hidden), CANARY, dtype=np.float64)
    for text, (start, length) in enumerate(zip(starts, lengths)):
        rows = slice(start, start + length)
        asks = rows if queries is None else slice(text, text + 1)
        for head in range(shape.heads):
            columns = slice(head * shape.width, (head + 1) * shape.width)
            query = asking[asks, columns].astype(np.float64)
            keys, values = (fused[rows, part * hidden:][:, columns].astype(np.float64)
                            for part in (1, 2))
            scores = query @ keys.T / np.sqrt(shape.width)
            ahead = np.arange(length) - np.arange(len(query))[:, None]
            if terms is not None:
                place_key, place_query = terms[:, FAR + ahead, head].astype(np.float64)
                scores += (np.einsum("qw,qkw->qk", query, place_key)
                           + np.einsum("kw,qkw->qk", keys, place_query)) / np.sqrt(shape.width)
                scores /= np.sqrt(3)
            if biases is not None:
                scores += biases[head, FAR + ahead]
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            out[asks, columns] = weights / weights.sum(axis=1, keepdims=True) @ values
    return out


def random_texts(shape: Attention, lengths: list[int], seed: int = 0, scale: float = 1.0
                 ) -> tuple[np.ndarray, list[int], np.ndarray | None]:
    """(fused rows, starts, queries of one_query)."""
    rng = np.random.default_rng(seed)
    hidden = shape.heads * shape.width
    fused = rng.standard_normal((sum(lengths), 3 * hidden)).astype(np.float32)
    fused[:, :2 * hidden] *= np.float32(scale)
    starts = [sum(lengths[:text]) for text in range(len(lengths))]
    queries = rng.standard_normal((len(lengths), hidden)).astype(np.float32) * np.float32(scale)
    return fused, starts, queries if shape.one_query else None


@pytest.mark.parametrize("one_query", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
def test_attention_all_lengths_equals_float64(width, one_query):
    shape = shape_of(width, one_query)
    fused, starts, queries = random_texts(shape, LENGTHS)
    found = Kernel(shape).run(fused, starts, LENGTHS, queries)
    # Values are of the order of 1, so this is some 16 units of the last place.
    np.testing.assert_allclose(
        found, expected(shape, fused, starts, LENGTHS, queries), rtol=0, atol=2e-6)


@pytest.mark.parametrize("one_query", [False, True])
@pytest.mark.parametrize("width, heads, longest", [(16, 1, 144), (32, 3, 131), (64, 2, 130)])
def test_attention_with_biases_all_lengths_equals_float64(width, heads, longest, one_query):
    """Biases that outweigh most products, so scores reach 12 and weights are that less exact; one
    that is taken from beside its place would be off by 1."""
    shape = shape_of(width, one_query, heads, longest, has_biases=True)
    lengths = [*range(1, 41), 64, 130]
    fused, starts, queries = random_texts(shape, lengths)
    biases = np.random.default_rng(1).normal(0, 2, (heads, 2 * FAR))
    kernel = Kernel(shape)
    found = kernel.run(fused, starts, lengths, queries, biases)
    np.testing.assert_allclose(
        found, expected(shape, fused, starts, lengths, queries, biases), rtol=0, atol=1e-5)
    rows = slice(sum(lengths[:17]), sum(lengths[:18]))  # a text alone
    asking, there = (None, rows) if queries is None else (queries[17:18], slice(17, 18))
    alone = kernel.run(fused[rows], [0], [18], asking, biases)
    assert np.array_equal(alone, found[there])


@pytest.mark.parametrize("one_query", [False, True])
@pytest.mark.parametrize("width, heads, longest", [(16, 1, 144), (32, 3, 131), (64, 2, 130),
                                                   (128, 1, 130)])
def test_attention_with_terms_all_lengths_equals_float64(width, heads, longest, one_query):
    shape = shape_of(width, one_query, heads, longest, has_terms=True)
    lengths = [*range(1, 41), 64, 130]
    fused, starts, queries = random_texts(shape, lengths)
    terms = np.random.default_rng(1).standard_normal((2, 2 * FAR, heads, width)).astype(np.float32)
    kernel = Kernel(shape)
    found = kernel.run(fused, starts, lengths, queries, terms=terms)
    np.testing.assert_allclose(
        found, expected(shape, fused, starts, lengths, queries, terms=terms), rtol=0, atol=4e-6)
    rows = slice(sum(lengths[:17]), sum(lengths[:18]))  # a text alone
    asking, there = (None, rows) if queries is None else (queries[17:18], slice(17, 18))
    alone = kernel.run(fused[rows], [0], [18], asking, terms=terms)
    assert np.array_equal(alone, found[there])


@pytest.mark.parametrize("one_query", [False, True])
def test_attention_sharp_scores_equals_float64(one_query):
    """Scores of some hundreds: most weights vanish, and no power overflows."""
    shape = shape_of(32, one_query)
    fused, starts, queries = random_texts(shape, LENGTHS, scale=16)
    found = Kernel(shape).run(fused, starts, LENGTHS, queries)
    # An error of a score, some 2^-22 of it, is one of its weight.
    np.testing.assert_allclose(
        found, expected(shape, fused, starts, LENGTHS, queries), rtol=0, atol=1e-3)


@pytest.mark.parametrize("one_query", [False, True])
@pytest.mark.parametrize("heads", [1, 2, 12])
def test_attention_any_heads_equals_float64(heads, one_query):
    shape = shape_of(32, one_query, heads, longest=33)
    fused, starts, queries = random_texts(shape, [7, 33, 1])
    np.testing.assert_allclose(Kernel(shape).run(fused, starts, [7, 33, 1], queries),
                               expected(shape, fused, starts, [7, 33, 1], queries), atol=2e-6)


@pytest.mark.parametrize("one_query", [False, True])
@pytest.mark.parametrize("width", [16, 32, 64, 128])
def test_attention_text_alone_equals_it_among_others_bitwise(width, one_query):
    shape = shape_of(width, one_query)
    kernel = Kernel(shape)
    fused, starts, queries = random_texts(shape, LENGTHS)
    together = kernel.run(fused, starts, LENGTHS, queries)
    for text, (start, length) in enumerate(zip(starts, LENGTHS)):
        rows = slice(start, start + length)
        alone = kernel.run(fused[rows], [0], [length],
                           None if queries is None else queries[text:text + 1])
        there = together[rows] if queries is None else together[text:text + 1]
        assert np.array_equal(alone.view(np.int32), there.view(np.int32)), length


@pytest.mark.parametrize("length", [9, SHORT, SHORT + 1, 37])
def test_attention_equal_tokens_get_equal_bits_wherever_they_stand(length):
    """Rows of a text are worked on in blocks, and none is treated in a way of its own."""
    shape = shape_of(32, False)
    fused, starts, _ = random_texts(shape, [length])
    hidden = shape.heads * shape.width
    fused[:, :hidden] = fused[0, :hidden]
    found = Kernel(shape).run(fused, starts, [length])
    assert (found.view(np.int32) == found[0].view(np.int32)).all()


@pytest.mark.parametrize("one_query", [False, True])
@pytest.mark.parametrize("width", [32, 64])
def test_attention_texts_in_any_order_with_gaps_leaves_the_gaps(width, one_query):
    shape = shape_of(width, one_query)
    lengths, starts = [5, 20, 3, 16], [40, 2, 30, 60]
    fused, _, queries = random_texts(shape, [80])
    if one_query:
        queries = np.concatenate([queries] * 4)
    np.testing.assert_allclose(
        Kernel(shape).run(fused, starts, lengths, queries),
        expected(shape, fused, starts, lengths, queries), rtol=0, atol=2e-6)


@pytest.mark.parametrize("one_query", [False, True])
def test_attention_no_text_writes_nothing(one_query):
    shape = shape_of(32, one_query)
    fused, _, queries = random_texts(shape, [4])
    assert (Kernel(shape).run(fused, [], [], queries) == CANARY).all()


@pytest.mark.parametrize("one_query", [False, True])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("length", [1, 6, 15, 16, 33])
def test_attention_bad_numbers_of_one_text_stay_there_and_show(length, bad, one_query):
    shape = shape_of(32, one_query)
    kernel = Kernel(shape)
    lengths = [11, length, 3, 18]
    hidden = shape.heads * shape.width
    fused, starts, queries = random_texts(shape, lengths)
    clean = kernel.run(fused, starts, lengths, queries)
    rows = slice(1, 2) if one_query else slice(starts[1], starts[1] + length)
    last = starts[1] + length - 1
    spoilt = fused.copy()
    spoilt[last, hidden + 32] = bad  # one number of a key, head 1
    _check_spoilt(kernel.run(spoilt, starts, lengths, queries), clean, rows, slice(32, 64))
    spoilt = fused.copy()
    spoilt[last, 2 * hidden + 40] = bad  # one of a value
    _check_spoilt(kernel.run(spoilt, starts, lengths, queries), clean, rows, slice(40, 41))
    spoilt, asking = fused.copy(), queries
    if one_query:
        asking = queries.copy()
        asking[1, 32] = bad
    else:
        spoilt[last, 32] = bad
        rows = slice(last, last + 1)
    _check_spoilt(kernel.run(spoilt, starts, lengths, asking), clean, rows, slice(32, 64))


def _check_spoilt(found: np.ndarray, clean: np.ndarray, rows: slice, columns: slice) -> None:
    assert not np.isfinite(found[rows, columns]).any()
    found[rows, columns] = clean[rows, columns]
    assert np.array_equal(found, clean)


@pytest.mark.parametrize("one_query", [False, True])
@pytest.mark.parametrize("length", [10, 40])
def test_attention_overflow_of_scores_shows(length, one_query):
    """Products of finite numbers that no float32 holds."""
    shape = shape_of(32, one_query)
    fused, starts, queries = random_texts(shape, [length])
    hidden = shape.heads * shape.width
    fused[:, :2 * hidden] = 1e30
    fused[0, hidden:2 * hidden] = -1e30
    if one_query:
        queries[:] = 1e30
    assert np.isnan(Kernel(shape).run(fused, starts, [length], queries)).all()
