"""A checkpoint folder, read once, checked whole and held in sealed memory: nothing here is torch.

What comes out are memfds that no process can change any more: the card (JSON: everything that
fronts and engines must know of the model), the tokeniser's tables, and the weights as safetensors
images. The folder may be overwritten, cut or deleted afterwards.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from loader.bundle import INT8_WEIGHTS, Bundle, open_folder, quantised_tensors
from loader.checkpoint import Folder
from loader.config import choose_family, read_labels, score_function, whole
from loader.errors import CheckpointError
from loader.family import FamilySpec
from loader.manifest import read_goldens, tolerances
from loader.precision import candidates
from loader.stored import Stored
from loader.strict_json import read_object
from loader.tokenizer_files import check_ids, max_tokens, read_tokenizer
from loader.tokenizers.table import pack_table, pair_specials, tokenizer_table
from loader.weights import WEIGHTS, Weights, copy_weights, match_tensors, open_weights

CONFIG_BYTES = 16 << 20
VOCAB_LIMIT = 1 << 24  # rows of an embedding table
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


@dataclass
class Prepared:
    """A checked model. `card` may still be added to (buckets, self_test) until `seal`.

    `weights_fd` is a sealed memfd already, so that a reference can compute from `map_file` of it;
    a family without weights has an image of no tensors. Where it holds 8-bit products that may yet
    be served wide, `wide_fd` is an image of their wide weights.
    """

    card: dict[str, Any]
    tokenizer: bytes
    weights_fd: int
    wide_fd: int | None = None


@dataclass(frozen=True)
class ModelFiles:
    """Sealed memfds; whoever holds it closes them."""

    card_fd: int
    tokenizer_fd: int
    weights_fd: int
    wide_fd: int | None = None

    @property
    def descriptors(self) -> tuple[int, ...]:
        """All of them, in the order of the fields."""
        fds = self.card_fd, self.tokenizer_fd, self.weights_fd
        return fds if self.wide_fd is None else (*fds, self.wide_fd)

    def completed(self, card_fd: int, keeps_wide: bool) -> ModelFiles:
        """The same with the card that says how the model is served; the one before it is closed,
        and the wide weights are unless somebody may read them yet."""
        os.close(self.card_fd)
        if self.wide_fd is None or keeps_wide:
            return replace(self, card_fd=card_fd)
        os.close(self.wide_fd)
        return replace(self, card_fd=card_fd, wide_fd=None)

    def close(self) -> None:
        for fd in self.descriptors:
            os.close(fd)


def model_name(path: str) -> str:
    """The last part of --model as given, links not followed: "models/sms-spam/" → "sms-spam"."""
    name = os.path.basename(os.path.abspath(path)) or "model"
    return name.encode("utf-8", "replace").decode("utf-8")


def prepare(folder: str, name: str, families: Mapping[str, FamilySpec],
            precision: str = "auto", for_devices: bool = False) -> Prepared:
    """Reads and checks the whole checkpoint or bundle in `folder`; `name` is what clients see of a
    checkpoint, a bundle has its own. With `for_devices` the wide weights are there, whatever CPUs
    serve in.

    The card holds all but what the model's own code adds (`buckets`, `self_test` of a plain
    checkpoint, and which of its `precisions` is served). Its version is a bundle's own, else 8 hex
    digits of a hash over every byte that the answers depend on. Raises CheckpointError.
    """
    with open_folder(folder) as opened, contextlib.ExitStack() as stack:
        manifest = opened.manifest if isinstance(opened, Bundle) else None
        precisions, why = candidates(precision, manifest, for_devices)
        config_bytes = _config_bytes(opened)
        config = read_object(config_bytes, "config.json")
        family = choose_family(config, families)
        weights = stack.enter_context(open_weights(opened)) if family.needs_weights else Weights()
        labels = read_labels(config)
        function = score_function(config, len(labels))
        settings = family.settings(config)
        vocab_size = whole(config, "vocab_size", 1, VOCAB_LIMIT)
        id_bytes = 2 if vocab_size <= 1 << 16 else 4
        files, sources = read_tokenizer(opened)
        table = tokenizer_table(files)
        check_ids(files, vocab_size)
        limit = max_tokens(files, pair_specials(table), family.positions(settings), id_bytes)
        wanted = family.tensors(settings, len(labels)) if family.needs_weights else {}
        tensors = match_tensors(wanted, family.prefix, weights)
        quantised = _quantised(opened, wanted, precisions, stack)
        if manifest:
            goldens = read_goldens(manifest, vocab_size, limit, family.pair_types(settings),
                                   len(labels))
            opened.check_rest()
        wide = {key: tensor for key, tensor in tensors.items() if key in quantised}
        version = _Version({**sources, "config.json": config_bytes})
        weights_fd = _sealed_weights({**tensors, **quantised}, version)
        try:
            wide_fd = _sealed_weights(wide, version) \
                if wide and (for_devices or precisions != ["int8"]) else None
        except BaseException:
            os.close(weights_fd)
            raise
    card = {"name": manifest["name"] if manifest else name,
            "version": manifest["version"] if manifest else version.digits,
            "family": family.name, "labels": labels, "function": function, "max_tokens": limit,
            "vocab_size": vocab_size, "id_bytes": id_bytes,
            "pair_types": family.pair_types(settings), "precisions": precisions,
            "precision": precisions[0], "precision_why": why, "settings": settings}
    if manifest:
        card["self_test"], card["tolerances"] = goldens, tolerances(manifest)
    return Prepared(card, pack_table(table), weights_fd, wide_fd)


def seal(prepared: Prepared) -> ModelFiles:
    """The model as sealed memfds; those of the weights are handed on, not copied."""
    return ModelFiles(seal_card(prepared.card), _sealed("tokenizer", prepared.tokenizer),
                      prepared.weights_fd, prepared.wide_fd)


def seal_card(card: Mapping[str, Any]) -> int:
    """A sealed memfd of the card."""
    return _sealed("card", json.dumps(card, ensure_ascii=False, allow_nan=False).encode("utf-8"))


def open_card(fd: int) -> dict[str, Any]:
    """The card out of its memfd; the file position is left alone, for it is shared."""
    return json.loads(os.pread(fd, os.fstat(fd).st_size, 0))


def map_file(fd: int) -> mmap.mmap:
    """A sealed memfd as read-only memory, shared with every other process that maps it.

    MAP_PRIVATE, because Linux before 6.7 refuses a shared mapping of a write-sealed file; the pages
    are the same ones as long as nobody writes, and nobody can.
    """
    return mmap.mmap(fd, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)


def _config_bytes(folder: Folder) -> bytes:
    if not folder.has("config.json") and folder.has("adapter_config.json"):
        raise CheckpointError(f"config.json and {WEIGHTS} are missing, adapter_config.json tells "
                              "of an adapter only; merge it into its base model and save that.")
    return folder.read("config.json", CONFIG_BYTES)


class _Version:
    """A plain checkpoint's version: a hash of every byte that the answers depend on."""

    def __init__(self, sources: Mapping[str, bytes]) -> None:
        self._digest = hashlib.sha256()
        for name in sorted(sources):
            self._digest.update(f"{name} {len(sources[name])}\n".encode())
            self._digest.update(sources[name])
        self.update = self._digest.update

    @property
    def digits(self) -> str:
        return self._digest.hexdigest()[:8]


def _quantised(folder: Folder, wanted: Mapping[str, tuple[int, ...]], precisions: list[str],
               stack: contextlib.ExitStack) -> dict[str, Stored]:
    """The 8-bit tensors of a bundle that may be served in them, their file held open."""
    if not isinstance(folder, Bundle) or "int8" not in precisions:
        return {}
    fd = folder.open(INT8_WEIGHTS)
    stack.callback(os.close, fd)
    return quantised_tensors(folder, fd, wanted)


def _sealed_weights(tensors: Mapping[str, Stored], version: _Version) -> int:
    target = _memfd("weights")
    try:
        copy_weights(tensors, target, version.update)
        fcntl.fcntl(target, fcntl.F_ADD_SEALS, SEALS)
    except BaseException:
        os.close(target)
        raise
    return target


def _sealed(name: str, data: bytes) -> int:
    fd = _memfd(name)
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view):]
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    return fd


def _memfd(name: str) -> int:
    return os.memfd_create(f"firebrick-{name}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
