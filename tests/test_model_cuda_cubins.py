"""Compiled kernels that are kept: when they are taken, and when they are made anew."""

import os

import pytest

from model.cuda import cubins
from model.cuda.cubins import HASH_BYTES, Cubins, private_folder
from model.cuda.row_sources import NotSupported, Variant

KERNEL = Variant("quantise", 384, False, False, False)


class Counting:
    """A compiler whose files differ each time."""

    version = (13, 0)

    def __init__(self) -> None:
        self.made = 0

    def architecture(self, capability: tuple[int, int]) -> str:
        return "sm_{}{}".format(*capability)

    def compile(self, name: str, source: str, headers: dict[str, str],
                options: list[str]) -> tuple[bytes, str]:
        self.made += 1
        return b"\x7fELF %d" % self.made, ""


@pytest.fixture
def compiler():
    return Counting()


def test_cubins_next_start_takes_what_was_kept(compiler, tmp_path):
    first = Cubins(compiler, (9, 0), tmp_path).cubin(KERNEL)
    assert Cubins(compiler, (9, 0), tmp_path).cubin(KERNEL) == first
    assert compiler.made == 1
    assert len(list(tmp_path.iterdir())) == 1


def test_cubins_anything_that_it_is_made_from_makes_another(compiler, tmp_path, monkeypatch):
    Cubins(compiler, (9, 0), tmp_path).cubin(KERNEL)
    Cubins(compiler, (8, 0), tmp_path).cubin(KERNEL)
    for other in (Variant("quantise", 768, False, False, False),
                  Variant("quantise", 384, True, False, False),
                  Variant("quantise", 384, False, True, False),
                  Variant("quantise", 384, False, False, True),
                  Variant("gelu_quantise", 384, False, False, False)):
        Cubins(compiler, (9, 0), tmp_path).cubin(other)
    compiler.version = (13, 1)
    Cubins(compiler, (9, 0), tmp_path).cubin(KERNEL)
    assert compiler.made == 8
    for changed in ("quantise.cu", "rows.cuh"):
        monkeypatch.setattr(cubins, "read", lambda name, changed=changed:
                            f"{name} {name == changed}")
        Cubins(compiler, (9, 0), tmp_path).cubin(KERNEL)
    assert compiler.made == 10


@pytest.mark.parametrize("spoil", [
    lambda entry: b"", lambda entry: entry[:-1], lambda entry: entry[:HASH_BYTES],
    lambda entry: entry + b"\0", lambda entry: entry[:-1] + bytes([entry[-1] ^ 1]),
    lambda entry: bytes(len(entry))], ids=["empty", "cut", "hash only", "longer", "a bit", "zeros"])
def test_cubins_broken_entry_is_compiled_anew_and_replaced(compiler, tmp_path, spoil):
    Cubins(compiler, (9, 0), tmp_path).cubin(KERNEL)
    entry, = tmp_path.iterdir()
    entry.write_bytes(spoil(entry.read_bytes()))
    assert Cubins(compiler, (9, 0), tmp_path).cubin(KERNEL) == b"\x7fELF 2"
    assert Cubins(compiler, (9, 0), tmp_path).cubin(KERNEL) == b"\x7fELF 2"
    assert compiler.made == 2


def test_cubins_without_a_folder_nothing_is_kept(compiler, tmp_path):
    made = Cubins(compiler, (9, 0), None)
    assert made.cubin(KERNEL) == b"\x7fELF 1" and made.cubin(KERNEL) == b"\x7fELF 2"


def test_cubins_folder_that_went_costs_a_compilation_only(compiler, tmp_path):
    assert Cubins(compiler, (9, 0), tmp_path / "gone").cubin(KERNEL) == b"\x7fELF 1"


def test_cubins_oldest_entries_go(compiler, tmp_path, monkeypatch):
    monkeypatch.setattr(cubins, "MOST_ENTRIES", 3)
    made = Cubins(compiler, (9, 0), tmp_path)
    for number, width in enumerate((128, 256, 384, 512, 640)):
        made.cubin(Variant("quantise", width, False, False, False))
        for path in tmp_path.iterdir():     # each a second older than the one after it
            os.utime(path, (path.stat().st_mtime - 1,) * 2)
    assert len(list(tmp_path.iterdir())) == 3
    before = compiler.made
    made.cubin(Variant("quantise", 640, False, False, False))
    assert compiler.made == before
    made.cubin(Variant("quantise", 128, False, False, False))
    assert compiler.made == before + 1


@pytest.mark.parametrize("capability, codes_are_floats, words", [
    ((7, 0), False, "7.5"), ((8, 6), True, "8.9")])
def test_cubins_device_that_is_too_old_is_not_supported(compiler, capability, codes_are_floats,
                                                        words):
    with pytest.raises(NotSupported, match=words):
        Cubins(compiler, capability, None).cubin(
            Variant("quantise", 384, False, codes_are_floats, False))


@pytest.fixture
def home(tmp_path, monkeypatch):
    for name in ("CACHE_DIRECTORY", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_cubins_folder_is_systemds_or_the_users(home, monkeypatch):
    found = private_folder()
    assert found == home / ".cache" / "firebrick-kernels" and found.is_dir()
    assert found.stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "xdg"))
    assert private_folder() == home / "xdg" / "firebrick-kernels"
    monkeypatch.setenv("CACHE_DIRECTORY", f"{home / 'one'}:{home / 'two'}")
    assert private_folder() == home / "one" / "firebrick-kernels"


@pytest.mark.parametrize("mode", [0o770, 0o702])
def test_cubins_folder_that_others_may_write_is_not_taken(home, mode):
    private_folder().chmod(mode)
    assert private_folder() is None


def test_cubins_folder_that_is_a_link_is_not_taken(home):
    (home / "theirs").mkdir(mode=0o700)
    (home / ".cache").mkdir()
    (home / ".cache" / "firebrick-kernels").symlink_to(home / "theirs")
    assert private_folder() is None


def test_cubins_folder_of_somebody_else_is_not_taken(home, monkeypatch):
    private_folder()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert private_folder() is None


def test_cubins_folder_that_cannot_be_made_is_none(home, monkeypatch):
    (home / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "file"))
    assert private_folder() is None
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert private_folder() is None
