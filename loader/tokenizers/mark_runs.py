"""Long runs of combining marks put in order, so that Python's normal forms stay linear.

Those sort marks by insertion: a million of them in the wrong order would take hours.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

import numpy

from loader.tokenizers import bert_code_points as tables
from loader.tokenizers.code_points import spans

# Shorter runs are sorted by insertion as fast.
LONG_RUN = 32
CODE_POINTS = 0x110000

_RUN = re.compile(b"\1{%d,}" % LONG_RUN)


def ordered(text: str) -> str:
    """A text with the same normal forms, in which long runs of marks are decomposed and sorted."""
    codes = numpy.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    parts, at = [], 0
    for run in _RUN.finditer(_mark_table().take(codes, mode="clip").tobytes()):
        parts += text[at:run.start()], _sorted(text[run.start():run.end()])
        at = run.end()
    return "".join(parts) + text[at:]


@lru_cache(maxsize=1)
def _mark_table() -> numpy.ndarray:
    """Whether a code point is a mark: uint8 [0x110000]. An expression's class takes far longer."""
    table = numpy.zeros(CODE_POINTS, dtype=numpy.uint8)
    for first, last in spans(tables.ACCENTS + tables.KEPT_MARKS):
        table[first:last + 1] = 1
    return table


def _sorted(run: str) -> str:
    forms = {mark: unicodedata.normalize("NFD", mark) for mark in set(run)}
    if any(mark != form for mark, form in forms.items()):
        run = "".join(map(forms.__getitem__, run))
    classes = {mark: unicodedata.combining(mark) for mark in set(run)}
    # Those of class 0 stay where they are, and nothing passes them.
    barriers = "".join(mark for mark, number in classes.items() if not number)
    if not barriers:
        return "".join(sorted(run, key=classes.__getitem__))
    return "".join("".join(sorted(part, key=classes.__getitem__))
                   for part in re.split(f"([{barriers}]+)", run))
