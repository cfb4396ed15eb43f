"""The folder's rules (plain files only) and the weights: matching, checking and copying them."""

import os
import time

import numpy as np
import pytest

from loader.checkpoint import Folder
from loader.errors import CheckpointError
from loader.safetensors import (Tensor, file_bytes, float32_array, layout, open_image,
                                read_header, stored_array)
from loader.weights import CHUNK_BYTES, copy_weights, match_tensors, open_weights


def fault(folder, name: str, limit: int = 1000) -> str:
    """The sentence with which reading `name` is refused; it comes at once."""
    begin = time.monotonic()
    with Folder(str(folder)) as opened, pytest.raises(CheckpointError) as caught:
        opened.read(name, limit)
    assert time.monotonic() - begin < 1
    message = str(caught.value)
    assert message.startswith(name) and "\n" not in message and message.endswith(".")
    return message


def test_folder_plain_file_and_links_to_one_are_read(tmp_path):
    blob = tmp_path / "blobs" / "abc"
    blob.parent.mkdir()
    blob.write_bytes(b"{}")
    folder = tmp_path / "snapshot"
    folder.mkdir()
    (folder / "plain").write_bytes(b"{}")
    (folder / "inside").symlink_to("plain")
    (folder / "outside").symlink_to("../blobs/abc")
    (folder / "twice").symlink_to("outside")
    with Folder(str(folder)) as opened:
        for name in ("plain", "inside", "outside", "twice"):
            assert opened.has(name) and opened.read(name, 2) == b"{}"
        assert not opened.has("absent")


def test_folder_what_is_no_plain_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "sub").mkdir()
    for name, target in (("zero", "/dev/zero"), ("loop", "loop"), ("gone", "nothing"),
                         ("to-fifo", "fifo"), ("to-sub", "sub")):
        (tmp_path / name).symlink_to(target)
    assert "a FIFO" in fault(tmp_path, "fifo") and "a FIFO" in fault(tmp_path, "to-fifo")
    assert "a folder" in fault(tmp_path, "sub") and "a folder" in fault(tmp_path, "to-sub")
    assert "a device" in fault(tmp_path, "zero")
    assert "leads back to itself" in fault(tmp_path, "loop")
    assert "not there" in fault(tmp_path, "gone")
    assert "is missing" in fault(tmp_path, "absent")


def test_folder_file_over_its_limit_is_not_read(tmp_path):
    (tmp_path / "sparse").touch()
    os.truncate(tmp_path / "sparse", 1 << 40)
    assert "1099511627776 bytes" in fault(tmp_path, "sparse")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_folder_unreadable_file_is_refused(tmp_path):
    (tmp_path / "x").write_bytes(b"")
    (tmp_path / "x").chmod(0)
    assert "chmod" in fault(tmp_path, "x")


@pytest.mark.parametrize(("call", "code", "words"), [
    ("read", 5, "cannot be read: Input/output error; check the disk"),
    ("open", 24, "cannot be opened: Too many open files"),
    ("stat", 13, "may not be read by user .*chmod")])
def test_folder_error_of_the_system_is_told(tmp_path, monkeypatch, call, code, words):
    (tmp_path / "x").write_bytes(b"")

    def failing(*_, **__):
        raise OSError(code, os.strerror(code))

    with Folder(str(tmp_path)) as opened:
        monkeypatch.setattr(os, call, failing)
        with pytest.raises(CheckpointError, match="^x " + words):
            opened.read("x", 10)


def test_folder_file_that_becomes_a_fifo_before_it_is_opened_is_refused(tmp_path, monkeypatch):
    (tmp_path / "x").write_bytes(b"")
    honest = os.open

    def late(name, *arguments, **more):
        if name == "x":
            (tmp_path / "x").unlink()
            os.mkfifo(tmp_path / "x")
        return honest(name, *arguments, **more)

    monkeypatch.setattr(os, "open", late)
    assert "a FIFO" in fault(tmp_path, "x")


def test_folder_file_that_changes_while_read_is_refused(tmp_path, monkeypatch):
    (tmp_path / "x").write_bytes(b"a" * 10)
    honest = os.read

    def growing(fd, count):
        part = honest(fd, min(count, 4))
        if part:
            with open(tmp_path / "x", "ab") as other:
                other.write(b"b" * 9)
        return part

    monkeypatch.setattr(os, "read", growing)
    assert "changed while it was read" in fault(tmp_path, "x", 50)


def test_folder_that_is_none_is_refused(tmp_path):
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "fifo")
    for name, words in (("file", "not a folder"), ("fifo", "not a folder"),
                        ("absent", "not there"), ("nul\0", "not there")):
        with pytest.raises(CheckpointError, match=words):
            Folder(str(tmp_path / name))


@pytest.mark.parametrize(("code", "words"), [(13, "may not be read by user"),
                                             (24, "cannot be opened: Too many open files")])
def test_folder_that_the_system_refuses_is_told(tmp_path, monkeypatch, code, words):
    def failing(*_, **__):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "open", failing)
    with pytest.raises(CheckpointError, match=words):
        Folder(str(tmp_path))


@pytest.mark.parametrize(("name", "words"), [
    (None, "model.safetensors is missing;"), ("tf_model.h5", "tf_model.h5 is not enough"),
    ("adapter_model.safetensors", "adapter_model.safetensors is not enough"),
    ("pytorch_model.bin", "pytorch_model.bin: weights in this form"),
    ("model.safetensors.index.json", "model.safetensors.index.json: weights in this form"),
    ("notes-safetensors.json", "model.safetensors is missing;"),
    ("Model.safetensors", "model.safetensors is missing;")])
def test_open_weights_other_files_are_refused_with_the_way_out(tmp_path, name, words):
    if name:
        (tmp_path / name).write_bytes(b"cos\nmkdir\n.")
    with Folder(str(tmp_path)) as opened, pytest.raises(CheckpointError) as caught:
        with open_weights(opened):
            pass
    assert words in str(caught.value)


def test_open_weights_safetensors_goes_before_a_pickle(tmp_path):
    (tmp_path / "pytorch_model.bin").write_bytes(b"cos\nmkdir\n.")
    (tmp_path / "model.safetensors").write_bytes(b"mine")
    with Folder(str(tmp_path)) as opened, open_weights(opened) as fd:
        assert os.read(fd, 9) == b"mine"


def test_open_weights_sparse_file_larger_than_the_memory_is_refused(tmp_path):
    (tmp_path / "model.safetensors").touch()
    os.truncate(tmp_path / "model.safetensors", 1 << 42)
    with Folder(str(tmp_path)) as opened:
        with pytest.raises(CheckpointError, match="4398046511104 bytes, this machine has"):
            with open_weights(opened):
                pass


WANTED = {"bert.LayerNorm.weight": (2,), "bert.LayerNorm.bias": (2,), "bert.x": (2, 3),
          "classifier.weight": (1, 2)}


def stored(*names: str, **change: Tensor) -> dict[str, Tensor]:
    shapes = {"weight": (2,), "gamma": (2,), "bias": (2,), "beta": (2,), "x": (2, 3)}
    return {name: Tensor("F32", (1, 2) if name.startswith("classifier") else
                         shapes.get(name.rpartition(".")[2], (7,)), 0, 0)
            for name in names} | change


@pytest.mark.parametrize("names", [
    ("bert.LayerNorm.weight", "bert.LayerNorm.bias", "bert.x", "classifier.weight"),
    ("bert.LayerNorm.gamma", "bert.LayerNorm.beta", "bert.x", "classifier.weight"),
    ("LayerNorm.weight", "LayerNorm.bias", "x", "classifier.weight"),
    ("LayerNorm.gamma", "LayerNorm.beta", "x", "classifier.weight", "cls.decoder", "position_ids")])
def test_match_tensors_old_and_short_names_are_found(names):
    found = match_tensors(WANTED, "bert.", stored(*names))
    assert {name: tensor.shape for name, tensor in found.items()} == WANTED


def test_match_tensors_faults_name_the_tensor():
    names = list(WANTED)
    for have, words in (
            (stored(*names[:3]), "classifier.weight is missing"),
            (stored(*names[:2]), "bert.x, classifier.weight are missing"),
            (stored("q"), "bert.LayerNorm.weight, bert.LayerNorm.bias, bert.x and 1 more are"),
            (stored(*names, "LayerNorm.gamma"), "has both bert.LayerNorm.weight and LayerNorm.ga"),
            ({**stored(*names), "bert.x": Tensor("F32", (3, 2), 0, 0)},
             "bert.x has the shape [3, 2], but config.json asks for [2, 3]"),
            ({**stored(*names), "bert.x": Tensor("I64", (2, 3), 0, 0)}, "bert.x is I64")):
        with pytest.raises(CheckpointError) as caught:
            match_tensors(WANTED, "bert.", have)
        assert words in str(caught.value)


def copied(path, target_path) -> bytes:
    """The image that copy_weights makes of all tensors in the file; checks that it is hashed."""
    source = os.open(path, os.O_RDONLY)
    target = os.open(target_path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    hashed = []
    try:
        copy_weights(source, read_header(source, "model.safetensors"), target,
                     lambda part: hashed.append(bytes(part)))
        return os.pread(target, os.fstat(target).st_size, 0)
    finally:
        os.close(source)
        os.close(target)


def raw_file(path, **tensors: tuple[str, np.ndarray]) -> None:
    head, _, _ = layout({name: (dtype, array.shape) for name, (dtype, array) in tensors.items()})
    path.write_bytes(head + b"".join(array.tobytes() for _, array in tensors.values()))


def test_copy_weights_types_are_kept_and_f64_is_narrowed(tmp_path):
    rng = np.random.default_rng(1)
    values = rng.normal(size=(3, 5))
    raw_file(tmp_path / "m", a=("F16", values.astype("<f2")), b=("F64", values),
             c=("BF16", (values.astype("<f4").view("<u4") >> 16).astype("<u2")),
             d=("F32", values.astype("<f4")), e=("F32", np.zeros((0, 4), "<f4")))
    data, original = copied(tmp_path / "m", tmp_path / "image"), (tmp_path / "m").read_bytes()
    tensors, before = open_image(data), open_image(original)
    assert {name: tensor.dtype for name, tensor in tensors.items()} == {
        "a": "F16", "b": "F32", "c": "BF16", "d": "F32", "e": "F32"}
    assert all(tensor.begin % 64 == 0 for tensor in tensors.values())
    for name in "acde":
        assert stored_array(data, tensors[name]).tobytes() == \
            stored_array(original, before[name]).tobytes()
    assert np.array_equal(float32_array(data, tensors["b"]), values.astype("<f4"))


def test_copy_weights_tensor_of_many_chunks_is_whole(tmp_path):
    count = CHUNK_BYTES // 4 * 2 + 17
    array = np.arange(count, dtype="<f4")
    (tmp_path / "m").write_bytes(file_bytes({"x": array}))
    data = copied(tmp_path / "m", tmp_path / "image")
    assert np.array_equal(stored_array(data, open_image(data)["x"]), array)


@pytest.mark.parametrize(("dtype", "kind", "value"), [
    ("F32", "<f4", np.nan), ("F32", "<f4", -np.inf), ("F16", "<f2", np.nan), ("F16", "<f2", np.inf),
    ("F64", "<f8", np.nan), ("F64", "<f8", np.inf), ("F64", "<f8", 1e300), ("BF16", "<u2", 0x7FC1),
    ("BF16", "<u2", 0xFF80)])
def test_copy_weights_value_that_is_not_finite_is_refused(tmp_path, dtype, kind, value):
    array = np.zeros((3, 3), kind)
    array[2, 1] = value
    raw_file(tmp_path / "m", good=("F32", np.ones(2, "<f4")), bad=(dtype, array))
    with pytest.raises(CheckpointError, match="model.safetensors: bad holds NaN, infinity"):
        copied(tmp_path / "m", tmp_path / "image")


def test_copy_weights_largest_finite_values_are_served(tmp_path):
    raw_file(tmp_path / "m", a=("F16", np.array([65504, -65504], "<f2")),
             b=("BF16", np.array([0x7F7F, 0xFF7F], "<u2")),
             c=("F32", np.array([3.4028235e38, -1e-45], "<f4")))
    copied(tmp_path / "m", tmp_path / "image")


def test_copy_weights_file_cut_meanwhile_is_refused(tmp_path):
    path = tmp_path / "m"
    path.write_bytes(file_bytes({"x": np.ones(100, np.float32)}))
    source, target = os.open(path, os.O_RDONLY), os.open(tmp_path / "t", os.O_RDWR | os.O_CREAT)
    tensors = read_header(source, "m")
    os.truncate(path, 200)
    with pytest.raises(CheckpointError, match="became shorter"):
        copy_weights(source, tensors, target, lambda part: None)
    os.close(source)
    os.close(target)


def test_copy_weights_broken_disk_is_told(tmp_path, monkeypatch):
    (tmp_path / "m").write_bytes(file_bytes({"x": np.ones(100, np.float32)}))

    def failing(*_):
        raise OSError(5, os.strerror(5))

    monkeypatch.setattr(os, "preadv", failing)
    with pytest.raises(CheckpointError, match="cannot be read: Input/output error"):
        copied(tmp_path / "m", tmp_path / "image")
