"""tools.inspect: what a folder is, why it is refused, and ids as they are served."""

import gzip
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiny_checkpoint import write_checkpoint
from tools.inspect import facts, main


def run(capsys, *arguments: object) -> tuple[int, str, str]:
    status = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.fixture
def echo(tmp_path: Path) -> Path:
    folder = write_checkpoint(tmp_path / "echo", model_type="echo", architectures=...)
    (folder / "model.safetensors").unlink()
    return folder


def test_inspect_sound_checkpoint_tells_what_is_served(shared, capsys):
    folder = shared / "checkpoints" / "bert-multilabel"
    golden = json.loads((folder / "golden.json").read_text())
    status, out, err = run(capsys, folder, "--json")
    found = json.loads(out)
    assert (status, err, found["servable"], found["reason"]) == (0, "", True, None)
    assert found["labels"] == golden["labels"] and found["function"] == "sigmoid"
    assert found["max_tokens"] == golden["max_length"] and found["takes_pairs"]
    assert found["model_type"] == "bert" and found["family"] == "bert"
    assert sum(found["weight_bytes"].values()) < found["files"]["model.safetensors"]
    stored = {"F32": 4, "F16": 2}
    assert found["parameters"] == sum(
        size // stored[dtype] for dtype, size in found["weight_bytes"].items())
    status, out, err = run(capsys, folder)
    assert status == 0 and err == "" and "served      yes" in out
    assert f"labels      {len(golden['labels'])}: " in out and f"{found['parameters']:,}" in out


@pytest.mark.parametrize("name", ["refuse-gpt2", "refuse-adapter-only", "refuse-no-weights"])
def test_inspect_refused_checkpoint_tells_what_it_is_and_why_in_one_sentence(shared, capsys, name):
    status, out, err = run(capsys, shared / "checkpoints" / name)
    assert status == 2 and err.count("\n") == 1 and err.endswith(".\n")
    assert "served      no" in out and "tokenizer.json" in out
    status, out, _ = run(capsys, shared / "checkpoints" / name, "--json")
    assert status == 2 and json.loads(out)["reason"] == err.strip()
    assert json.loads(out)["servable"] is False


def test_inspect_no_folder_is_refused(tmp_path, capsys):
    status, out, err = run(capsys, tmp_path / "none")
    assert (status, out) == (2, "") and "is not there" in err


def test_inspect_links_that_lead_nowhere_are_no_files(echo, capsys):
    (echo / "loop").symlink_to("loop")
    (echo / "gone").symlink_to("nothing")
    (echo / "sub").mkdir()
    (echo / "linked").symlink_to("config.json")
    status, out, _ = run(capsys, echo, "--json")
    files = json.loads(out)["files"]
    assert status == 0 and list(files) == ["config.json", "linked", "vocab.txt"]
    assert files["linked"] == files["config.json"]


def test_inspect_many_labels_are_told_in_part(echo, capsys):
    config = json.loads((echo / "config.json").read_text())
    config["id2label"] = {str(index): f"label-{index}" for index in range(30)}
    (echo / "config.json").write_text(json.dumps(config))
    assert facts(str(echo))["labels"][29] == "label-29"
    _, out, _ = run(capsys, echo)
    assert "30: label-0, " in out and "… 10 more" in out and "weights     0 parameters, none" in out


def test_inspect_ids_are_those_that_are_served(shared, capsys, tmp_path):
    folder = shared / "checkpoints" / "bert-max-length-20"
    entries = json.loads((folder / "golden.json").read_text())["entries"]
    (tmp_path / "texts.jsonl").write_text("".join(
        json.dumps({key: entry[key] for key in ("text", "text_pair") if key in entry}) + "\n"
        for entry in entries))
    status, out, _ = run(capsys, folder, "--ids", tmp_path / "texts.jsonl")
    assert status == 0
    assert [json.loads(line) for line in out.splitlines()] == \
        [entry["input_ids"] for entry in entries]


@pytest.mark.parametrize("kind", [
    "wordpiece-uncased", "wordpiece-cased", "bpe-gpt2", "bpe-modernbert", "bpe-llama3",
    "unigram-xlmr", "unigram-bge", "unigram-deberta-v3"])
def test_inspect_ids_tokenizer_alone_truncates_nothing(shared, capsys, monkeypatch, kind):
    folder = shared / "tokenizers" / kind
    lines = [json.loads(line) for line in gzip.open(folder / "lines.jsonl.gz", "rt", "utf-8")]
    texts = "".join(json.dumps({"text": line["text"]}) + "\n" for line in lines).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(texts)))
    status, out, _ = run(capsys, folder, "--ids", "-")
    assert status == 0
    assert [json.loads(line) for line in out.splitlines()] == [line["ids"] for line in lines]


def test_inspect_ids_tokenizer_with_its_config_follows_that(shared, capsys, tmp_path):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        source = shared / "checkpoints" / "bert-cased" / name
        (tmp_path / name).write_bytes(source.read_bytes())
    (tmp_path / "x.jsonl").write_text('{"text": "ABC"}\n')
    _, cased, _ = run(capsys, tmp_path, "--ids", tmp_path / "x.jsonl")
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    _, lower, _ = run(capsys, tmp_path, "--ids", tmp_path / "x.jsonl")
    assert cased != lower


@pytest.mark.parametrize(("lines", "words"), [
    ('{"text": "a"}\n{"txt": "b"}\n', "x.jsonl:2: 'txt' is not a key of a line."),
    ("{}\n", "x.jsonl:1: text is missing."), ("\n", "x.jsonl:1: "),
    ('{"texts": ["a"]}\n', "x.jsonl:1: texts, logits and top_k belong"),
    ('{"text": "\\ud800"}\n', "x.jsonl:1: "),
    ('{"text": "' + "a" * (16 << 20) + '"}\n', "x.jsonl:1: the line is too long.")])
def test_inspect_ids_bad_line_is_named(echo, capsys, tmp_path, lines, words):
    (tmp_path / "x.jsonl").write_text(lines)
    status, _, err = run(capsys, echo, "--ids", tmp_path / "x.jsonl")
    assert status == 2 and words in err and err.count("\n") == 1 and "body" not in err


def test_inspect_ids_file_that_is_not_there_is_named(echo, capsys):
    status, _, err = run(capsys, echo, "--ids", "/nowhere.jsonl")
    assert status == 2 and "/nowhere.jsonl: No such file" in err


def test_inspect_flags_that_exclude_each_other_are_refused(echo):
    with pytest.raises(SystemExit) as ended:
        main([str(echo), "--ids", "x", "--json"])
    assert ended.value.code == 2


def test_inspect_reader_that_leaves_ends_it_quietly(repo, echo, tmp_path):
    (tmp_path / "x.jsonl").write_text('{"text": "a b c d"}\n' * 50_000)
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "tools.inspect", str(echo), "--ids",
         str(tmp_path / "x.jsonl")], cwd=repo, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(60) == 1
    assert process.stderr.read() == b""
    process.stderr.close()


def test_inspect_never_imports_torch(repo, shared):
    script = ("import sys; from tools.inspect import main; "
              f"main([{str(shared / 'checkpoints' / 'bert')!r}]); "
              "sys.exit('torch' in sys.modules)")
    subprocess.run([sys.executable, "-c", script], cwd=repo, check=True,
                   stdout=subprocess.DEVNULL)
