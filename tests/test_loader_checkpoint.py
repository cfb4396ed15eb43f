"""The folder's rules: plain files only, read whole and within a limit."""

import os
import time

import pytest

from loader.checkpoint import Folder
from loader.errors import CheckpointError


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
