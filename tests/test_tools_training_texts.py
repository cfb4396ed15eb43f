"""Labelled texts: what is read, what is refused with its line, and folds that keep copies apart."""

import random
from pathlib import Path

import pytest

from tools.training.texts import Labelled, TrainingError, folds, read_tsv


def write(folder: Path, data: bytes) -> str:
    (folder / "texts.tsv").write_bytes(data)
    return str(folder / "texts.tsv")


def test_texts_plain_file_is_read_in_order(tmp_path: Path) -> None:
    data = read_tsv(write(tmp_path, "spam\twin £5\nham\thi\n".encode()))
    assert data == Labelled(["ham", "spam"], [1, 0], ["win £5", "hi"])


def test_texts_mark_crlf_spaces_and_empty_lines_do_not_count(tmp_path: Path) -> None:
    data = read_tsv(write(tmp_path, b"\xef\xbb\xbf b \tone\r\n\r\na\ttwo\tand a tab"))
    assert data == Labelled(["a", "b"], [1, 0], ["one", "two\tand a tab"])


def test_texts_line_separators_within_a_text_do_not_end_it(tmp_path: Path) -> None:
    data = read_tsv(write(tmp_path, "a\tone\u2028two\x0bthree\x85four\nb\tx\n".encode()))
    assert data.texts == ["one\u2028two\x0bthree\x85four", "x"]


@pytest.mark.parametrize(("content", "words"), [
    (b"ham\tgood\nno tab here\n", "texts.tsv:2 is not label<TAB>text"),
    (b"ham\tgood\n\ttext without a label\n", "texts.tsv:2 is not label<TAB>text"),
    (b"ham\tgood\n\nspam\t  \n", "texts.tsv:3 is not label<TAB>text"),
    (b"ham\tgood\nham\tfine\n", "has the one label 'ham'; a classifier needs two"),
    (b"", "holds no texts"),
    (b"\n\n", "holds no texts"),
    (b"ham\tcaf\xe9\n", "is not UTF-8 at byte 7"),
])
def test_texts_unsound_file_is_refused_in_a_sentence(tmp_path: Path, content: bytes,
                                                     words: str) -> None:
    with pytest.raises(TrainingError) as refusal:
        read_tsv(write(tmp_path, content))
    assert words in str(refusal.value) and "\n" not in str(refusal.value)


def test_texts_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"none\.tsv: No such file"):
        read_tsv(str(tmp_path / "none.tsv"))


def test_texts_label_that_training_lacks_is_refused_with_its_line(tmp_path: Path) -> None:
    path = write(tmp_path, b"ham\tgood\neggs\tx\n")
    with pytest.raises(TrainingError, match=r"texts\.tsv:2 has the label 'eggs'"):
        read_tsv(path, ["ham", "spam"])


def test_texts_one_label_of_known_ones_is_enough_to_report_on(tmp_path: Path) -> None:
    assert read_tsv(write(tmp_path, b"ham\tgood\n"), ["ham", "spam"]).labels == [0]


def labelled(count: int) -> Labelled:
    """A third of label b; every fourth text stands twice, in other letters."""
    texts, labels = [], []
    for number in range(count):
        for text in [f"text {number}"] + [f"TEXT   {number}"] * (number % 4 == 0):
            texts.append(text)
            labels.append(int(number % 3 == 0))
    return Labelled(["a", "b"], labels, texts)


@pytest.mark.parametrize("count", [2, 5, 10])
def test_folds_hold_out_every_text_once_and_each_label_evenly(count: int) -> None:
    data = labelled(120)
    parts = folds(data, count, random.Random(1))
    assert sorted(text for _, held in parts for text in held.texts) == sorted(data.texts)
    for rest, held in parts:
        assert sorted(rest.texts + held.texts) == sorted(data.texts)
        assert abs(held.labels.count(1) - data.labels.count(1) / count) <= 12 / count + 4


def test_folds_equal_texts_are_never_on_both_sides() -> None:
    for rest, held in folds(labelled(60), 4, random.Random(2)):
        assert not {" ".join(text.lower().split()) for text in rest.texts} \
            & {" ".join(text.lower().split()) for text in held.texts}


def test_folds_label_of_one_text_stays_in_the_rest_of_the_first() -> None:
    data = Labelled(["a", "b"], [0] * 20 + [1], [f"text {n}" for n in range(21)])
    rest, _ = folds(data, 10, random.Random(3))[0]
    assert 1 in rest.labels


def test_folds_same_seed_gives_the_same_parts() -> None:
    assert folds(labelled(50), 3, random.Random(4)) == folds(labelled(50), 3, random.Random(4))
