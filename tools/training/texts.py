"""Labelled texts: one `label<TAB>text` a line, UTF-8."""

import random
from collections import Counter
from typing import NamedTuple


class TextsError(Exception):
    """A file that is no list of labelled texts: one sentence with the line's number."""


class Labelled(NamedTuple):
    """`labels` are indices into `names`, in line order beside `texts`."""

    names: list[str]
    labels: list[int]
    texts: list[str]


def read_tsv(path: str, names: list[str] | None = None) -> Labelled:
    """The texts of a file; label names are sorted, or `names` where a model has them already.

    Raises TextsError for an unreadable file, a line without a tab or a text, a label that `names`
    lacks, and fewer than two labels.
    """
    try:
        with open(path, encoding="utf-8", newline="\n") as file:
            lines = file.read().split("\n")
    except OSError as error:
        raise TextsError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise TextsError(f"{path}: is not UTF-8 at byte {error.start}; save it as UTF-8") from None
    found, texts = [], []
    for number, line in enumerate(lines, 1):
        line = line.removesuffix("\r")
        if not line:
            continue
        label, tab, text = line.partition("\t")
        if not tab or not label.strip() or not text.strip():
            raise TextsError(f"{path}:{number}: is not label<TAB>text")
        found.append(label.strip())
        texts.append(text)
    known = sorted(set(found)) if names is None else names
    if len(known) < 2:
        raise TextsError(f"{path}: has {len(known)} labels, a classifier needs two")
    strange = next((label for label in found if label not in known), None)
    if strange is not None:
        raise TextsError(f"{path}: the label {strange!r} is not one of {', '.join(known)}")
    return Labelled(known, [known.index(label) for label in found], texts)


def hold_out(data: Labelled, share: float, rng: random.Random) -> tuple[Labelled, Labelled]:
    """(rest, held-out part) with about `share` of each label; equal texts stay on one side."""
    groups: dict[str, list[int]] = {}
    for index, text in enumerate(data.texts):
        groups.setdefault(" ".join(text.lower().split()), []).append(index)
    order = sorted(groups)
    rng.shuffle(order)
    wanted = {label: share * count for label, count in Counter(data.labels).items()}
    held: set[int] = set()
    for key in order:
        label = data.labels[groups[key][0]]
        if wanted[label] > 0:
            held.update(groups[key])
            wanted[label] -= len(groups[key])
    return (_select(data, [i for i in range(len(data.texts)) if i not in held]),
            _select(data, sorted(held)))


def _select(data: Labelled, indices: list[int]) -> Labelled:
    return Labelled(data.names, [data.labels[i] for i in indices],
                    [data.texts[i] for i in indices])
