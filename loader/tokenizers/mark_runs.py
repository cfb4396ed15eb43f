"""Long runs of combining marks put in order, so that Python's normal forms stay linear.

Those sort marks by insertion: a million of them in the wrong order would take hours.
"""

from __future__ import annotations

import re
import unicodedata

from loader.tokenizers import bert_code_points as tables
from loader.tokenizers.code_points import character_class

# Shorter runs are sorted by insertion as fast.
LONG_RUN = 32

_RUN = re.compile(character_class(tables.ACCENTS + tables.KEPT_MARKS) + f"{{{LONG_RUN},}}")


def ordered(text: str) -> str:
    """A text with the same normal forms, in which long runs of marks are decomposed and sorted."""
    return text if text.isascii() else _RUN.sub(_sorted, text)


def _sorted(match: re.Match) -> str:
    marks: list[str] = []
    run: list[str] = []
    for mark in match.group():
        for part in unicodedata.normalize("NFD", mark):
            if unicodedata.combining(part):
                run.append(part)
            else:
                marks += sorted(run, key=unicodedata.combining)
                marks.append(part)
                run = []
    return "".join(marks + sorted(run, key=unicodedata.combining))
