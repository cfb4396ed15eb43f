"""An index of shards: names stay in the folder, and each tensor is where it says."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from loader.checkpoint import Folder
from loader.errors import CheckpointError
from loader.prepare import map_file, prepare
from loader.safetensors import file_bytes, layout
from loader.shards import SHARD_LIMIT
from loader.stored import read_float32
from loader.weights import open_weights
from model.families.table import FAMILIES
from tests.torch_files import write_torch

INDEX = "model.safetensors.index.json"
ARRAYS = {"a": np.arange(6, dtype=np.float32), "b": np.ones((2, 2), np.float32),
          "c": np.full(3, 7, np.float32)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """a and b in one shard, c in another, which has a second, wrong a too."""
    (tmp_path / "1.safetensors").write_bytes(file_bytes({k: ARRAYS[k] for k in "ab"}))
    (tmp_path / "2.safetensors").write_bytes(
        file_bytes({"c": ARRAYS["c"], "a": -ARRAYS["a"], "unmapped": ARRAYS["b"]}))
    write_index(tmp_path, {"a": "1.safetensors", "b": "1.safetensors", "c": "2.safetensors"})
    return tmp_path


def write_index(folder: Path, weight_map: object, name: str = INDEX) -> None:
    (folder / name).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def refusal(folder: Path) -> str:
    before = set(os.listdir("/proc/self/fd"))
    with Folder(str(folder)) as opened, pytest.raises(CheckpointError) as caught:
        with open_weights(opened):
            pass
    assert set(os.listdir("/proc/self/fd")) == before
    message = str(caught.value)
    assert "\n" not in message and message.endswith(".") and message.isascii()
    return message


def test_shards_each_tensor_is_the_one_that_the_index_says(folder):
    with Folder(str(folder)) as opened, open_weights(opened) as weights:
        assert weights.file == INDEX and list(weights.tensors) == ["a", "b", "c"]
        assert weights.tensors["c"].file == "2.safetensors"
        for name, array in ARRAYS.items():
            assert np.array_equal(read_float32(weights.tensors[name]), array)


def test_shards_of_torch_are_read_as_well(tmp_path):
    write_torch(tmp_path / "x-1.bin", {"a": ARRAYS["a"]})
    write_torch(tmp_path / "x-2.bin", {"b": ARRAYS["b"]})
    write_index(tmp_path, {"b": "x-2.bin", "a": "x-1.bin"}, "pytorch_model.bin.index.json")
    with Folder(str(tmp_path)) as opened, open_weights(opened) as weights:
        assert {name: tensor.file for name, tensor in weights.tensors.items()} == {
            "a": "x-1.bin", "b": "x-2.bin"}


@pytest.mark.parametrize("name", [
    "../1.safetensors", "/etc/passwd.safetensors", "sub/1.safetensors", "1.safetensors/", "", ".",
    "..", "x\0.safetensors", "x\ud800.safetensors", "x\n.safetensors", "config.json", "1.bin",
    "x" * 250 + ".safetensors"])
def test_shards_name_that_is_no_file_of_the_folder_is_not_opened(folder, name, monkeypatch):
    write_index(folder, {"a": "1.safetensors", "c": name})
    opened = []
    honest = os.open
    monkeypatch.setattr(os, "open", lambda path, *rest, **more:
                        opened.append(path) or honest(path, *rest, **more))
    message = refusal(folder)
    assert message.startswith(f"{INDEX}: the file of 'c' is said to be ")
    assert opened == [str(folder), INDEX]


@pytest.mark.parametrize(("weight_map", "words"), [
    ({"a": 7}, "the file of 'a' is 7, not a name"), ({"a": None}, "is null, not a name"),
    ([], "weight_map is a list of 0"), (None, "weight_map is null"), ({}, "an object of 0"),
    ({"a": "3.safetensors"}, "names the file '3.safetensors', which is missing"),
    ({"b": "2.safetensors"}, "says that 'b' is in '2.safetensors', but it is not"),
    ({str(i): f"{i}.safetensors" for i in range(SHARD_LIMIT + 1)}, "names 257 files, more than")])
def test_shards_faulty_map_is_refused(folder, weight_map, words):
    write_index(folder, weight_map)
    message = refusal(folder)
    assert message.startswith(INDEX) and words in message


def test_shards_index_without_a_map_is_refused(folder):
    (folder / INDEX).write_text("{}")
    assert "weight_map is null" in refusal(folder)


def test_shards_that_together_exceed_the_memory_are_refused(folder):
    elements = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 6
    head, _, size = layout({"a": ("F32", (elements,)), "b": ("F32", ()), "c": ("F32", ())})
    for name in ("1.safetensors", "2.safetensors"):  # sparse, two thirds of it each
        (folder / name).write_bytes(head)
        os.truncate(folder / name, size)
    assert f"{INDEX} asks for {2 * size} bytes, this machine has" in refusal(folder)


def test_shards_no_plain_file_is_refused_by_its_name(folder):
    (folder / "2.safetensors").unlink()
    os.mkfifo(folder / "2.safetensors")
    assert refusal(folder).startswith("2.safetensors is a FIFO")


@pytest.mark.parametrize("name", ["bert-sharded", "bert-bin", "bert-bin-legacy", "bert-bin-tied",
                                  "bert-bin-sharded"])
def test_prepare_other_forms_of_weights_give_the_image_that_one_file_gives(shared, tmp_path, name):
    def image(folder: Path) -> bytes:
        prepared = prepare(str(folder), "x", FAMILIES)
        with map_file(prepared.weights_fd) as mapped:
            data = bytes(mapped)
        os.close(prepared.weights_fd)
        return data

    folder = Path(shutil.copytree(shared / "checkpoints" / name, tmp_path / "one"))
    folder.chmod(0o755)
    several = image(folder)
    with Folder(str(folder)) as opened, open_weights(opened) as weights:
        arrays = {key: read_float32(tensor) for key, tensor in weights.tensors.items()
                  if tensor.dtype == "F32"}
    (folder / "model.safetensors").write_bytes(file_bytes(arrays))
    assert image(folder) == several
