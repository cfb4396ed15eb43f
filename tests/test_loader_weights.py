"""The weights: which files, matching, checking and copying them."""

import dataclasses
import os

import numpy as np
import pytest

from loader.checkpoint import Folder
from loader.errors import CheckpointError
from loader.safetensors import (file_bytes, float32_array, layout, open_image, read_header,
                                stored_array)
from loader.stored import CHUNK_BYTES, Stored, read_float32
from loader.weights import Weights, copy_weights, match_tensors, open_weights
from tests.torch_files import write_torch


@pytest.mark.parametrize(("name", "words"), [
    (None, "model.safetensors is missing, and so is pytorch_model.bin;"),
    ("tf_model.h5", "tf_model.h5 is not enough"),
    ("adapter_model.safetensors", "adapter_model.safetensors is not enough"),
    ("notes-safetensors.json", "model.safetensors is missing, and so is pytorch_model.bin;"),
    ("Model.safetensors", "model.safetensors is missing, and so is pytorch_model.bin;")])
def test_open_weights_other_files_are_refused_with_the_way_out(tmp_path, name, words):
    if name:
        (tmp_path / name).touch()
    with Folder(str(tmp_path)) as opened, pytest.raises(CheckpointError) as caught:
        with open_weights(opened):
            pass
    assert words in str(caught.value)


def test_open_weights_files_are_taken_in_the_order_of_preference(tmp_path):
    def chosen() -> str:
        with Folder(str(tmp_path)) as opened, open_weights(opened) as weights:
            return weights.file

    weights = {"x": np.ones(2, np.float32)}
    write_torch(tmp_path / "pytorch_model-1.bin", weights)
    (tmp_path / "pytorch_model.bin.index.json").write_text(
        '{"weight_map": {"x": "pytorch_model-1.bin"}}')
    assert chosen() == "pytorch_model.bin.index.json"
    write_torch(tmp_path / "pytorch_model.bin", weights)
    assert chosen() == "pytorch_model.bin"
    (tmp_path / "part.safetensors").write_bytes(file_bytes(weights))
    (tmp_path / "model.safetensors.index.json").write_text(
        '{"weight_map": {"x": "part.safetensors"}}')
    assert chosen() == "model.safetensors.index.json"
    (tmp_path / "model.safetensors").write_bytes(file_bytes(weights))
    (tmp_path / "pytorch_model.bin").write_bytes(b"not opened")
    assert chosen() == "model.safetensors"


def test_open_weights_sparse_file_larger_than_the_memory_is_refused(tmp_path):
    (tmp_path / "model.safetensors").touch()
    os.truncate(tmp_path / "model.safetensors", 1 << 42)
    with Folder(str(tmp_path)) as opened:
        with pytest.raises(CheckpointError, match="model.safetensors asks for 4398046511104"):
            with open_weights(opened):
                pass


WANTED = {"bert.LayerNorm.weight": (2,), "bert.LayerNorm.bias": (2,), "bert.x": (2, 3),
          "classifier.weight": (1, 2)}


def stored(*names: str) -> Weights:
    shapes = {"weight": (2,), "gamma": (2,), "bias": (2,), "beta": (2,), "x": (2, 3)}
    return Weights("some.file", {
        name: Stored("a.file", 0, "F32", (1, 2) if name.startswith("classifier") else
                     shapes.get(name.rpartition(".")[2], (7,)), 0) for name in names})


@pytest.mark.parametrize("names", [
    ("bert.LayerNorm.weight", "bert.LayerNorm.bias", "bert.x", "classifier.weight"),
    ("bert.LayerNorm.gamma", "bert.LayerNorm.beta", "bert.x", "classifier.weight"),
    ("LayerNorm.weight", "LayerNorm.bias", "x", "classifier.weight"),
    ("LayerNorm.gamma", "LayerNorm.beta", "x", "classifier.weight", "cls.decoder", "position_ids")])
def test_match_tensors_old_and_short_names_are_found(names):
    found = match_tensors(WANTED, "bert.", stored(*names))
    assert {name: tensor.shape for name, tensor in found.items()} == WANTED


def test_match_tensors_faults_name_file_and_tensor():
    names = list(WANTED)
    whole = stored(*names)
    for have, words in (
            (stored(*names[:3]), "some.file: classifier.weight is missing"),
            (stored(*names[:2]), "some.file: bert.x, classifier.weight are missing"),
            (stored("q"), "bert.LayerNorm.weight, bert.LayerNorm.bias, bert.x and 1 more are"),
            (stored(*names, "LayerNorm.gamma"),
             "some.file has both bert.LayerNorm.weight and LayerNorm.ga"),
            (changed(whole, "bert.x", shape=(3, 2)),
             "a.file: bert.x has the shape [3, 2], but config.json asks for [2, 3]"),
            (changed(whole, "bert.x", dtype="I64"), "a.file: bert.x is I64")):
        with pytest.raises(CheckpointError) as caught:
            match_tensors(WANTED, "bert.", have)
        assert words in str(caught.value)


def changed(weights: Weights, name: str, **fields: object) -> Weights:
    tensor = dataclasses.replace(weights.tensors[name], **fields)
    return weights._replace(tensors={**weights.tensors, name: tensor})


def in_file(fd: int) -> dict[str, Stored]:
    name = "model.safetensors"
    return {key: Stored.of(tensor, name, fd) for key, tensor in read_header(fd, name).items()}


def copied(path, target_path) -> bytes:
    """The image that copy_weights makes of all tensors in the file; checks that it is hashed."""
    source = os.open(path, os.O_RDONLY)
    target = os.open(target_path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    hashed = []
    try:
        copy_weights(in_file(source), target, lambda part: hashed.append(bytes(part)))
        data = os.pread(target, os.fstat(target).st_size, 0)
        assert all(part in data for part in hashed)
        return data
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
    tensors = in_file(source)
    os.truncate(path, 200)
    with pytest.raises(CheckpointError, match="became shorter"):
        copy_weights(tensors, target, lambda part: None)
    os.close(source)
    os.close(target)


def test_copy_weights_broken_disk_is_told(tmp_path, monkeypatch):
    (tmp_path / "m").write_bytes(file_bytes({"x": np.ones(100, np.float32)}))

    def failing(*_):
        raise OSError(5, os.strerror(5))

    monkeypatch.setattr(os, "preadv", failing)
    with pytest.raises(CheckpointError, match="cannot be read: Input/output error"):
        copied(tmp_path / "m", tmp_path / "image")


def test_copy_weights_image_larger_than_the_memory_is_refused(tmp_path):
    (tmp_path / "m").write_bytes(bytes(4))
    source = os.open(tmp_path / "m", os.O_RDONLY)
    wide = Stored("m.bin", source, "F32", (1 << 40,), 0, (0,))
    with pytest.raises(CheckpointError, match=r"m\.bin asks for 4398046511\d+ bytes, this machine"):
        copy_weights({"x": wide}, source, lambda part: None)
    os.close(source)


STRIDED = [((3, 5), (1, 3)), ((3, 5), (7, 1)), ((4,), (0,)), ((2, 3, 4), (12, 1, 3)),
           ((1, 1), (9, 9)), ((5, 2), (0, 1))]


@pytest.mark.parametrize(("shape", "strides"), STRIDED)
@pytest.mark.parametrize("kind", ["F32", "F16", "F64", "BF16"])
def test_stored_strided_view_is_read_in_the_order_of_its_elements(tmp_path, shape, strides, kind):
    numbers = np.arange(40, dtype=np.float32)
    bits = {"F32": numbers, "F16": numbers.astype("<f2"), "F64": numbers.astype("<f8"),
            "BF16": (numbers.view(np.uint32) >> 16).astype(np.uint16)}[kind]
    (tmp_path / "m").write_bytes(b"head" + bits.tobytes())
    fd = os.open(tmp_path / "m", os.O_RDONLY)
    begin = 4 + 2 * bits.itemsize
    got = read_float32(Stored("m", fd, kind, shape, begin, strides))
    want = np.zeros(shape, np.float32)
    for place in np.ndindex(*shape):
        want[place] = 2 + sum(index * stride for index, stride in zip(place, strides))
    assert got.dtype == np.float32 and np.array_equal(got, want)
    os.close(fd)


def test_stored_strided_view_of_many_chunks_is_whole(tmp_path):
    side = 1500  # 9 MB
    numbers = np.arange(side * side, dtype="<f4").reshape(side, side)
    (tmp_path / "m").write_bytes(numbers.tobytes())
    fd = os.open(tmp_path / "m", os.O_RDONLY)
    turned = Stored("m", fd, "F32", (side, side), 0, (1, side))
    assert max(map(len, turned.chunks())) <= CHUNK_BYTES
    assert np.array_equal(read_float32(turned), numbers.T)
    os.close(fd)
