"""Labelled texts: one `label<TAB>text` a line, UTF-8, and their division into folds."""

import random
from collections.abc import Sequence
from typing import NamedTuple


class TrainingError(Exception):
    """Training cannot begin or go on: one sentence with the file, the fault and the way out."""


class Labelled(NamedTuple):
    """`labels` are indices into `names`, in line order beside `texts`."""

    names: list[str]
    labels: list[int]
    texts: list[str]


def read_tsv(path: str, names: Sequence[str] | None = None) -> Labelled:
    """The texts of a file; label names are sorted, or `names` where a model has them already.

    Spaces around a label do not count, empty lines are skipped, a text may hold tabs. Raises
    TrainingError for an unreadable or empty file, a line without a tab or a text, a label that
    `names` lacks, and fewer than two labels.
    """
    found, texts = [], []
    for number, line in enumerate(_lines(path), 1):
        if not line:
            continue
        label, tab, text = line.partition("\t")
        label = label.strip()
        if not tab or not label or not text.strip():
            raise TrainingError(f"{path}:{number} is not label<TAB>text; correct or remove it")
        if names is not None and label not in names:
            raise TrainingError(f"{path}:{number} has the label {label!r}, but the training texts "
                                f"have only {', '.join(names)}")
        found.append(label)
        texts.append(text)
    if not found:
        raise TrainingError(f"{path} holds no texts; give it lines of label<TAB>text")
    known = sorted(set(found)) if names is None else list(names)
    if len(known) < 2:
        raise TrainingError(f"{path} has the one label {known[0]!r}; a classifier needs two")
    places = {label: index for index, label in enumerate(known)}
    return Labelled(known, [places[label] for label in found], texts)


def read_lines(path: str) -> list[str]:
    """The texts of a file of one text a line, without empty ones. Raises TrainingError for an
    unreadable or empty file."""
    texts = [line for line in _lines(path) if line]
    if not texts:
        raise TrainingError(f"{path} holds no texts; give it one a line")
    return texts


def folds(data: Labelled, count: int, rng: random.Random) -> list[tuple[Labelled, Labelled]]:
    """`count` times (rest, held-out part): each text is held out once, and about a `count`th part
    of each label every time.

    Texts equal after lower-casing and collapsing white space stay on one side: a message sent
    twice would otherwise be known by heart.
    """
    groups: dict[str, list[int]] = {}
    for index, text in enumerate(data.texts):
        groups.setdefault(" ".join(text.lower().split()), []).append(index)
    order = sorted(groups)
    rng.shuffle(order)
    parts: list[list[int]] = [[] for _ in range(count)]
    # The first fold is served last: a label of one text is then not missing from its rest.
    turns = [count - 1] * len(data.names)
    for key in order:
        label = data.labels[groups[key][0]]
        parts[turns[label]] += groups[key]
        turns[label] = (turns[label] - 1) % count
    everything = set(range(len(data.texts)))
    return [(_select(data, sorted(everything.difference(part))), _select(data, sorted(part)))
            for part in parts]


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8-sig", newline="\n") as file:
            return [line.removesuffix("\r") for line in file.read().split("\n")]
    except OSError as error:
        raise TrainingError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise TrainingError(f"{path} is not UTF-8 at byte {error.start}; save it as UTF-8") \
            from None


def _select(data: Labelled, indices: list[int]) -> Labelled:
    return Labelled(data.names, [data.labels[i] for i in indices],
                    [data.texts[i] for i in indices])
