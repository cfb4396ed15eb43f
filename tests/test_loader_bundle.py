"""A bundle is read as it was written or not at all, and held in the precisions that may be served.
"""

import json
import os
import random
import shutil
import subprocess
import sys

import numpy as np
import pytest

from loader.bundle import INT8_WEIGHTS, open_folder
from loader.errors import CheckpointError
from loader.manifest import MANIFEST
from loader.precision import candidates
from loader.prepare import map_file, prepare, seal, seal_card
from loader.safetensors import float32_array, open_image, stored_array
from model.families.table import FAMILIES
from tests.tiny_bundle import (
    FAILED,
    PASSED,
    arrays_of,
    change_manifest,
    image_of,
    products,
    replace_file,
    write_checkpoint,
    write_tiny_bundle,
)

FILES = {"config.json", "vocab.txt", "model.safetensors", INT8_WEIGHTS}
TRIES = 60  # random bytes a file


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A bundle that nobody changes."""
    return write_tiny_bundle(tmp_path_factory.mktemp("bundle") / "sound")


@pytest.fixture
def bundle(sound, tmp_path):
    """A copy to break."""
    return shutil.copytree(sound, tmp_path / "bundle")


@pytest.fixture
def prepared():
    """prepare of a folder; closes what it opened."""
    opened: list[int] = []

    def call(folder, precision="auto"):
        found = prepare(str(folder), "x", FAMILIES, precision)
        opened.extend(fd for fd in (found.weights_fd, found.wide_fd) if fd is not None)
        return found

    yield call
    for fd in opened:
        os.close(fd)


def refusal(folder, precision="auto"):
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(CheckpointError) as caught:
        prepare(str(folder), "x", FAMILIES, precision)
    assert set(os.listdir("/proc/self/fd")) == before
    message = str(caught.value)
    assert "\n" not in message and message.endswith(".") and len(message) < 400
    return message


def test_bundle_sound_one_is_prepared_under_its_own_name_and_version(sound, prepared):
    manifest = json.loads((sound / MANIFEST).read_text())
    assert set(manifest["files"]) == FILES and {path.name for path in sound.iterdir()} == \
        FILES | {MANIFEST}
    card = prepared(sound).card
    assert (card["name"], card["version"]) == ("tiny", manifest["version"])
    assert card["self_test"] == manifest["goldens"] and len(card["self_test"]) == 3
    assert card["tolerances"] == {"fp32": 0.5, "fp16": 0.5, "int8": 0.5}


@pytest.mark.parametrize("name", sorted(FILES | {MANIFEST}))
@pytest.mark.parametrize("precision", ["auto", "fp32", "int8"])
def test_bundle_any_byte_changed_is_refused(bundle, name, precision):
    data, rng = (bundle / name).read_bytes(), random.Random(name)
    places = {0, len(data) - 1, *(rng.randrange(len(data)) for _ in range(TRIES))}
    for place in places:
        changed = bytearray(data)
        changed[place] ^= rng.choice((1, 2, 4, 16, 32, 128, rng.randrange(1, 256)))
        (bundle / name).write_bytes(changed)
        message = refusal(bundle, precision)
        assert name in message, (place, message)


def test_bundle_manifest_byte_replaced_by_any_that_json_knows_is_refused(bundle):
    """Above all those that make another number, text or nothing of it."""
    data = (bundle / MANIFEST).read_bytes()
    rng = random.Random(3)
    for _ in range(400):
        place = rng.randrange(len(data))
        byte = rng.choice(b' \n"\\{}[],:0123456789.eE+-untrfalsu')
        if data[place] == byte:
            continue
        (bundle / MANIFEST).write_bytes(data[:place] + bytes([byte]) + data[place + 1:])
        assert MANIFEST in refusal(bundle)


@pytest.mark.parametrize(("text", "word"), [
    (b'"tolerance": 0.5', b'"tolerance": 1e999'), (b'"tiny"', rb'"\ud800"'),
    (b'"tiny"', b'"tiny", "name": "tiny"'), (b'"format": 1', b'"format": 1.0'),
    (b'"format": 1', b'"format": true'), (b'"bits": 7', b'"bits": 07'),
    (b'"tiny"', b'NaN'), (b'{', b'[{')])
def test_bundle_manifest_that_is_other_json_is_refused(bundle, text, word):
    data = (bundle / MANIFEST).read_bytes()
    assert text in data
    (bundle / MANIFEST).write_bytes(data.replace(text, word, 1))
    assert MANIFEST in refusal(bundle)


@pytest.mark.parametrize("name", sorted(FILES | {MANIFEST}))
def test_bundle_file_cut_grown_or_emptied_is_refused(bundle, name):
    data = (bundle / name).read_bytes()
    for other in (data[:-1], data[:len(data) // 2], b"", data + b"\0", data + b"\n", data * 2):
        (bundle / name).write_bytes(other)
        assert name in refusal(bundle)


@pytest.mark.parametrize("name", sorted(FILES))
def test_bundle_file_gone_or_no_plain_file_is_refused(bundle, name):
    (bundle / name).unlink()
    assert f"{name} is missing" in refusal(bundle)
    (bundle / name).mkdir()
    assert f"{name} is a folder" in refusal(bundle)


def test_bundle_files_swapped_are_refused(bundle):
    (bundle / "model.safetensors").rename(bundle / "kept")
    (bundle / INT8_WEIGHTS).rename(bundle / "model.safetensors")
    (bundle / "kept").rename(bundle / INT8_WEIGHTS)
    assert "model.safetensors is not the file" in refusal(bundle)


def test_bundle_manifest_of_another_bundle_is_refused(bundle, tmp_path):
    other = write_tiny_bundle(tmp_path / "other", wide=["bert.encoder.layer.0.output.dense"])
    shutil.copy(other / MANIFEST, bundle / MANIFEST)
    assert f"{INT8_WEIGHTS} is not the file" in refusal(bundle)


def test_bundle_without_its_manifest_is_a_plain_checkpoint(bundle, prepared):
    (bundle / MANIFEST).unlink()
    card = prepared(bundle).card
    assert (card["name"], card["precisions"], "self_test" in card) == ("x", ["fp32"], False)


def test_bundle_extra_files_are_not_there(bundle, prepared):
    version = prepared(bundle).card["version"]
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                 "added_tokens.json", "pytorch_model.bin", "model.safetensors.index.json", "x"):
        (bundle / name).write_text("{")
    assert prepared(bundle).card["version"] == version
    with open_folder(str(bundle)) as opened:
        assert not opened.has("tokenizer.json") and opened.has("vocab.txt")


def test_bundle_manifest_of_another_format_names_the_builder(bundle):
    change_manifest(bundle, format=2)
    assert "has the format 2" in refusal(bundle) and "tools.build" in refusal(bundle)
    change_manifest(bundle, format=...)
    assert "has the format null" in refusal(bundle)


@pytest.mark.parametrize("facts", [
    {"name": ...}, {"name": 5}, {"version": None}, {"source": []}, {"labels": "bad"},
    {"files": []}, {"files": {"config.json": 5}}, {"bits": "7"}, {"bits": True}, {"layers": []},
    {"layers": {"bert.encoder.layer.0.output.dense": 8}}, {"precisions": []},
    {"precisions": {"fp32": PASSED, "int8": None}}, {"precisions": {"fp32": PASSED, "int8": {}}},
    {"precisions": {"fp32": PASSED, "int8": {**PASSED, "passed": 1}}},
    {"precisions": {"fp32": PASSED, "int8": {**PASSED, "tolerance": "all"}}},
    {"precisions": {"int8": PASSED}}, {"goldens": {}}, {"goldens": []}, {"goldens": [5]},
    {"goldens": [{"ids": [2, 3], "split": 2}]},
    {"goldens": [{"ids": [2, 3], "split": 2, "logits": [0.5]}]},
    {"goldens": [{"ids": [2, 40], "split": 2, "logits": [0.5, 0.5]}]},
    {"goldens": [{"ids": [2, -1], "split": 2, "logits": [0.5, 0.5]}]},
    {"goldens": [{"ids": [], "split": 0, "logits": [0.5, 0.5]}]},
    {"goldens": [{"ids": [2] * 33, "split": 2, "logits": [0.5, 0.5]}]},
    {"goldens": [{"ids": [2, "3"], "split": 2, "logits": [0.5, 0.5]}]},
    {"goldens": [{"ids": [2, 3], "split": 3, "logits": [0.5, 0.5]}]},
    {"goldens": [{"ids": [2, 3], "split": 2, "logits": [0.5, None]}]},
    {"made_with": 1}], ids=str)
def test_bundle_manifest_with_facts_of_other_kinds_is_refused(bundle, facts):
    """Its own hash fits: another tool wrote it."""
    change_manifest(bundle, **facts)
    assert MANIFEST in refusal(bundle)


FIRST = "bert.encoder.layer.0.attention.self.query"


@pytest.mark.parametrize("change", [
    lambda arrays: {**arrays, f"{FIRST}.weight": arrays[f"{FIRST}.weight"].astype(np.float32)},
    lambda arrays: {**arrays, f"{FIRST}.weight": arrays[f"{FIRST}.weight"][:-1]},
    lambda arrays: {**arrays, f"{FIRST}.weight": arrays[f"{FIRST}.weight"].reshape(-1)},
    lambda arrays: {**arrays, f"{FIRST}.scales": arrays[f"{FIRST}.scales"].astype(np.float16)},
    lambda arrays: {**arrays, f"{FIRST}.scales": arrays[f"{FIRST}.scales"][None]},
    lambda arrays: {**arrays, f"{FIRST}.scales": np.ones(1, np.float32)},
    lambda arrays: {**arrays, f"{FIRST}.divisors": np.ones(31, np.float32)},
    lambda arrays: {**arrays, "classifier.weight": np.ones((2, 32), np.int8)},
    lambda arrays: {**arrays, f"{FIRST}.other": np.ones(32, np.float32)},
    lambda arrays: {name: array for name, array in arrays.items() if name != f"{FIRST}.scales"},
    lambda arrays: {name: array for name, array in arrays.items() if FIRST not in name},
    lambda arrays: {}])
def test_bundle_other_tensors_with_fitting_hashes_are_refused(bundle, change):
    arrays = arrays_of((bundle / INT8_WEIGHTS).read_bytes())
    replace_file(bundle, INT8_WEIGHTS, image_of(change(arrays)))
    assert f"{INT8_WEIGHTS} does not hold the layers that {MANIFEST} lists" in refusal(bundle)


@pytest.mark.parametrize(("name", "value"), [
    ("scales", np.nan), ("scales", np.inf), ("divisors", np.nan), ("divisors", -np.inf)])
def test_bundle_scales_that_are_not_finite_are_refused(bundle, name, value):
    arrays = arrays_of((bundle / INT8_WEIGHTS).read_bytes())
    array = np.array(arrays.get(f"{FIRST}.{name}", np.ones(32, np.float32)))
    array[3] = value
    replace_file(bundle, INT8_WEIGHTS, image_of({**arrays, f"{FIRST}.{name}": array}))
    assert f"{INT8_WEIGHTS}: {FIRST}.{name} holds" in refusal(bundle)


def test_bundle_listed_layer_that_the_model_lacks_is_refused(bundle):
    layers = json.loads((bundle / MANIFEST).read_text())["layers"]
    for name in ("bert.encoder.layer.9.output.dense", "bert.embeddings.LayerNorm", ""):
        change_manifest(bundle, layers={**layers, name: "int8"})
        assert INT8_WEIGHTS in refusal(bundle)


@pytest.mark.parametrize("wide", [[], [FIRST]])
def test_prepare_bundle_seals_what_each_precision_reads(tmp_path, prepared, wide):
    folder = write_tiny_bundle(tmp_path / "b", wide=wide)
    plain = arrays_of((folder / "model.safetensors").read_bytes())
    quantised = arrays_of((folder / INT8_WEIGHTS).read_bytes())
    eight = {f"{name}.weight" for name in products((folder / "model.safetensors").read_bytes())
             if name not in wide}
    for precision, precisions, is_quantised, has_wide in (
            ("auto", ["fp32", "int8"], True, True), ("int8", ["int8"], True, False),
            ("fp32", ["fp32"], False, False), ("fp16", ["fp16"], False, False),
            ("bf16", ["bf16"], False, False)):
        found = prepared(folder, precision)
        assert (found.card["precisions"], found.card["precision"]) == (precisions, precisions[0])
        assert (found.wide_fd is not None) == has_wide
        with map_file(found.weights_fd) as image:
            tensors = open_image(image)
            assert set(tensors) == set(plain) | (set(quantised) if is_quantised else set())
            assert {name for name, tensor in tensors.items() if tensor.dtype == "I8"} == \
                (eight if is_quantised else set())
            for name, tensor in tensors.items():
                expected = quantised.get(name, plain.get(name)) if is_quantised else plain[name]
                assert np.array_equal(stored_array(image, tensor), expected), name
        if has_wide:
            with map_file(found.wide_fd) as image:
                tensors = open_image(image)
                assert set(tensors) == eight
                assert all(np.array_equal(float32_array(image, tensor), plain[name])
                           for name, tensor in tensors.items())


@pytest.mark.parametrize("keeps_wide", [True, False])
def test_model_files_completed_hold_what_may_still_be_read(sound, keeps_wide):
    files = seal(prepare(str(sound), "x", FAMILIES))
    other = seal_card({"precision": "int8"})
    completed = files.completed(other, keeps_wide)
    assert completed.descriptors == (other, files.tokenizer_fd, files.weights_fd,
                                     *([files.wide_fd] if keeps_wide else []))
    for fd in completed.descriptors:
        os.fstat(fd)
    for fd in set(files.descriptors) - set(completed.descriptors):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)
    completed.close()


def test_candidates_of_a_bundle_are_what_passed_or_was_asked_for():
    manifest = {"precisions": {"fp32": PASSED, "fp16": PASSED, "bf16": FAILED, "int8": PASSED}}
    assert candidates("auto", manifest)[0] == ["fp32", "fp16", "int8"]
    assert "passed the gate" in candidates("auto", manifest)[1]
    for wanted in ("fp32", "fp16", "bf16", "int8"):
        assert candidates(wanted, manifest) == ([wanted], "asked for with --precision")
    failed = {"precisions": {"fp32": PASSED, "int8": FAILED}}
    assert candidates("auto", failed)[0] == ["fp32"]
    for manifest in (failed, {"precisions": {"fp32": PASSED}}):
        with pytest.raises(CheckpointError, match="int8 did not pass when this bundle was built"):
            candidates("int8", manifest)


def test_candidates_of_a_plain_checkpoint_are_never_of_8_bits():
    assert candidates("auto", None) == (["fp32"], "a plain checkpoint is served in fp32")
    for wanted in ("fp32", "fp16", "bf16"):
        assert candidates(wanted, None) == ([wanted], "asked for with --precision")
    with pytest.raises(CheckpointError, match="not served in int8.*tools.build"):
        candidates("int8", None)


def test_candidates_beside_a_gpu_leave_its_8_bits_to_it():
    manifest = {"precisions": {"fp32": PASSED, "fp16": PASSED, "int8": FAILED}}
    assert candidates("fp8", manifest, True)[0] == ["fp32", "fp16"]
    assert "fp8 is for the GPU" in candidates("fp8", manifest, True)[1]
    for wanted in ("int8", "fp8"):
        assert candidates(wanted, None, True)[0] == ["fp32"]
    assert candidates("bf16", None, True)[0] == ["bf16"]
    with pytest.raises(CheckpointError, match="int8 did not pass when this bundle was built"):
        candidates("int8", manifest, True)
    for given in (manifest, None):
        with pytest.raises(CheckpointError, match="fp8 is for GPUs only"):
            candidates("fp8", given)


def test_bundle_in_int8_keeps_its_wide_weights_where_a_gpu_may_serve(sound):
    for for_devices in (False, True):
        found = prepare(str(sound), "x", FAMILIES, "int8", for_devices)
        os.close(found.weights_fd)
        assert (found.wide_fd is not None) == for_devices
    os.close(found.wide_fd)


def test_prepare_plain_checkpoint_in_int8_names_the_builder(tmp_path):
    folder, _ = write_checkpoint(tmp_path / "plain")
    assert "python -m tools.build CHECKPOINT -o BUNDLE" in refusal(folder, "int8")


@pytest.mark.sockets
def test_server_plain_checkpoint_in_int8_exits_2_with_one_sentence(tmp_path, repo):
    folder, _ = write_checkpoint(tmp_path / "plain")
    done = subprocess.run([sys.executable, "-m", "server", "--model", str(folder), "--precision",
                           "int8", "--port", "0"], cwd=repo, capture_output=True, text=True,
                          timeout=240)
    assert done.returncode == 2 and done.stdout == ""
    told = [line for line in done.stderr.splitlines() if "not served in int8" in line]
    assert len(told) == 1 and "python -m tools.build CHECKPOINT -o BUNDLE" in told[0]
