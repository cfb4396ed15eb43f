"""Texts side by side are the rows they were made of."""

import numpy as np

from model.program import Row, Texts


def test_texts_are_their_rows():
    rows = [Row(np.array(ids, "<u2"), split) for ids, split in (([7, 8, 9], 3), ([5], 1),
                                                                ([1, 2], 1))]
    texts = Texts.of(rows)
    assert texts.ids.tolist() == [7, 8, 9, 5, 1, 2] and texts.ids.dtype == np.uint16
    assert (texts.sizes, texts.splits) == ([3, 1, 2], [3, 1, 1])
    for found in (list(texts), texts[:], [texts[place] for place in range(len(texts))]):
        assert [(row.ids.tolist(), row.split) for row in found] == [
            (row.ids.tolist(), row.split) for row in rows]
