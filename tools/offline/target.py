"""Where results go: the standard output, a new file, or one that an earlier run left unfinished."""

import os
import sys
from pathlib import Path
from typing import BinaryIO

from loader.wire import ANSWER

BLOCK_BYTES = 1 << 20


class TargetError(Exception):
    """The file cannot take the results: one sentence with the way out."""


def open_target(path: Path | None, source: str, done: int, as_records: bool) -> BinaryIO:
    """A file to write results to, from the `done`th (from 0) on; None is the standard output.

    A file that holds results is continued after as many; half a result at its end, as a crash may
    leave it, is cut off. Raises TargetError where it holds another number, OSError.
    """
    if path is None:
        return os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    if path.exists() and os.path.exists(source) and path.samefile(source):
        raise TargetError(f"{path} is the file to read; name another one to write.")
    if not done or not path.exists() or not path.stat().st_size:
        return open(path, "wb")
    file = open(path, "r+b")
    whole, size = _whole_records(file) if as_records else _whole_lines(file)
    if whole != done:
        file.close()
        raise TargetError(f"{path} holds {whole} results, not {done}; say --skip {whole}, or name "
                          "another file.")
    file.truncate(size)
    file.seek(size)
    return file


def _whole_records(file: BinaryIO) -> tuple[int, int]:
    """How many there are, and their bytes."""
    count = file.seek(0, os.SEEK_END) // ANSWER.size
    return count, count * ANSWER.size


def _whole_lines(file: BinaryIO) -> tuple[int, int]:
    count = size = at = 0
    while block := file.read(BLOCK_BYTES):
        count += block.count(b"\n")
        size = at + block.rfind(b"\n") + 1 if b"\n" in block else size
        at += len(block)
    return count, size
