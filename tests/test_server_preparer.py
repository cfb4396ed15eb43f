"""The preparer as a process: sealed files and a self-test, or one sentence."""

import json
import os
from types import SimpleNamespace

import numpy as np
import pytest

from loader.prepare import map_file, open_card
from loader.tokenizers.table import open_tokenizer
from model.families.echo import echo_logits
from model.grid import buckets
from server import preparer, program_files
from server.metrics import ALIVE_UNTIL, Registry
from server.processes import ChildSpec, Control, fork
from tests.house import ROOT, wait_until

pytestmark = pytest.mark.sockets
ECHO = ROOT / "tests" / "fixtures" / "echo"


def prepare(folder, generation=1):
    """(message, descriptors) of a preparer for that folder, which then ended well."""
    ours, theirs = Control.pair()
    registry = Registry(1, 1)
    page = registry.page("preparer", 0, generation)
    pid = fork(preparer.run, ChildSpec(
        "preparer", 0, 1, generation,
        SimpleNamespace(model=str(folder), precision="auto", device="cpu", engine_nice=0),
        theirs, page, registry, "name",
        os.getpid()))
    theirs.close()
    found = []
    wait_until("the preparer's message", lambda: found.extend(ours.receive()) or found, 60)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    has_given_up = found[0][0].get("message") == preparer.CHANGED
    assert page.get(ALIVE_UNTIL) > 60 or has_given_up, "a large checkpoint outlasts a loop's lease"
    ours.close()
    return found[0]


def test_preparer_hands_over_card_tokenizer_and_weights():
    message, (card_fd, tokenizer_fd, weights_fd) = prepare(ECHO)
    assert message == {"type": "prepared"}
    card = open_card(card_fd)
    assert card["name"] == "echo" and card["buckets"] == buckets(card["max_tokens"])
    assert len(card["self_test"]) >= 3
    for case in card["self_test"]:
        np.testing.assert_array_equal(
            case["logits"], echo_logits(case["ids"], case["split"], len(card["labels"])))
    tokenizer = open_tokenizer(map_file(tokenizer_fd))
    assert list(tokenizer.encode("ok", None, 512).ids) == card["self_test"][0]["ids"]
    assert any(case["split"] < len(case["ids"]) for case in card["self_test"]), "a pair"
    for descriptor in (card_fd, tokenizer_fd, weights_fd):
        with pytest.raises(PermissionError):
            os.write(descriptor, b"x")
        os.close(descriptor)


def test_preparer_self_test_has_no_pair_for_a_model_without(tmp_path):
    for name in ("config.json", "vocab.txt"):
        (tmp_path / name).write_bytes((ECHO / name).read_bytes())
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "type_vocab_size": 1}))
    _, descriptors = prepare(tmp_path)
    card = open_card(descriptors[0])
    assert all(case["split"] == len(case["ids"]) for case in card["self_test"])
    for descriptor in descriptors:
        os.close(descriptor)


@pytest.mark.parametrize("name, content", [
    ("config.json", None), ("config.json", "{"), ("vocab.txt", None),
    ("config.json", '{"model_type": "gpt2"}')])
def test_preparer_refuses_in_one_sentence(tmp_path, name, content):
    for file in ("config.json", "vocab.txt"):
        (tmp_path / file).write_bytes((ECHO / file).read_bytes())
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_text(content)
    message, descriptors = prepare(tmp_path)
    assert message["type"] == "refused" and descriptors == []
    assert message["message"].strip() and "\n" not in message["message"]
    assert "Traceback" not in message["message"]


def test_preparer_names_a_folder_that_is_not_there(tmp_path):
    message, _ = prepare(tmp_path / "nowhere")
    assert message["type"] == "refused" and "is not there" in message["message"]


def test_preparer_of_a_reload_refuses_where_the_program_has_changed(monkeypatch, tmp_path):
    message, descriptors = prepare(ECHO, generation=2)
    assert message == {"type": "prepared"}
    for descriptor in descriptors:
        os.close(descriptor)
    monkeypatch.setattr(program_files, "STARTED_FROM", "of another version")
    assert prepare(ECHO, generation=2)[0] == {"type": "refused", "message": preparer.CHANGED}
    assert prepare(ECHO)[0] == {"type": "prepared"}, "a start is what it is"


def test_program_files_digest_follows_names_and_contents(tmp_path):
    for folder in program_files.FOLDERS:
        (tmp_path / folder).mkdir()
    seen = {program_files.digest(tmp_path)}
    for name, text in (("server/a.py", "x"), ("server/a.py", "y"), ("loader/a.py", "y")):
        (tmp_path / name).write_text(text)
        seen.add(program_files.digest(tmp_path))
    (tmp_path / "server" / "a.pyc").write_text("z")
    assert len(seen) == 4 and program_files.digest(tmp_path) in seen
