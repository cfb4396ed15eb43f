"""A launch's input equals one that is filled place by place."""

import numpy as np
import pytest

from model.device.ladder import Shape
from model.device.staging import check, fill, size
from model.program import Row

POSITIONS = 40


def _slowly(shape: Shape, rows: list[Row]) -> list[int]:
    ids, places, lengths = [], [], []
    for number in range(shape.batch):
        row = rows[number] if number < len(rows) else Row(np.zeros(1, np.int64), 1)
        lengths.append(len(row.ids))
        for place in range(shape.length):
            is_text = place < len(row.ids)
            ids.append(int(row.ids[place]) if is_text else 0)
            places.append(place + (POSITIONS if is_text and place >= row.split else 0))
    return ids + places + lengths


@pytest.mark.parametrize("seed", range(30))
def test_staging_equals_the_slow_way_whatever_lay_there(seed):
    rng = np.random.default_rng(seed)
    shape = Shape(int(rng.integers(1, POSITIONS)), int(rng.integers(1, 9)))
    rows = []
    for _ in range(int(rng.integers(0, shape.batch + 1))):
        length = int(rng.integers(1, shape.length + 1))
        rows.append(Row(rng.integers(0, 99, length).astype("<u2"),
                        int(rng.integers(0, length + 1))))
    into = rng.integers(-9, 9, size(shape)).astype(np.int32)
    fill(into, shape, rows, POSITIONS)
    assert into.tolist() == _slowly(shape, rows)


@pytest.mark.parametrize("row, words", [
    (Row(np.array([5, 99]), 2), "token id outside"), (Row(np.array([5, -1]), 2), "token id"),
    (Row(np.zeros(0, np.int64), 0), "0 tokens"), (Row(np.zeros(9, np.int64), 9), "9 tokens"),
    (Row(np.zeros(3, np.int64), 4), "split at 4"),
])
def test_staging_text_that_would_reach_out_of_bounds_is_refused(row, words):
    check([Row(np.array([0, 98]), 1)], 99, 8)
    with pytest.raises(ValueError, match=words):
        check([row], 99, 8)
