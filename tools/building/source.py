"""The checkpoint that a bundle is made of: its small files as they are, and the hash of all."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from loader.bundle import hash_file
from loader.checkpoint import Folder
from loader.prepare import CONFIG_BYTES
from loader.tokenizer_files import read_tokenizer
from loader.weights import open_weights

CONFIG = "config.json"


class Source(NamedTuple):
    """`files` are the configuration and the tokenizer's; `hashes` is sha256 by the name of every
    file that the model's answers come from."""

    files: dict[str, bytes]
    hashes: dict[str, str]


def read_source(path: str) -> Source:
    """The source in the folder `path`. Raises CheckpointError."""
    with Folder(path) as folder:
        files = {CONFIG: folder.read(CONFIG, CONFIG_BYTES), **read_tokenizer(folder)[1]}
        with open_weights(folder) as weights:
            opened = {tensor.file: tensor.fd for tensor in weights.tensors.values()}
            hashes = {name: hash_file(fd) for name, fd in opened.items()}
    hashes |= {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    return Source(files, dict(sorted(hashes.items())))
