"""bench/peers/bundle.py: what is served is a bundle wherever tools.build makes one."""

import types
from pathlib import Path

import pytest

from bench.peers import bundle
from bench.peers.bundle import served_folder
from loader.manifest import MANIFEST


@pytest.fixture
def builds(monkeypatch):
    """Commands that were run in place of tools.build; `writes` says whether they make a bundle."""
    made = types.SimpleNamespace(commands=[], writes=True)

    def run(command, **_):
        made.commands.append(command)
        if made.writes:
            folder = Path(command[command.index("-o") + 1])
            folder.mkdir()
            (folder / MANIFEST).write_text("{}")
        return types.SimpleNamespace(returncode=int(not made.writes), stderr="progress\nit is off.")
    monkeypatch.setattr(bundle.subprocess, "run", run)
    return made


def test_bundle_of_a_checkpoint_is_made_once_and_served(tmp_path, builds):
    checkpoint, cache = tmp_path / "model", tmp_path / "cache"
    checkpoint.mkdir()
    for _ in range(2):
        folder, kind = served_folder(str(checkpoint), tmp_path / "eval.tsv", cache)
        assert folder == str(cache / "bundle") and kind.startswith("the bundle")
    (command,) = builds.commands
    assert command[1:4] == ["-m", "tools.build", str(checkpoint)]
    assert command[command.index("--eval") + 1] == str(tmp_path / "eval.tsv")


def test_bundle_that_is_given_is_served_as_it_is(tmp_path, builds):
    (tmp_path / MANIFEST).write_text("{}")
    assert served_folder(str(tmp_path), tmp_path, tmp_path / "cache") == (str(tmp_path), "a bundle")
    assert not builds.commands


def test_bundle_refused_by_the_gate_leaves_the_checkpoint_and_says_why(tmp_path, builds, capsys):
    builds.writes = False
    assert served_folder(str(tmp_path), tmp_path, tmp_path / "cache") \
        == (str(tmp_path), "the plain checkpoint")
    assert "plain checkpoint: it is off." in capsys.readouterr().err


def test_bundle_half_made_is_made_anew(tmp_path, builds):
    (tmp_path / "cache" / "bundle").mkdir(parents=True)
    folder, _ = served_folder(str(tmp_path), tmp_path, tmp_path / "cache")
    assert (Path(folder) / MANIFEST).is_file()
