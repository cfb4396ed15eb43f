"""The golden checkpoints and the 202 damaged ones, through `prepare` with the real families."""

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from loader.errors import CheckpointError
from loader.prepare import Prepared, map_file, prepare
from loader.tokenizers.table import open_tokenizer
from model.families.table import FAMILIES

LIMIT_S = 2.0
GIB_IN_KIB = 1 << 20

REASONS = {
    "refuse-mlm-only": "BertForMaskedLM, not a sequence", "refuse-gpt2": "model_type 'gpt2'",
    "refuse-token-classification": "BertForTokenClassification, not a sequence",
    "refuse-relative-key": "position_embedding_type 'relative_key_query'",
    "refuse-adapter-only": "adapter", "refuse-quantized": "quantised weights",
    "refuse-auto-map": "model_type 'my_bert' with auto_map needs code",
    "refuse-spm-only": "sentencepiece.bpe.model alone is not read",
    "refuse-no-weights": "model.safetensors is missing"}


def attempt(folder: Path) -> tuple[Prepared | None, str]:
    """The prepared model, or the sentence that refuses it; fails where either takes too long."""
    begin = time.monotonic()
    try:
        return prepare(str(folder), folder.name, FAMILIES), ""
    except CheckpointError as error:
        message = str(error)
        assert "\n" not in message and message.endswith(".") and len(message) < 500, message
        return None, message
    finally:
        assert time.monotonic() - begin < LIMIT_S, folder


def answers(prepared: Prepared, texts: list[str]) -> bool:
    """True if each text has ids that the embedding table holds, in time."""
    tokenizer, limit = open_tokenizer(prepared.tokenizer), prepared.card["max_tokens"]
    begin = time.monotonic()
    rows = [tokenizer.encode(text, None, limit).ids for text in texts]
    return time.monotonic() - begin < LIMIT_S and all(
        2 <= len(row) <= limit and 0 <= min(row) and max(row) < prepared.card["vocab_size"]
        for row in rows)


@pytest.fixture(scope="module")
def malformed(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The damaged folders, written by the script that knows them."""
    out = tmp_path_factory.mktemp("malformed")
    subprocess.run([sys.executable, str(shared / "malformed" / "make.py"), str(out)], check=True,
                   capture_output=True)
    return out


def test_prepare_malformed_folders_follow_their_rules(malformed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cases = json.loads((malformed / "manifest.json").read_text())["cases"]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    problems = []
    for name, case in cases.items():
        prepared, message = attempt(malformed / name)
        if prepared is None:
            if case["expected"] == "served":
                problems.append(f"{name} is refused: {message}")
            elif case["file"] not in message:
                problems.append(f"{name} does not name {case['file']}: {message}")
        else:
            if case["expected"] == "refused":
                problems.append(f"{name} is served: {case['fault']}")
            elif not answers(prepared, ["a good free day", *(case.get("post") or ())]):
                problems.append(f"{name} is served with ids that it does not hold")
            os.close(prepared.weights_fd)
    assert not problems, "\n".join(problems)
    assert len(cases) == 202
    assert not list(malformed.glob("EXECUTED-*")) and not list(tmp_path.iterdir())
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < GIB_IN_KIB


def test_prepare_no_torch_is_imported(malformed, repo):
    script = ("import sys; from model.families.table import FAMILIES; "
              "from loader.prepare import prepare; "
              f"prepare({str(malformed / 'control-sound')!r}, 'x', FAMILIES); "
              "sys.exit('torch' in sys.modules)")
    subprocess.run([sys.executable, "-c", script], cwd=repo, check=True)


def test_prepare_golden_folders_follow_the_manifest(shared):
    rows = json.loads((shared / "checkpoints" / "MANIFEST.json").read_text())["folders"]
    problems, served = [], 0
    for row in rows:
        folder = shared / "checkpoints" / row["folder"]
        prepared, message = attempt(folder)
        if prepared is not None:
            os.close(prepared.weights_fd)
        if row["expected"] == "refuse":
            if REASONS[row["folder"]] not in message:
                problems.append(f"{row['folder']}: {message}")
        elif prepared is None:
            problems.append(f"{row['folder']}: {message}")
        else:
            served += 1
            problems += card_problems(prepared.card, json.loads(
                (folder / "golden.json").read_text()))
    assert not problems, "\n".join(problems)
    assert served == sum(row["expected"] == "serve" for row in rows)


def card_problems(card: dict, golden: dict) -> list[str]:
    """Where a card differs from what the reference says of labels, length and function."""
    function = golden["function"]
    if "sbert_scores" in golden["entries"][0]:  # the stored activation, which the pipeline skips
        entry = golden["entries"][0]
        function = "none" if entry["sbert_scores"] == entry["logits"] else "sigmoid"
    want = {"labels": golden["labels"], "max_tokens": golden["max_length"], "function": function}
    return [f"{card['name']}: {key} {card[key]} instead of {value}"
            for key, value in want.items() if card[key] != value]


@pytest.mark.slow
def test_prepare_real_checkpoint_is_ready_in_time(minilm):
    begin = time.monotonic()
    prepared, message = attempt(minilm)
    assert prepared is not None, message
    assert time.monotonic() - begin < LIMIT_S
    with map_file(prepared.weights_fd) as image:
        assert len(image) > 80_000_000
    assert prepared.card["labels"] == ["ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM"]
    os.close(prepared.weights_fd)
