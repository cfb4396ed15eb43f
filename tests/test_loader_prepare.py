"""A whole checkpoint folder: what the card says, sealed memory, one reading of the folder."""

import fcntl
import json
import os
import random
import shutil
from pathlib import Path

import numpy as np
import pytest

from loader.errors import CheckpointError
from loader.prepare import ModelFiles, map_file, model_name, open_card, prepare, seal
from loader.safetensors import file_bytes, float32_array, open_image
from tests.tiny_checkpoint import FAMILIES, WORDS, tiny_weights, write_checkpoint


@pytest.fixture
def sealed():
    """prepare and seal in one call; closes what it opened."""
    opened: list[ModelFiles] = []

    def call(folder: Path) -> ModelFiles:
        opened.append(seal(prepare(str(folder), folder.name, FAMILIES)))
        return opened[-1]

    yield call
    for files in opened:
        files.close()


def refusal(folder: Path) -> str:
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(CheckpointError) as caught:
        prepare(str(folder), "x", FAMILIES)
    assert set(os.listdir("/proc/self/fd")) == before
    message = str(caught.value)
    assert "\n" not in message and message.endswith(".") and "/" not in message.replace("\\", "")
    return message


def test_prepare_sound_folder_gives_card_tables_and_weights(tmp_path, sealed):
    folder = write_checkpoint(tmp_path / "tiny")
    files = sealed(folder)
    card = open_card(files.card_fd)
    assert card.pop("version").isalnum() and card.pop("precision_why")
    assert card == {"name": "tiny", "family": "bert", "labels": ["bad", "good"],
                    "function": "softmax", "max_tokens": 32, "vocab_size": 40, "id_bytes": 2,
                    "pair_types": 2, "precision": "fp32", "precisions": ["fp32"], "settings": {
                        "vocab_size": 40, "hidden_size": 8, "max_position_embeddings": 32,
                        "type_vocab_size": 2, "layer_norm_eps": 1e-12}}
    with map_file(files.weights_fd) as image, map_file(files.tokenizer_fd) as tables:
        assert len(tables) > 0
        tensors = open_image(image)
        assert list(tensors) == list(tiny_weights())
        for name, array in tiny_weights().items():
            assert float32_array(bytes(image), tensors[name]).tolist() == array.tolist()


def test_prepare_version_follows_every_byte_that_counts(tmp_path, sealed):
    def version(folder: Path) -> str:
        return open_card(sealed(folder).card_fd)["version"]

    folder = write_checkpoint(tmp_path / "a")
    first = version(folder)
    (folder / "golden.json").write_text("{}")
    (folder / "pytorch_model.bin").write_text("not opened")
    assert version(shutil.copytree(folder, tmp_path / "another-name")) == first
    seen = {first}
    write_checkpoint(folder, tiny_weights(seed=8))
    seen.add(version(folder))
    write_checkpoint(folder, hidden_dropout_prob=0.2)
    seen.add(version(folder))
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    seen.add(version(folder))
    assert len(seen) == 4 and all(len(text) == 8 and int(text, 16) >= 0 for text in seen)


def test_seal_nobody_can_change_the_files(tmp_path, sealed):
    files = sealed(write_checkpoint(tmp_path / "tiny"))
    for fd in (files.card_fd, files.tokenizer_fd, files.weights_fd):
        assert not os.get_inheritable(fd)
        for attempt in (lambda: os.pwrite(fd, b"x", 0), lambda: os.ftruncate(fd, 0),
                        lambda: os.ftruncate(fd, 1 << 20),
                        lambda: fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW)):
            with pytest.raises(PermissionError):
                attempt()
        with map_file(fd) as mapped, pytest.raises(TypeError):
            mapped[0] = 1


@pytest.mark.parametrize("deed", ["overwritten", "truncated", "deleted"])
def test_seal_folder_changed_afterwards_changes_nothing(tmp_path, sealed, deed):
    folder = write_checkpoint(tmp_path / "tiny")
    files = sealed(folder)
    with map_file(files.weights_fd) as image:
        before = bytes(image)
        for path in folder.iterdir():
            if deed == "overwritten":
                path.write_bytes(b"\xff" * path.stat().st_size)
            elif deed == "truncated":
                os.truncate(path, 0)
            else:
                path.unlink()
        assert bytes(image) == before and open_card(files.card_fd)["name"] == "tiny"


def test_seal_what_was_added_to_the_card_is_in_it(tmp_path):
    prepared = prepare(str(write_checkpoint(tmp_path / "tiny")), "näme", FAMILIES)
    prepared.card["buckets"] = [16, 32]
    files = seal(prepared)
    card = open_card(files.card_fd)
    assert (card["name"], card["buckets"]) == ("näme", [16, 32])
    assert open_card(files.card_fd) == card
    files.close()


def test_prepare_family_without_weights_needs_no_file(tmp_path, sealed):
    folder = write_checkpoint(tmp_path / "echo", model_type="echo", architectures=...)
    (folder / "model.safetensors").unlink()
    files = sealed(folder)
    with map_file(files.weights_fd) as image:
        assert open_image(image) == {}


def test_prepare_hub_cache_snapshot_of_links_is_read(tmp_path, sealed):
    blobs = write_checkpoint(tmp_path / "blobs")
    snapshot = tmp_path / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    for index, path in enumerate(sorted(blobs.iterdir())):
        path.rename(blobs / str(index))
        (snapshot / path.name).symlink_to(f"../../blobs/{index}")
    assert open_card(sealed(snapshot).card_fd)["labels"] == ["bad", "good"]


@pytest.mark.parametrize(("config", "tokenizer_config", "max_tokens"), [
    ({}, {}, 32), ({}, {"model_max_length": 20}, 20), ({}, {"model_max_length": 512}, 32),
    ({}, {"model_max_length": int(1e30)}, 32), ({}, {"model_max_length": 1e30}, 32),
    ({}, {"model_max_length": None}, 32), ({}, {"model_max_length": 3}, 3),
    ({}, {"model_max_length": 20.0}, 20)])
def test_prepare_max_tokens_is_the_smallest_limit(tmp_path, sealed, config, tokenizer_config,
                                                  max_tokens):
    folder = write_checkpoint(tmp_path / "tiny", **config)
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    assert open_card(sealed(folder).card_fd)["max_tokens"] == max_tokens


@pytest.mark.parametrize(("positions", "vocabulary", "max_tokens", "id_bytes"), [
    (40_000, 65_536, 30_000, 2), (40_000, 65_537, 15_000, 4)])
def test_prepare_long_position_table_is_cut_to_one_message(tmp_path, sealed, positions, vocabulary,
                                                           max_tokens, id_bytes):
    weights = tiny_weights()
    weights["bert.embeddings.position_embeddings.weight"] = np.zeros((positions, 8), np.float32)
    weights["bert.embeddings.word_embeddings.weight"] = np.zeros((vocabulary, 8), np.float32)
    card = open_card(sealed(write_checkpoint(
        tmp_path / "long", weights, max_position_embeddings=positions,
        vocab_size=vocabulary)).card_fd)
    assert (card["max_tokens"], card["id_bytes"]) == (max_tokens, id_bytes)


@pytest.mark.parametrize(("name", "content", "words"), [
    ("tokenizer_config.json", "{", "tokenizer_config.json is not JSON"),
    ("tokenizer_config.json", "[]", "tokenizer_config.json holds a list"),
    ("tokenizer_config.json", '{"model_max_length": -5}', "model_max_length is -5"),
    ("tokenizer_config.json", '{"model_max_length": 2}', "model_max_length gives 2 tokens"),
    ("tokenizer_config.json", '{"model_max_length": "long"}', "model_max_length is 'long'"),
    ("tokenizer_config.json", '{"model_max_length": 1e400}', "model_max_length is inf"),
    ("tokenizer_config.json", '{"model_max_length": true}', "model_max_length is true"),
    ("tokenizer_config.json", '{"auto_map": {"AutoTokenizer": ["t.T", null]}}', "auto_map"),
    ("special_tokens_map.json", "{", "special_tokens_map.json is not JSON"),
    ("added_tokens.json", '{"<x>": 40}', "added_tokens.json: the token '<x>' has the id 40, but"),
    ("vocab.txt", "\n".join(WORDS + ["one"]) + "\n", "vocab.txt has 41 tokens"),
    ("vocab.txt", None, "tokenizer.json is missing, and so is vocab.txt;"),
    ("model.safetensors", None, "model.safetensors is missing"),
    ("config.json", None, "config.json is missing"),
    ("config.json", "{}", "model_type is missing"),
])
def test_prepare_faulty_file_is_refused_by_name(tmp_path, name, content, words):
    folder = write_checkpoint(tmp_path / "tiny")
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(content)
    assert words in refusal(folder)


def test_prepare_other_tokenizers_are_named(tmp_path):
    folder = write_checkpoint(tmp_path / "tiny")
    (folder / "vocab.txt").rename(folder / "sentencepiece.bpe.model")
    assert "sentencepiece.bpe.model alone is not read" in refusal(folder)


def test_prepare_adapter_folder_says_what_it_is(tmp_path):
    (tmp_path / "adapter_config.json").write_text("{}")
    assert "an adapter only; merge it" in refusal(tmp_path)


def test_prepare_wrong_sizes_are_refused_without_reading_the_weights(tmp_path):
    folder = write_checkpoint(tmp_path / "tiny", max_position_embeddings=64)
    assert "position_embeddings.weight has the shape [32, 8], but config.json" in refusal(folder)
    write_checkpoint(folder, vocab_size=30)
    assert "vocab.txt has 40 tokens, but config.json's vocab_size is 30" in refusal(folder)


def test_prepare_random_damage_gives_a_model_or_a_checkpoint_error(tmp_path):
    rng = random.Random(9)
    sound = write_checkpoint(tmp_path / "sound")
    (sound / "tokenizer_config.json").write_text('{"model_max_length": 24, "do_lower_case": true}')
    originals = {path.name: path.read_bytes() for path in sound.iterdir()}
    before = set(os.listdir("/proc/self/fd"))
    outcomes = {True: 0, False: 0}
    for _ in range(600):
        name = rng.choice(list(originals))
        data = bytearray(originals[name])
        limit = min(len(data), 900)
        for _ in range(rng.choice([1, 1, 3])):
            at = rng.randrange(limit)
            data[at:at + rng.randrange(3)] = rng.choice(
                [b"", b"9", b"-1", b"[", b"{}", b"null", b'"', b"1e9", rng.randbytes(1)])
        (sound / name).write_bytes(data)
        try:
            prepared = prepare(str(sound), "x", FAMILIES)
            seal(prepared).close()
            outcomes[True] += 1
        except CheckpointError as error:
            assert "\n" not in str(error)
            outcomes[False] += 1
        (sound / name).write_bytes(originals[name])
    assert set(os.listdir("/proc/self/fd")) == before
    assert min(outcomes.values()) > 50, outcomes


@pytest.mark.parametrize(("path", "name"), [
    ("models/sms-spam", "sms-spam"), ("models/sms-spam/", "sms-spam"), ("/", "model"),
    ("a/../b", "b"), ("bad\udcff", "bad?")])
def test_model_name_is_the_last_part_as_given(path, name):
    assert model_name(path) == name


def test_model_name_link_is_not_followed(tmp_path):
    (tmp_path / "link").symlink_to("/tmp")
    assert model_name(str(tmp_path / "link")) == "link"


def test_file_bytes_checkpoint_written_by_us_is_read_by_us(tmp_path, sealed):
    folder = write_checkpoint(tmp_path / "half")
    half = {name: array.astype(np.float16) for name, array in tiny_weights().items()}
    (folder / "model.safetensors").write_bytes(file_bytes(half))
    with map_file(sealed(folder).weights_fd) as image:
        assert {tensor.dtype for tensor in open_image(image).values()} == {"F16"}
