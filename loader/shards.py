"""Weights in several files: the index that names them, and each tensor where it says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loader.checkpoint import Folder
from loader.errors import CheckpointError, shown
from loader.stored import Stored
from loader.strict_json import read_object

INDEX_BYTES = 64 << 20
SHARD_LIMIT = 256  # each is held open while the weights are copied
NAME_BYTES = 255   # of a file, on every file system


def read_shards(folder: Folder, index: str, suffix: str,
                read: Callable[[str], dict[str, Stored]]) -> dict[str, Stored]:
    """Name → place of every tensor that the index maps; others in the shards are left out.

    `read` opens one file of the folder by its name and gives its tensors. A shard is a name that
    ends with `suffix`, in the folder itself: a path in the index is never followed. Raises
    CheckpointError.
    """
    weight_map = read_object(folder.read(index, INDEX_BYTES), index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{index}: weight_map is {shown(weight_map)}, not an object of "
                              "tensors and their files; download it again.")
    names = dict.fromkeys(_checked(shard, tensor, index, suffix)
                          for tensor, shard in weight_map.items())
    if len(names) > SHARD_LIMIT:
        raise CheckpointError(f"{index} names {len(names)} files, more than {SHARD_LIMIT}; save "
                              "the model with a larger max_shard_size.")
    for name in names:
        if not folder.has(name):
            raise CheckpointError(f"{index} names the file {shown(name)}, which is missing; "
                                  "download it too.")
    shards = {name: read(name) for name in names}
    for tensor, name in weight_map.items():
        if tensor not in shards[name]:
            raise CheckpointError(f"{index} says that {shown(tensor)} is in {shown(name)}, but it "
                                  "is not; download the checkpoint again.")
    return {tensor: shards[name][tensor] for tensor, name in weight_map.items()}


def _checked(shard: Any, tensor: str, index: str, suffix: str) -> str:
    if not isinstance(shard, str):
        raise CheckpointError(f"{index}: the file of {shown(tensor)} is {shown(shard)}, not a "
                              "name; download it again.")
    if "/" in shard or not shard.isprintable() or not shard.endswith(suffix) \
            or len(shard.encode("utf-8", "replace")) > NAME_BYTES:
        raise CheckpointError(f"{index}: the file of {shown(tensor)} is said to be {shown(shard)}, "
                              f"which is no {suffix} file of this folder, so it is not opened; "
                              "download the checkpoint again.")
    return shard
