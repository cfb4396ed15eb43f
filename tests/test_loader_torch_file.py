"""Torch files: both layouts, what they may hold, and the ways in which they are refused."""

import os
import pickle
import random
import struct
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

from loader.errors import CheckpointError
from loader.stored import Stored, read_float32
from loader.torch_file import PICKLE_BYTES, read_torch
from loader.torch_pickle import STEP_LIMIT
from tests import torch_files
from tests.torch_files import (entries_of, items, old_bytes, storage, table, tensor, text,
                               zip_bytes, zipped)

ARRAYS = {"x": np.arange(6, dtype="<f4").reshape(2, 3), "half": np.ones(5, "<f2"),
          "double": np.full((1, 2), 0.5, "<f8"), "ids": np.arange(4, dtype="<i8"),
          "empty": np.zeros((0, 3), "<f4"), "scalar": np.array(7, "<f4")}
FLOATS = {"F32", "F16", "F64"}
PICKLED = table(entries_of(ARRAYS))
STORAGES = {str(index): array.tobytes() for index, array in enumerate(ARRAYS.values())}
TWELVE = {"0": np.arange(12, dtype="<f4").tobytes()}


@pytest.fixture
def read(tmp_path):
    """Name → float32 array of what bytes hold (ints: their dtype's name), or what `as_` makes."""
    def call(data: bytes, as_=None) -> dict:
        (tmp_path / "pytorch_model.bin").write_bytes(data)
        fd = os.open(tmp_path / "pytorch_model.bin", os.O_RDONLY)
        try:
            return {name: (as_ or array)(stored)
                    for name, stored in read_torch(fd, "pytorch_model.bin").items()}
        finally:
            os.close(fd)
    return call


def array(stored: Stored) -> np.ndarray | str:
    return read_float32(stored) if stored.dtype in FLOATS else stored.dtype


def refusal(read, data: bytes) -> str:
    begin = time.process_time()
    with pytest.raises(CheckpointError) as caught:
        read(data)
    assert time.process_time() - begin < 2
    message = str(caught.value)
    assert message.startswith("pytorch_model.bin") and message.endswith(".")
    assert "\n" not in message and len(message) < 300
    return message


def one(*arguments, kept: bytes | None = None) -> bytes:
    """A file whose only tensor has (offset, shape, strides) over a storage of twelve numbers."""
    kept = kept or storage("0", "FloatStorage", 12)
    return zipped(table({"x": tensor(kept, *arguments)}), TWELVE)


@pytest.mark.parametrize("written", [zip_bytes, old_bytes])
def test_torch_file_both_layouts_give_every_tensor(read, written):
    tensors = read(written(ARRAYS))
    assert list(tensors) == list(ARRAYS) and tensors["ids"] == "I64"
    for name in set(ARRAYS) - {"ids"}:
        assert np.array_equal(tensors[name], ARRAYS[name].astype("<f4"))
        assert tensors[name].shape == ARRAYS[name].shape


def test_torch_file_views_of_one_storage_are_read(read):
    kept = storage("0", "FloatStorage", 12)
    tensors = read(zipped(table({
        "whole": tensor(kept, 0, (3, 4), (4, 1)), "tied": tensor(kept, 0, (12,), (1,)),
        "turned": tensor(kept, 0, (4, 3), (1, 4)), "row": tensor(kept, 4, (4,), (1,)),
        "spread": tensor(kept, 2, (2, 5), (0, 1)), "none": tensor(kept, 99, (0,), (1,))}), TWELVE))
    numbers = np.arange(12, dtype="<f4")
    assert np.array_equal(tensors["turned"], numbers.reshape(3, 4).T)
    assert tensors["row"].tolist() == [4, 5, 6, 7] and np.array_equal(tensors["tied"], numbers)
    assert tensors["spread"].tolist() == [[2, 3, 4, 5, 6]] * 2 and tensors["none"].size == 0


def test_torch_file_state_dict_with_versions_parameters_and_none_is_read(read):
    made = entries_of({"x": ARRAYS["x"]})["x"]
    parameter = b"ctorch._utils\n_rebuild_parameter\n" + items(made, b"\x88", b"}") + b"R"
    versions = b"}" + text("_metadata") + b"}" + text("") + b"}" + text("version") + b"K\x01sssb"
    body = b"\x80\x02ccollections\nOrderedDict\n)R(" + text("p") + parameter + text("n") + b"Nu"
    tensors = read(zipped(body + versions + b".", {"0": STORAGES["0"]}))
    assert list(tensors) == ["p"] and np.array_equal(tensors["p"], ARRAYS["x"])


@pytest.mark.parametrize(("arguments", "words"), [
    ((0, (13,), (1,)), "'x' leads past its storage of 12 elements"),
    ((1, (3, 4), (4, 1)), "leads past"), ((0, (3, 4), (5, 1)), "leads past"),
    ((12, (1,), (1,)), "leads past"), ((1 << 40, (1,), (1,)), "leads past"),
    ((-1, (1,), (1,)), "no whole numbers"), ((0, (-1,), (1,)), "no whole numbers"),
    ((0, (2,), (-1,)), "no whole numbers"), ((0, (2,), (1, 1)), "no whole numbers"),
    ((0, (1 << 64,), (1,)), "no whole numbers"), ((0, (1,) * 33, (1,) * 33), "33 dimensions")])
def test_torch_file_tensor_outside_its_storage_is_refused(read, arguments, words):
    assert words in refusal(read, one(*arguments))


@pytest.mark.parametrize(("kept", "words"), [
    (storage("0", "FloatStorage", 11), "storage of 11 F32 elements, which has 48 bytes"),
    (storage("0", "DoubleStorage", 12), "12 F64 elements, which has 48 bytes"),
    (storage("1", "FloatStorage", 12), "12 F32 elements, which is missing"),
    (storage("0", "UntypedStorage", 12), "asks for 'torch.UntypedStorage'"),
    (storage("0", "FloatStorage", -1), "names a storage in a way"),
    (storage("0", "FloatStorage", 12, items(text("view"))), "names a storage in a way"),
    (text("0") + b"Q", "names a storage in a way")])
def test_torch_file_storage_that_does_not_fit_is_refused(read, kept, words):
    assert words in refusal(read, one(0, (1,), (1,), kept=kept))


@pytest.mark.parametrize(("pickled", "words"), [
    (b"\x80\x02].", "holds a list, not a table"), (b"\x80\x02K\x01.", "holds a number, not"),
    (b"\x80\x02ctorch\nFloatStorage\n.", "holds something else, not"),
    (table({"x": text("y")}), "holds a text under 'x', not a tensor"),
    (table({"x": b"}"}), "holds a table under 'x'"),
    (b"\x80\x02}K\x01Ns.", "a table whose keys are no texts"),
    (b"\x80\x02cposix\nsystem\n" + text("true") + b"\x85R.", "asks for 'posix.system', which no"),
    (b"\x80\x02c__builtin__\neval\n.", "asks for '__builtin__.eval'"),
    (b"\x80\x02ctorch\nload\n.", "asks for 'torch.load'"),
    (b"\x80\x02ccollections\nOrderedDict\n(K\x01tR.", "calls collections.OrderedDict in a way"),
    (b"\x80\x02ctorch\nFloatStorage\n)R.", "calls torch.FloatStorage in a way"),
    (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n)R.", "calls torch._utils._rebuild_tensor_v2"),
    (b"\x80\x02ctorch._utils\n_rebuild_parameter\nK\x01\x85R.", "_rebuild_parameter in a way"),
    (b"\x80\x02ctorch._utils\n_rebuild_tensor\n(K\x01K\x00))tR.", "offset, sizes or strides"),
    (b"\x80\x04\x95" + bytes(8), "the instruction 0x95"), (b"\x80\x02)\x81.", "0x81"),
    (b"\x80\x02" + b"N" * STEP_LIMIT + b".", f"more than {STEP_LIMIT} instructions"),
    (b"\x80\x02N", "no sound pickle"),
    (b"\x80\x02.", "no sound pickle"), (b"\x80\x02t.", "no sound pickle"),
    (b"\x80\x02Nt.", "no sound pickle"), (b"\x80\x02N\x86.", "no sound pickle"),
    (b"\x80\x02h\x07.", "no sound pickle"), (b"\x80\x02q\x07.", "no sound pickle"),
    (b"\x80\x02X\xff\xff\xff\xff.", "no sound pickle"), (b"\x80\x02U\x02\xff\xff.", "no sound"),
    (b"\x80\x02ccollections", "no sound pickle"), (b"\x80\x02c" + b"x" * 999 + b"\n", "no sound"),
    (b"\x80\x02N)R.", "no sound pickle"), (b"\x80\x02ctorch\nFloatStorage\nNR.", "no sound"),
    (b"\x80\x02NNb.", "no sound pickle"), (b"\x80\x02NNa.", "no sound pickle"),
    (b"\x80\x02N(Ne.", "no sound pickle"), (b"\x80\x02}(Nu.", "no sound pickle"),
    (b"\x80\x02N(NNu.", "no sound pickle")])
def test_torch_file_pickle_that_is_no_table_of_tensors_is_refused(read, pickled, words):
    assert words in refusal(read, zipped(pickled, {}))
    assert words in refusal(read, b"".join(torch_files.OLD_HEAD) + b"\x80\x02}" +
                            text("little_endian") + b"\x88s." + pickled +
                            b"\x80\x02]." * pickled.endswith(b"."))


def test_torch_file_what_a_pickle_asks_for_is_never_run(read, tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "EXECUTED"),)

    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        evil = pickle.dumps(Evil(), protocol)
        refusal(read, zipped(evil, {}))
        refusal(read, evil)
        refusal(read, b"".join(torch_files.OLD_HEAD) + evil)
        refusal(read, zipped(PICKLED[:-2] + text("more") + evil[:-1] + b"u.", STORAGES))
    assert not (tmp_path / "EXECUTED").exists()


def test_torch_file_numbers_and_lists_of_other_values_do_not_disturb(read):
    more = b"}" + text("v") + b"](K\x01M\x02\x00J\xff\xff\xff\xffG" + bytes(8) + b"\x88\x89NeNas"
    body = PICKLED[:-1] + more + b"b."  # as the state of the table
    assert list(read(zipped(body, STORAGES))) == list(ARRAYS)


def test_torch_file_bomb_of_references_costs_nothing(read):
    bomb = b"\x80\x02]q\0" + b"".join(b"](h%ch%ceq%c" % (i, i, i + 1) for i in range(60)) + b"."
    assert "holds a list" in refusal(read, zipped(bomb, {}))


@pytest.mark.parametrize(("data", "words"), [
    (b"", "neither a zip file nor"), (b"garbage" * 9, "neither a zip file nor"),
    (zipped(b"", {}), "no sound pickle"), (zipped(b"\x80", {}), "no sound pickle"),
    (zipped(PICKLED, STORAGES, zipfile.ZIP_DEFLATED), "compressed or encrypted"),
    (zipped(bytes(PICKLE_BYTES + 1), {}), "its data.pkl has 16777217 bytes"),
    (zipped(PICKLED, STORAGES, **{"constants.pkl": b""}), "a TorchScript program"),
    (zipped(PICKLED, STORAGES, byteorder=b"big"), "big-endian"),
    (zip_bytes(ARRAYS)[:-30], "cut short"),
    (zip_bytes(ARRAYS).replace(b"data.pkl", b"data.txt"), "without data.pkl"),
    (zip_bytes(ARRAYS).replace(b"data/1", b"data/0"), "has two entries named 'model/data/0'"),
    (zip_bytes(ARRAYS)[9:], "neither a zip file nor"),
    (b"PK\3\4" + zip_bytes(ARRAYS), "a damaged directory"),
    (zip_bytes(ARRAYS).replace(b"PK\1\2", b"PK\1\3"), "a damaged directory"),
    (b"PK\3\4" + zip_bytes(ARRAYS)[4:].replace(b"PK\3\4", b"PK\3\5"), "a damaged directory"),
    (zip_bytes(ARRAYS)[:-22] + struct.pack("<4s4H2IH", b"PK\5\6", 1, 1, 0, 0, 0, 0, 0),
     "a damaged directory"),
    (zip_bytes(ARRAYS)[:-22] + struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 9, 9, 9, 1 << 31, 0),
     "a damaged directory"),
    (zip_bytes(ARRAYS)[:-22] + struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 9, 9, 46, 0, 0),
     "a damaged directory"),
    (old_bytes(ARRAYS)[:-3], "cut short"), (old_bytes(ARRAYS)[:300], "no sound pickle"),
    (old_bytes(ARRAYS, b"\x80\x02}" + text("little_endian") + b"\x89s."), "big-endian machine"),
    (old_bytes(ARRAYS, b"\x80\x02]."), "another torch"),
    (old_bytes(ARRAYS).replace(b"M\xe9\x03.", b"M\xe8\x03."), "another torch"),
    (old_bytes(ARRAYS).replace(text("5") + b"e.", text("9") + b"e."), "that no tensor uses"),
    (old_bytes(ARRAYS).replace(text("5") + b"e.", text("0") + b"e."), "has not the 6 elements"),
    (old_bytes(ARRAYS).replace(text("5") + b"e.", b"e."), "'scalar' needs a storage of 1 F32 el")])
def test_torch_file_damaged_container_is_refused(read, data, words):
    assert words in refusal(read, data)


def test_torch_file_entry_larger_than_the_file_is_refused(read):
    data = bytearray(zip_bytes(ARRAYS))
    at = data.rfind(b"PK\1\2")
    data[at + 20:at + 28] = struct.pack("<2I", 1 << 30, 1 << 30)
    assert "a damaged directory" in refusal(read, bytes(data))
    data[at + 20:at + 28] = struct.pack("<2I", 0xFFFFFFFF, 0xFFFFFFFF)  # no extra field has it
    assert "a damaged directory" in refusal(read, bytes(data))


def test_torch_file_zip_of_too_many_entries_is_refused(read):
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    wide = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, 1 << 20, 1 << 20, 100, 0)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, 100, 1)
    data = b"PK\3\4" + bytes(96) + wide + locator + end
    assert "a zip file of 1048576 entries" in refusal(read, data)
    assert "damaged" in refusal(read, data.replace(b"PK\6\6", b"PK\6\5"))
    far = struct.pack("<4sIQI", b"PK\6\7", 0, 1 << 40, 1)
    assert "damaged" in refusal(read, data.replace(locator, far))


def test_torch_file_zip_of_64_bits_is_read(read, tmp_path):
    with zipfile.ZipFile(tmp_path / "wide.zip", "w") as archive:
        for name, data in (("data.pkl", PICKLED),
                           *((f"data/{key}", data) for key, data in STORAGES.items())):
            with archive.open(f"model/{name}", "w", force_zip64=True) as file:
                file.write(data)
    data = (tmp_path / "wide.zip").read_bytes()
    at = data.rfind(b"PK\5\6")
    _, _, _, _, count, length, begin, _ = struct.unpack("<4s4H2IH", data[at:])
    directory = bytearray()
    for entry in range(count):  # every size and place moves to the extra field, as torch has them
        place = begin + len(directory) if not entry else place + 46 + name_length
        head = list(struct.unpack_from("<4s6H3I5H2I", data, place))
        name_length, packed, size, local = head[10], head[8], head[9], head[16]
        name = data[place + 46:place + 46 + name_length]
        head[8], head[9], head[11], head[16] = 0xFFFFFFFF, 0xFFFFFFFF, 32, 0xFFFFFFFF
        directory += struct.pack("<4s6H3I5H2I", *head) + name + struct.pack(
            "<4H3Q", 7, 0, 1, 24, size, packed, local)
    wide = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, len(directory),
                       begin)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, begin + len(directory), 1)
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    tensors = read(data[:begin] + directory + wide + locator + end)
    assert np.array_equal(tensors["x"], ARRAYS["x"])


@pytest.mark.parametrize("written", [zip_bytes, old_bytes])
def test_torch_file_random_damage_gives_tensors_or_a_checkpoint_error(read, written):
    rng = random.Random(11)
    sound = written(ARRAYS)
    outcomes = {True: 0, False: 0}
    for _ in range(1500):
        data = bytearray(sound)
        for _ in range(rng.choice([1, 1, 2])):
            at = rng.randrange(len(data))
            data[at:at + rng.randrange(3)] = rng.randbytes(rng.randrange(3))
        try:
            sizes = read(bytes(data), lambda stored: (stored.size_bytes, sum(
                map(len, stored.chunks())) if stored.size_bytes < 1 << 20 else 0))
            assert all(want == got or want >= 1 << 20 for want, got in sizes.values())
            outcomes[True] += 1
        except CheckpointError:
            outcomes[False] += 1
    assert min(outcomes.values()) > 50, outcomes


def test_torch_file_of_torch_itself_is_read(shared, read):
    for name in ("bert-bin", "bert-bin-legacy", "bert-bin-tied"):
        tensors = read(Path(shared / "checkpoints" / name / "pytorch_model.bin").read_bytes())
        assert tensors["classifier.weight"].shape == (4, 32)
        assert len(tensors) == 41 + 2 * name.endswith("tied")
    assert np.array_equal(tensors["cls.predictions.decoder.weight"],
                          tensors["bert.embeddings.word_embeddings.weight"])
    assert tensors["bert.embeddings.position_ids"] == "I64"
