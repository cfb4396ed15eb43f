"""tools.train as people run it: a checkpoint that the house serves, the same bytes again, and
one sentence for whatever is wrong."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from loader.prepare import map_file, prepare
from loader.safetensors import float32_array, open_image
from loader.tokenizers.table import open_tokenizer
from model.families.table import FAMILIES, reference
from model.program import Row

GOOD, BAD = ["so good", "very good day", "good and fine"], ["bad", "a bad, bad day", "it was bad"]
TINY = ["--layers", "1", "--width", "32", "--positions", "32", "--vocab-size", "60",
        "--epochs", "15", "--batch", "4", "--learning-rate", "0.005",
        "--word-dropout", "0"]
TIMEOUT_S = 120


def run(repo: Path, *arguments: object) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "tools.train", *map(str, arguments)], cwd=repo,
                          capture_output=True, text=True, timeout=TIMEOUT_S,
                          env={**os.environ, "COLUMNS": "80"})


def write_texts(path: Path, copies: int = 5) -> Path:
    lines = [f"{label}\t{text} {number}" for number in range(copies)
             for label, texts in (("good", GOOD), ("bad", BAD)) for text in texts]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def trained(repo: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, str]:
    """(the texts, a model trained on them, what was printed)."""
    folder = tmp_path_factory.mktemp("train")
    texts = write_texts(folder / "texts.tsv")
    done = run(repo, texts, "--eval", texts, "-o", folder / "made" / "model", *TINY)
    assert done.returncode == 0, done.stderr
    return texts, folder / "made" / "model", done.stdout + done.stderr


def test_train_plain_run_reports_and_shows_progress_in_plain_lines(trained: tuple) -> None:
    said = trained[2]
    assert "accuracy 1.0000 on 30 texts" in said and "recall bad: 1.0000" in said
    assert "steps/s" in said and "s left" in said and "\r" not in said


def test_train_checkpoint_is_complete_and_in_hugging_face_layout(trained: tuple) -> None:
    model = trained[1]
    assert sorted(os.listdir(model)) == [
        "README.md", "config.json", "model.safetensors", "special_tokens_map.json",
        "tokenizer.json", "tokenizer_config.json", "vocab.txt"]
    config = json.loads((model / "config.json").read_text())
    assert config["architectures"] == ["BertForSequenceClassification"]
    assert config["id2label"] == {"0": "bad", "1": "good"}
    assert config["label2id"] == {"bad": 0, "good": 1}
    table = json.loads((model / "tokenizer.json").read_text())["model"]["vocab"]
    assert list(table) == (model / "vocab.txt").read_text().splitlines()
    card = (model / "README.md").read_text()
    assert "accuracy 1.0000" in card and "--layers 1" in card and "sha256" in card
    assert [path.name for path in model.parent.iterdir()] == ["model"]


def test_train_checkpoint_is_served_with_the_logits_that_were_trained(trained: tuple) -> None:
    from tools.training.loop import pad
    from tools.training.network import Classifier, load
    prepared = prepare(str(trained[1]), "model", FAMILIES)
    weights = map_file(prepared.weights_fd)
    os.close(prepared.weights_fd)
    tokenizer = open_tokenizer(prepared.tokenizer)
    rows = [tokenizer.encode(text, None, 32).ids for text in ["", *GOOD, *BAD, "good " * 50]]
    network = Classifier(json.loads((trained[1] / "config.json").read_text()), 2).eval()
    load(network, {name: float32_array(weights, tensor)
                   for name, tensor in open_image(weights).items()})
    ours = network(*pad(rows)).detach().numpy()
    served = reference(prepared.card, weights, [Row(np.array(ids), len(ids)) for ids in rows])
    assert np.abs(ours - served).max() < 1e-5
    assert served[1:7].argmax(axis=1).tolist() == [1, 1, 1, 0, 0, 0]


@pytest.mark.slow
def test_train_same_seed_gives_the_same_bytes_another_does_not(trained: tuple, repo: Path,
                                                               tmp_path: Path) -> None:
    texts, model, _ = trained
    assert run(repo, texts, "--eval", texts, "-o", tmp_path / "model", *TINY).returncode == 0
    for name in os.listdir(model):
        assert (tmp_path / "model" / name).read_bytes() == (model / name).read_bytes(), name
    assert run(repo, texts, "-o", tmp_path / "c", *TINY, "--seed", 1).returncode == 0
    assert (tmp_path / "c" / "model.safetensors").read_bytes() \
        != (model / "model.safetensors").read_bytes()


@pytest.mark.slow
def test_train_from_an_encoder_keeps_its_tokenizer_and_its_weights(trained: tuple, repo: Path,
                                                                   tmp_path: Path) -> None:
    texts, model, _ = trained
    done = run(repo, texts, "-o", tmp_path / "b", "--init", model, "--epochs", 1,
               "--learning-rate", "1e-9")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "b" / "tokenizer.json").read_bytes() \
        == (model / "tokenizer.json").read_bytes()
    before, after = ((folder / "model.safetensors").read_bytes() for folder in
                     (model, tmp_path / "b"))
    old, new = open_image(before), open_image(after)
    for name in (name for name in old if name.startswith("bert.")):
        assert np.allclose(float32_array(before, old[name]), float32_array(after, new[name]),
                           atol=1e-6), name


@pytest.mark.slow
def test_train_folds_report_every_text_and_write_nothing(trained: tuple, repo: Path,
                                                         tmp_path: Path) -> None:
    done = run(repo, trained[0], "--folds", 3, *TINY)
    assert done.returncode == 0, done.stderr
    assert "fold 3 of 3: accuracy" in done.stdout and "on 30 texts" in done.stdout


@pytest.mark.slow
def test_train_force_replaces_a_checkpoint_and_nothing_else(trained: tuple, repo: Path,
                                                            tmp_path: Path) -> None:
    texts, place = trained[0], tmp_path / "model"
    place.mkdir()
    (place / "config.json").write_text("{}")
    assert "is not empty" in run(repo, texts, "-o", place, *TINY).stderr
    assert run(repo, texts, "-o", place, "--force", *TINY).returncode == 0
    (place / "notes.txt").write_text("mine")
    done = run(repo, texts, "-o", place, "--force", *TINY)
    assert done.returncode == 2 and "holds notes.txt" in done.stderr
    assert (place / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize(("arguments", "words"), [
    (["none.tsv", "-o", "new"], "none.tsv: No such file or directory"),
    (["TEXTS"], "--out is missing"),
    (["TEXTS", "-o", "TEXTS"], "is not a folder"),
    (["TEXTS", "-o", "new", "--folds", "3"], "leave out --out"),
    (["TEXTS", "-o", "new", "--eval", "none.tsv"], "none.tsv: No such file"),
    (["TEXTS", "-o", "new", "--heads", "3"], "--width 128 is no multiple of --heads 3"),
    (["TEXTS", "-o", "new", "--init", "none"], "none is not a folder"),
    (["TEXTS", "-o", "new", "--init", "x", "--cased"], "leave out --vocab and --cased"),
    (["TEXTS", "-o", "new", "--vocab", "none"], "none: No such file"),
    (["TEXTS", "-o", "new", "--vocab", "TEXTS"], "texts.tsv: vocab.txt"),
    (["TEXTS", "-o", "new", "--card", "none"], "none: No such file"),
    (["TEXTS", "-o", "new", "--epochs", "0"], "'0' is not a whole number from 1"),
    (["TEXTS", "-o", "new", "--dropout", "nan"], "'nan' is not a number from 0"),
])
def test_train_wrong_arguments_are_refused_in_a_sentence(
        tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch,
        arguments: list[str], words: str) -> None:
    from tools.train import main
    monkeypatch.chdir(tmp_path)
    texts = write_texts(tmp_path / "texts.tsv", 1)
    try:
        code = main([str(texts) if word == "TEXTS" else word for word in arguments])
    except SystemExit as stop:
        code = stop.code
    said = capsys.readouterr().err
    assert code == 2 and words in said.splitlines()[-1], said
    assert not (tmp_path / "new").exists()


def test_train_help_names_the_defaults_without_torch(repo: Path) -> None:
    done = run(repo, "--help")
    assert done.returncode == 0 and "(default: 6000)" in done.stdout and "None" not in done.stdout
    code = "import sys, tools.train; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=repo,
                          timeout=TIMEOUT_S).returncode == 0
