"""A checkpoint folder: which of its files are read, and that they are plain files."""

from __future__ import annotations

import errno
import os
import stat

from loader.errors import CheckpointError, shown

READ_BYTES = 4 << 20


class Folder:
    """One checkpoint folder, opened once; everything later is relative to that folder.

    Only plain files are read: a link to one is followed (a hub cache's snapshot is made of links),
    a FIFO, device or folder in a file's place is refused before it is opened, so that nothing
    here ever waits. Use it as a context manager. Raises CheckpointError.
    """

    def __init__(self, path: str) -> None:
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (OSError, ValueError) as error:
            raise CheckpointError(_folder_fault(path, error)) from None

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def has(self, name: str) -> bool:
        """True if the folder has an entry of exactly this name, whatever it is."""
        return self._is_there(name)

    def _is_there(self, name: str) -> bool:
        try:
            os.stat(name, dir_fd=self._fd, follow_symlinks=False)
        except OSError:
            return False
        return True

    def open(self, name: str) -> int:
        """A descriptor of the plain file `name`, which the caller closes."""
        try:
            fault = _kind_fault(os.stat(name, dir_fd=self._fd).st_mode)
            if fault is None:  # O_NONBLOCK: should it have become a FIFO since, nothing waits
                flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
                fd = os.open(name, flags, dir_fd=self._fd)
                fault = _kind_fault(os.fstat(fd).st_mode)
                if fault is None:
                    return fd
                os.close(fd)
        except OSError as error:
            fault = self._open_fault(name, error)
        raise CheckpointError(f"{name} {fault}.")

    def read(self, name: str, limit: int) -> bytes:
        """The whole content of the plain file `name`, which must not exceed `limit` bytes."""
        fd = self.open(name)
        try:
            before = os.fstat(fd)
            if before.st_size > limit:
                raise CheckpointError(f"{name} has {before.st_size} bytes, which is more than the "
                                      f"{limit} that such a file may have; check what it is.")
            parts = []
            room = limit + 1  # it may grow while it is read
            while room and (part := os.read(fd, min(room, READ_BYTES))):
                parts.append(part)
                room -= len(part)
            data, after = b"".join(parts), os.fstat(fd)
            if len(data) != before.st_size or before.st_mtime_ns != after.st_mtime_ns:
                raise CheckpointError(f"{name} changed while it was read; start again.")
            return data
        except OSError as error:
            raise CheckpointError(f"{name} cannot be read: {error.strerror}; "
                                  "check the disk.") from None
        finally:
            os.close(fd)

    def _open_fault(self, name: str, error: OSError) -> str:
        if error.errno == errno.ELOOP:
            return "is a link that leads back to itself; download the checkpoint again"
        if error.errno == errno.ENOENT and self._is_there(name):
            return "is a link to a file that is not there; download the checkpoint again"
        if error.errno == errno.ENOENT:
            return "is missing; download the checkpoint again, or name its own folder"
        if error.errno in (errno.EACCES, errno.EPERM):
            return f"may not be read by user {os.geteuid()}; give it the permission (chmod +r)"
        return f"cannot be opened: {error.strerror}"


def _kind_fault(mode: int) -> str | None:
    if stat.S_ISREG(mode):
        return None
    kind = "a folder" if stat.S_ISDIR(mode) else "a FIFO" if stat.S_ISFIFO(mode) else \
        "a device" if stat.S_ISCHR(mode) or stat.S_ISBLK(mode) else "a socket"
    return f"is {kind}, not a plain file; download the checkpoint again"


def _folder_fault(path: str, error: OSError | ValueError) -> str:
    code = getattr(error, "errno", None)
    if code == errno.ENOTDIR:
        return f"{shown(path)} is not a folder; name the folder of a checkpoint."
    if code in (errno.EACCES, errno.EPERM):
        return f"{shown(path)} may not be read by user {os.geteuid()}; give it the permission."
    if code in (None, errno.ENOENT):
        return f"{shown(path)} is not there; name the folder of a checkpoint."
    return f"{shown(path)} cannot be opened: {os.strerror(code)}."
