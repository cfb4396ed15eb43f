"""tools.build as people run it: a bundle that is served, the same bytes again, and one sentence and
an exit code for whatever is wrong."""

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from loader.bundle import INT8_WEIGHTS
from loader.manifest import MANIFEST
from loader.prepare import map_file, prepare
from loader.safetensors import open_image
from model.families.table import FAMILIES, build
from model.program import Row
from tests.house import House
from tests.tiny_bundle import arrays_of, image_of, products, write_checkpoint
from tests.tiny_checkpoint import WORDS
from tools import build as tool
from tools.building import gate, layers

TIMEOUT_S = 240
TEXTS = 40


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    """A BERT whose decisions are clear: all but few texts are good."""
    folder, weights = write_checkpoint(tmp_path_factory.mktemp("build") / "tiny")
    arrays = {name: array.copy() for name, array in arrays_of(weights).items()}
    arrays["classifier.bias"][:] = -4.0, 4.0
    (folder / "model.safetensors").write_bytes(image_of(arrays))
    return folder


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> Path:
    """label<TAB>text lines, fewer than the gate wants."""
    rng = np.random.default_rng(1)
    lines = [f"{('bad', 'good')[number % 2]}\t{' '.join(rng.choice(WORDS[5:31], 1 + number % 25))}"
             for number in range(TEXTS)]
    path = tmp_path_factory.mktemp("texts") / "eval.tsv"
    path.write_text("\n".join(lines) + "\n")
    return path


def run(repo: Path, *arguments: object) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-W", "error", "-m", "tools.build",
                           *map(str, arguments)], cwd=repo, capture_output=True, text=True,
                          timeout=TIMEOUT_S, env={**os.environ, "COLUMNS": "80"})


@pytest.fixture(scope="module")
def built(repo, checkpoint, texts, tmp_path_factory):
    """(the bundle, what the tool said)."""
    out = tmp_path_factory.mktemp("out") / "deep" / "bundle"
    done = run(repo, checkpoint, "--eval", texts, "-o", out, "--force", "--bits", "7")
    assert done.returncode == 0, done.stderr
    return out, done


def test_build_writes_a_whole_bundle_and_tells_what_it_measured(built, checkpoint):
    out, done = built
    assert list(out.parent.iterdir()) == [out]
    lines = done.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines if "agrees with fp32" in line] in (
        ["fp16", "int8"], ["fp16", "bf16", "int8"])
    assert f"wrote {out}, version 2" in lines[-1] and "12 of 12 products in 8 bits" in lines[-1]
    assert "512 texts to calibrate by, 40 to judge by" in done.stderr
    assert "product 9/9 bert.encoder.layer.1.output.dense: error" in done.stderr
    manifest = json.loads((out / MANIFEST).read_text())
    assert {path.name for path in out.iterdir()} == {*manifest["files"], MANIFEST} == {
        "config.json", "vocab.txt", "model.safetensors", INT8_WEIGHTS, MANIFEST}
    assert (manifest["name"], manifest["labels"], manifest["bits"]) == ("tiny", ["bad", "good"], 7)
    assert set(manifest["source"]) == {"config.json", "vocab.txt", "model.safetensors"}
    assert manifest["source"]["vocab.txt"] == manifest["files"]["vocab.txt"]
    weights = (checkpoint / "model.safetensors").read_bytes()
    assert manifest["layers"] == dict.fromkeys(products(weights), "int8")
    day, clock, digits = manifest["version"].split("-")
    assert (len(day), len(clock), len(digits)) == (8, 6, 8) and int(digits, 16) >= 0
    for name, facts in manifest["precisions"].items():
        assert facts["passed"] and facts["faults"] == [] and facts["is_invariant"]
        assert facts["agreement"] >= 0.99 and facts["texts"] == TEXTS
        assert 0.3 < facts["accuracy"] < 0.7 and len(facts["interval"]) == 2
        assert (facts["worst_product_error"] is not None) == (name == "int8")
    assert {"torch", "firebrick", "cpu"} == set(manifest["made_with"])
    assert len(manifest["goldens"]) == 8


def test_build_bundle_answers_as_its_manifest_says(built):
    out, _ = built
    manifest = json.loads((out / MANIFEST).read_text())
    for precision in ("fp32", "int8"):
        prepared = prepare(str(out), "x", FAMILIES, precision)
        with map_file(prepared.weights_fd) as image:
            held = bytes(image)
        os.close(prepared.weights_fd)
        assert any(tensor.dtype == "I8" for tensor in open_image(held).values()) == \
            (precision == "int8")
        rows = [Row(np.array(case["ids"]), case["split"]) for case in manifest["goldens"]]
        expected = np.array([case["logits"] for case in manifest["goldens"]])
        found = build(prepared.card, held).run(rows)
        worst = np.abs(found - expected).max()
        assert worst <= (1e-5 if precision == "fp32" else prepared.card["tolerances"]["int8"])
        assert (worst == 0) == (precision == "fp32")


def test_build_again_gives_the_same_bytes(built, repo, checkpoint, texts, tmp_path):
    first, again = built[0], tmp_path / "again"
    assert run(repo, checkpoint, "--eval", texts, "-o", again, "--force", "--bits",
               "7").returncode == 0
    for name in os.listdir(first):
        if name != MANIFEST:
            assert (first / name).read_bytes() == (again / name).read_bytes(), name
    one, two = (json.loads((folder / MANIFEST).read_text()) for folder in (first, again))
    assert one["version"][-8:] == two["version"][-8:]
    for key in ("version", "self"):
        one.pop(key), two.pop(key)
    assert one == two


def test_build_texts_without_labels_are_judged_by_agreement_alone(repo, checkpoint, texts,
                                                                  tmp_path):
    plain = tmp_path / "texts.txt"
    plain.write_text("\n".join(line.split("\t")[1] for line in texts.read_text().splitlines()))
    done = run(repo, checkpoint, "--texts", plain, "-o", tmp_path / "b", "--force", "--calibrate",
               plain)
    assert done.returncode == 0 and "accuracy" not in done.stdout
    assert f"{TEXTS} texts to calibrate by" in done.stderr
    facts = json.loads((tmp_path / "b" / MANIFEST).read_text())["precisions"]["int8"]
    assert facts["accuracy"] is None and facts["interval"] is None


def refused(capsys, code: int, *arguments: object) -> str:
    """The one sentence of main in this process."""
    assert tool.main([str(argument) for argument in arguments]) == code
    *_, sentence = capsys.readouterr().err.splitlines()
    assert sentence
    return sentence


def test_build_refuses_to_begin_in_one_sentence(repo, checkpoint, texts, built, tmp_path, capsys):
    out = tmp_path / "out"
    taken, other, none = tmp_path / "taken", tmp_path / "other.tsv", tmp_path / "none"
    taken.mkdir()
    other.write_text("good\ta b\nawful\tc\n")
    none.write_text("\n\n")
    for arguments, words in (
            ((checkpoint, "--eval", texts, "-o", taken, "--force"), "is there already"),
            ((checkpoint, "--eval", texts, "-o", out), "has 40 labelled texts, fewer than the 500"),
            ((checkpoint, "--texts", texts, "-o", out), "has 0 labelled texts, fewer than"),
            ((checkpoint, "--eval", other, "-o", out, "--force"), ":2 has the label 'awful'"),
            ((checkpoint, "--eval", none, "-o", out, "--force"), "holds no texts"),
            ((checkpoint, "--texts", none, "-o", out, "--force"), "holds no texts"),
            ((checkpoint, "--eval", texts, "-o", out, "--force", "--calibrate", none), "no texts"),
            ((checkpoint, "--eval", tmp_path / "gone", "-o", out, "--force"), "gone: No such file"),
            ((tmp_path / "gone", "--eval", texts, "-o", out, "--force"), "is not there; name"),
            ((built[0], "--eval", texts, "-o", out, "--force"), "no checkpoint of weights"),
            ((repo / "tests" / "fixtures" / "echo", "--eval", texts, "-o", out, "--force"),
             "no checkpoint of weights")):
        assert words in refused(capsys, 2, *arguments)
    assert not out.exists() and list(taken.iterdir()) == []


@pytest.mark.parametrize("arguments", [
    [], ["x"], ["x", "-o", "y"], ["x", "-o", "y", "--eval", "a", "--texts", "b"],
    ["x", "-o", "y", "--eval", "a", "--bits", "4"], ["x", "-o", "y", "--eval", "a", "--for"]])
def test_build_wrong_flags_are_errors(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        tool.main(arguments)
    assert caught.value.code == 2 and "usage: python -m tools.build" in capsys.readouterr().err


@pytest.mark.parametrize(("module", "limit", "value", "words"), [
    (gate, "AGREEMENT", 1.1, "agrees with fp32 on"),
    (gate, "ROUNDING_LIMIT", 0.1, "times as far off as rounding explains"),
    (layers, "ERROR_LIMIT", 0.0, "8 bits would hurt every product of it")])
def test_build_what_misses_the_gate_is_not_written(checkpoint, texts, tmp_path, capsys, monkeypatch,
                                                   module, limit, value, words):
    monkeypatch.setattr(module, limit, value)
    sentence = refused(capsys, 1, checkpoint, "--eval", texts, "-o", tmp_path / "out", "--force")
    assert words in sentence and "tiny was not built" in sentence
    assert list(tmp_path.iterdir()) == []


def test_build_place_that_cannot_be_written_leaves_nothing(checkpoint, texts, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    sentence = refused(capsys, 2, checkpoint, "--eval", texts, "-o", tmp_path / "file" / "out",
                       "--force")
    assert "cannot be written" in sentence
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def ask(port: int, path: str, body: dict | None = None) -> dict:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", data, timeout=60) as answer:
        return json.loads(answer.read())


@pytest.mark.sockets
@pytest.mark.parametrize("precision", ["auto", "int8", "fp16"])
def test_server_serves_the_bundle(built, precision):
    out, _ = built
    with House(["--model", str(out), "--engines", "1", "--fronts", "1", "--device", "cpu",
                "--precision", precision]) as house:
        model = ask(house.port, "/info")["model"]
        manifest = json.loads((out / MANIFEST).read_text())
        assert (model["name"], model["version"]) == ("tiny", manifest["version"])
        if precision == "auto":
            assert model["precision"] in ("fp32", "fp16", "bf16", "int8")
            assert "of what passed the gate the fastest here" in model["precision_why"]
        else:
            assert (model["precision"], model["precision_why"]) == \
                (precision, "asked for with --precision")
        assert model["kernels"] and model["is_invariant"]
        kinds = {layer.split()[0] for layer in model["kernels"]}
        assert ("int7" in kinds) == (model["precision"] == "int8")
        answer = ask(house.port, "/infer", {"text": "the free a b", "logits": True})
        assert answer["label"] == "good" and answer["model_version"] == manifest["version"]


@pytest.mark.sockets
def test_server_does_not_serve_a_changed_bundle(built, repo, tmp_path):
    changed = shutil.copytree(built[0], tmp_path / "changed")
    data = bytearray((changed / INT8_WEIGHTS).read_bytes())
    data[-7] ^= 1
    (changed / INT8_WEIGHTS).write_bytes(data)
    for precision in ("auto", "fp32"):
        done = subprocess.run([sys.executable, "-m", "server", "--model", str(changed), "--port",
                               "0", "--precision", precision], cwd=repo, capture_output=True,
                              text=True, timeout=TIMEOUT_S)
        assert done.returncode == 2 and done.stdout == ""
        assert f"{INT8_WEIGHTS} is not the file" in done.stderr.splitlines()[-1]
