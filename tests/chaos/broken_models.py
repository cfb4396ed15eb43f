"""Twenty checkpoints that cannot be served, each for another reason."""

import json
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path


def broken_models(folder: Path, echo: Path, real: Path) -> Iterator[tuple[str, Path]]:
    """(what is wrong, its folder) of each, made below `folder` from an echo checkpoint and one with
    weights."""
    for number, (name, damage) in enumerate(_DAMAGES.items()):
        target = folder / f"broken-{number}"
        shutil.copytree(real if name.startswith("weights") else echo, target)
        damage(target)
        yield name, target


def _config(**changes: object) -> Callable[[Path], None]:
    """Sets keys of config.json; None takes one away."""
    def damage(folder: Path) -> None:
        path = folder / "config.json"
        config = json.loads(path.read_text()) | changes
        path.write_text(json.dumps({key: value for key, value in config.items()
                                    if value is not None}))
    return damage


def _write(name: str, data: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(data) and None


def _delete(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def _cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])


def _not_a_number(folder: Path) -> None:
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-4:] = struct.pack("<f", float("nan"))
    path.write_bytes(data)


_DAMAGES: dict[str, Callable[[Path], None]] = {
    "no folder": shutil.rmtree,
    "config.json is missing": _delete("config.json"),
    "config.json is no JSON": _write("config.json", b"{"),
    "config.json is a list": _write("config.json", b"[]"),
    "no model_type": _config(model_type=None, architectures=None),
    "a family that nobody knows": _config(model_type="oracle", architectures=["Oracle"]),
    "no vocab_size": _config(vocab_size=None),
    "vocab_size below the vocabulary": _config(vocab_size=7),
    "labels with a hole": _config(id2label={"0": "a", "2": "b"}),
    "labels that are a list": _config(id2label=["a", "b"]),
    "a trap of no kind": _config(traps={"door": 5}),
    "a negative delay": _config(delay_ms=-1.0),
    "no positions": _config(max_position_embeddings=0),
    "five segments": _config(type_vocab_size=5),
    "no vocabulary": _delete("vocab.txt"),
    "weights cut": _cut,
    "weights empty": _write("model.safetensors", b""),
    "weights missing": _delete("model.safetensors"),
    "weights of another width": _config(intermediate_size=333),
    "weights not a number": _not_a_number,
}
