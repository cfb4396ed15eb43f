"""Kernels that unpack a batch's body and pack its logits, and what they refuse."""

import random

import numpy as np
import pytest

from model.native.packed import PACK, UNPACK, Limits, emit_pack, emit_unpack
from tests.guarded import run_code

LIMITS = Limits(2, 40, 100, False)
ID_TYPES = {2: "<u2", 4: "<u4"}


def body_of(sizes, splits, ids, id_bytes=2):
    """As the engine gets it; sizes in bytes."""
    return np.concatenate([np.array(part, kind).view(np.uint8) for part, kind in (
        (sizes, "<u4"), (splits, "<u4"), (ids, ID_TYPES[id_bytes]))])


def unpack(body, texts, limits=LIMITS):
    """(texts, tokens, lengths, splits, ids)."""
    arrays = {"body": body, "bytes": np.array([len(body)]), "texts": np.array([texts]),
              "lengths": np.zeros(limits.most, np.int64), "splits": np.zeros(limits.most, np.int64),
              "ids": np.zeros(limits.most, np.int64), "tokens": np.array([-1])}
    assert tuple(arrays) == UNPACK.names
    run_code(lambda a, _: emit_unpack(a, "kernel", limits), arrays)
    count, tokens = arrays["texts"][0], arrays["tokens"][0]
    return (count, tokens, *(arrays[name][:size].tolist() for name, size in
                             (("lengths", count), ("splits", count), ("ids", tokens))))


@pytest.mark.parametrize("id_bytes", [2, 4])
def test_unpack_gives_what_the_body_says(id_bytes):
    rng = random.Random(id_bytes)
    for _ in range(20):
        lengths = [rng.randint(1, 40) for _ in range(rng.randint(1, 5))]
        while sum(lengths) > 100:
            lengths.pop()
        splits = [rng.randint(0, length) for length in lengths]
        ids = [rng.randrange(1 << 16 if id_bytes == 2 else 1 << 31) for _ in range(sum(lengths))]
        body = body_of([id_bytes * length for length in lengths], splits, ids, id_bytes)
        assert unpack(body, len(lengths), Limits(id_bytes, 40, 100, False)) == (
            len(lengths), len(ids), lengths, splits, ids)


def test_unpack_takes_as_much_as_the_limits_say():
    assert unpack(body_of([80, 80, 40], [40, 40, 20], range(100)), 3)[:2] == (3, 100)
    assert unpack(body_of([2] * 100, [1] * 100, range(100)), 100)[:2] == (100, 100)


@pytest.mark.parametrize("body, texts", [
    (body_of([4, 6], [2, 3], range(5)), 0),
    (body_of([4, 6], [2, 3], range(5)), 1),
    (body_of([4, 6], [2, 3], range(5)), 3),
    (body_of([4, 6], [2, 3], range(5)), 1 << 31),
    (body_of([4, 6], [2, 3], range(4)), 2),
    (body_of([4, 6], [2, 3], range(6)), 2),
    (body_of([4, 0], [2, 0], range(2)), 2),
    (body_of([5, 5], [2, 2], range(5)), 2),
    (body_of([(1 << 32) - 2, 12], [2, 2], range(5)), 2),
    (body_of([82], [41], range(41)), 1),
    (body_of([80, 80, 42], [40, 40, 21], range(101)), 3),
    (body_of([2] * 101, [1] * 101, range(101)), 101),
    (np.zeros(1, np.uint8), 1),
], ids=["no text", "ids left", "sizes past the ids", "texts past the body", "an id short",
        "an id more", "empty text", "half ids", "size below zero", "long text", "many tokens",
        "many texts", "no sizes"])
def test_unpack_of_what_is_not_sound_ends_the_batch(body, texts):
    assert unpack(body, texts)[:2] == (0, 0)


def test_unpack_refuses_pairs_where_it_is_told():
    limits = LIMITS._replace(refuses_pairs=True)
    assert unpack(body_of([4, 6], [2, 3], range(5)), 2, limits)[:2] == (2, 5)
    assert unpack(body_of([4, 6], [2, 2], range(5)), 2, limits)[:2] == (0, 0)


def pack(logits, labels):
    """(texts left, tokens left, packed)."""
    arrays = {"logits": logits, "packed": np.zeros((len(logits), labels), np.float32),
              "texts": np.array([len(logits)]), "tokens": np.array([7])}
    assert tuple(arrays) == PACK.names
    run_code(lambda a, _: emit_pack(a, "kernel", labels, logits.strides[0]), arrays)
    return arrays["texts"][0], arrays["tokens"][0], arrays["packed"]


@pytest.mark.parametrize("labels", [1, 2, 15, 16, 17, 32, 150])
def test_pack_puts_logits_side_by_side(labels):
    width = -(-labels // 32) * 32
    logits = np.random.default_rng(labels).standard_normal((5, width)).astype(np.float32)
    logits[0, 0], logits[1, 0] = -0.0, 3e38
    texts, tokens, packed = pack(logits, labels)
    assert (texts, tokens) == (5, 7)
    assert packed.tobytes() == logits[:, :labels].tobytes()


@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -np.inf])
def test_pack_of_what_is_not_finite_ends_the_batch(value):
    for labels in (2, 17, 150):
        width = -(-labels // 32) * 32
        for place in (0, labels - 1):
            logits = np.ones((3, width), np.float32)
            logits[1, place] = value
            assert pack(logits, labels)[:2] == (0, 0)
        logits = np.ones((3, width), np.float32)
        logits[1, labels:] = value     # beside what is wanted
        assert pack(logits, labels)[0] == 3
