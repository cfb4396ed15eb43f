"""Long runs of marks, put in order: the same normal forms, in linear time."""

import random
import unicodedata

import pytest

from loader.tokenizers.mark_runs import LONG_RUN, ordered

# Of several classes; U+0344 decomposes, U+034F and U+0591's neighbour U+05BF do not move others.
MARKS = "\u0301\u0323\u0327\u0344\u034f\u05bf\u0591\u3099\u0f73\u0345"


@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC", "NFKD"])
def test_ordered_text_has_the_same_normal_forms(form):
    rng = random.Random(form)
    for _ in range(300):
        text = "".join(rng.choice(["e", "か", "x"]) + "".join(
            rng.choices(MARKS, k=rng.choice((1, LONG_RUN - 1, LONG_RUN, 3 * LONG_RUN))))
            for _ in range(3))
        assert unicodedata.normalize(form, ordered(text)) == unicodedata.normalize(form, text)


def test_ordered_leaves_short_runs_and_other_texts_alone():
    for text in ("", "a", "e\u0323\u0301", "\u0301\u0323" * (LONG_RUN // 2 - 1), "日本"):
        assert ordered(text) is text or ordered(text) == text


def test_ordered_run_is_in_canonical_order():
    text = ordered("e" + "\u0301\u0323" * 100)
    assert text == "e" + "\u0323" * 100 + "\u0301" * 100
